"""The pages as programs: their blocks of code in order, run, and held to the output that the page shows."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from nystrom.commands import main as cli

ROOT = Path(__file__).parents[1]
# Shown as text alone: installs, and what takes minutes or another machine.
NOT_RUN = ("pip", "python3", ".", "pytest", "python")
ONLY_PARSED = ("plan",)

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and the number of its first line."""

    kind: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(found[1], found[2], text[: found.start()].count("\n") + 2) for found in _BLOCK.finditer(text)]


def run_page(page: str) -> None:
    """Run every block of a page in the present folder; raise where one fails or prints another thing than shown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        if block.kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                # Blank lines before, so that an error names the line of the page.
                exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)
            printed = out.getvalue()
        elif block.kind == "output":
            require_same(block.text, printed, f"{page}:{block.line}")
        elif block.kind in ("bash", "console", "sh"):
            for command, shown in commands(block):
                printed = run_command(command)
                if shown and printed:
                    require_same(shown, printed, f"{page}:{block.line}: {command}")
        else:
            raise AssertionError(f"{page}:{block.line}: nobody runs blocks of {block.kind!r}")


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block of shell, each with the output shown beneath it."""
    text = block.text.replace("\\\n", " ")
    if block.kind != "console":
        return [(line, "") for line in text.splitlines() if line.strip()]
    return [(command, shown) for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)]


def run_command(line: str) -> str:
    """Run a line that begins with ``nystrom`` and return what it prints; other programs are not run."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    program, *rest = words
    if program != "nystrom":
        assert program.rpartition("/")[2] in NOT_RUN or program in NOT_RUN, f"nobody runs {line!r}"
        return ""
    if rest[0] in ONLY_PARSED:
        cli.make_parser().parse_args(rest)
        return ""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = cli.main(rest)
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert code == 0, f"{line}\n{printed}"
    return printed


def require_same(shown: str, printed: str, where: str) -> None:
    """Raise unless the text printed is the one shown.

    Three dots match anything, spaces count as one, and a number with decimals agrees if it rounds to the one shown,
    within one of its last digit: other machines round differently.
    """
    pattern, numbers = "", []
    for word in re.split(r"(\.\.\.|\s+)", shown.strip()):
        if word == "...":
            pattern += ".*?"
        elif not word.strip():
            pattern += r"\s+" if word else ""
        else:
            start = 0
            for found in _NUMBER.finditer(word):
                pattern += re.escape(word[start : found.start()])
                pattern += f"({_NUMBER.pattern})" if _is_real(found[0]) else re.escape(found[0])
                numbers += [found[0]] * _is_real(found[0])
                start = found.end()
            pattern += re.escape(word[start:])
    match = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    told = f"{where} shows\n{shown}\nbut prints\n{printed}"
    assert match is not None, told
    for said, got in zip(numbers, match.groups(), strict=True):
        assert abs(float(said.replace(",", "")) - float(got.replace(",", ""))) <= 1.5 * _unit(said), told


def _is_real(number: str) -> bool:
    return "." in number or "e" in number


def _unit(number: str) -> float:
    """Return one of the last digit shown."""
    digits, _, power = number.partition("e")
    return float(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))
