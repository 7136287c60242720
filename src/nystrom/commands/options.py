"""Values of options, read and checked alike by every command; argparse reports a wrong one in one line."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

# What `add_subparsers` returns; argparse has no public name for it.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

JSON_HELP = "print the summary as JSON; without --out FILE, the rows themselves, one JSON object each"


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Report the error, and the command that shows the help."""
        self.exit(2, f"nystrom: error: {message}; see {self.prog} --help\n")


def parse_count(text: str) -> int:
    """Return a whole number of at least 1; notation such as 1e9 is accepted.

    Examples
    --------
    >>> parse_count("2e6")
    2000000
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.5
    if not 1 <= value < 1e18 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1, such as 500 or 1e9")
    return int(value)


def parse_count_or_auto(text: str) -> int | str:
    """Return a whole number of at least 1, or the word "auto"."""
    return text if text == "auto" else parse_count(text)


def parse_size(text: str) -> int:
    """Return a number of bytes from a text such as "16GB" or "2GiB".

    Examples
    --------
    >>> parse_size("1.5 GB")
    1500000000
    """
    from nystrom.engine.memory import parse_memory

    try:
        return parse_memory(text) or 0
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 16GB, 2GiB or 500M") from None


def parse_number_or_word(text: str) -> Any:
    """Return the text as a number if possible, or else as it is; the word "none" in any case is "none"."""
    if text.lower() == "none":
        return "none"  # None would mean that the option is not given
    try:
        return float(text)
    except ValueError:
        return text


def parse_share(text: str) -> float:
    """Return a share of at least 0 and below 1.

    Examples
    --------
    >>> parse_share("0.2")
    0.2
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share of at least 0 and below 1, such as 0.2")
    return value


def parse_setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``name=value``, the value parsed as JSON if possible.

    Examples
    --------
    >>> parse_setting("degree=2"), parse_setting("selection=gcv")
    (('degree', 2), ('selection', 'gcv'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting such as degree=2")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse_names(text: str) -> list[str]:
    """Return the names in a list such as "id,comment"."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_words(text: str) -> list[str]:
    """Return the words in a list such as "NA,-999", as they are written."""
    return text.split(",")


def parse_date_format(text: str) -> tuple[str | None, str]:
    """Return the column (None for all) and the format of ``built=%d/%m/%Y`` or ``%d/%m/%Y``.

    Examples
    --------
    >>> parse_date_format("built=%d/%m/%Y"), parse_date_format("%d.%m.%Y")
    (('built', '%d/%m/%Y'), (None, '%d.%m.%Y'))
    """
    name, equals, form = text.partition("=")
    if "%" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a format such as %d/%m/%Y or built=%d/%m/%Y")
    return (name, form) if equals and "%" not in name else (None, text)


def check_output(path: str, allowed: tuple[str, ...], *, inputs: Sequence[str] = ()) -> str:
    """Return the path of an output that can be written, or raise before any work is done; "-" is standard output.

    It must not be one of the input files, ``inputs``.
    """
    if path == "-":
        return path
    place = Path(path)
    for name in inputs:
        if place.exists() and Path(name).exists() and place.samefile(name):
            raise ValueError(f"--out {path} is the file that is read, which would be lost; give another name.")
    if allowed and place.suffix.lower() not in allowed:
        raise ValueError(
            f"--out {path}: its name must end in one of {', '.join(allowed)}, or be - for standard output."
        )
    if not place.parent.is_dir():
        raise ValueError(f"--out {path}: the folder {place.parent} does not exist.")
    if place.is_dir() and place.suffix.lower() != ".zarr":
        raise ValueError(f"--out {path} is a folder; give the name of a file.")
    try:
        tempfile.TemporaryFile(dir=place.parent).close()
    except OSError as error:
        raise ValueError(f"--out {path}: the folder {place.parent} cannot be written to ({error.strerror}).") from None
    return path


def require_package(name: str, extra: str, purpose: str) -> None:
    """Raise at the start of a command if a package that it needs later is missing."""
    from importlib.util import find_spec

    from nystrom.exceptions import MissingDependencyError

    if find_spec(name) is None:
        raise MissingDependencyError(name, extra, purpose)
