"""The commands on the pages work: each block of shell, after the Python of its page has made the data."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from nystrom.commands import main as cli

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["tables.md", "command-line.md"])
def test_the_commands_of_a_page_work(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    assert any(kind == "bash" for kind, _ in found)
    (_, made) = found[0]
    names: dict[str, Any] = {}
    exec(compile(made, page, "exec"), names)
    for kind, block in found:
        for line in block.splitlines() if kind == "bash" else ():
            program, *words = shlex.split(line)
            assert program == "nystrom", line
            assert cli.main(words) == 0, line
