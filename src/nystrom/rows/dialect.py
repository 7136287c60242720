"""How a CSV file is written: its encoding, delimiter, names, and the sign before decimals."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

from nystrom.exceptions import DataFileError

OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_DELIMITERS = ",;\t|"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# How files begin that are no text: what they are, and the suffix by which they are read.
_MARKS: dict[bytes, tuple[str, str]] = {
    b"\x1f\x8b": ("compressed by gzip", ".csv.gz"),
    b"BZh": ("compressed by bzip2", ".csv.bz2"),
    b"\xfd7zXZ\x00": ("compressed by xz", ".csv.xz"),
    b"\x28\xb5\x2f\xfd": ("compressed by Zstandard", ""),
    b"PK\x03\x04": ("an archive or a spreadsheet", ""),
    b"PAR1": ("a Parquet file", ".parquet"),
    b"ARROW1": ("a Feather file", ".feather"),
    b"\x93NUMPY": ("a NumPy array", ".npy"),
    b"\x89HDF": ("an HDF5 file", ".h5"),
}
_QUOTED = re.compile(r'"[^"]*"')
# Excel's first line, which names the delimiter.
_SEP_LINE = re.compile(r"\s*\"?sep=(.)\"?\s*", re.IGNORECASE)
# Lines that are looked at for the sign before decimals.
_LOOKED_AT = 200
_LONGEST_LINE = 4 * 2**20
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"\d+")
_COMMA_NUMBER = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


@dataclass(frozen=True)
class Dialect:
    """What is known of a CSV file from its first lines.

    Attributes
    ----------
    names : list of str
        The header; x0, x1, ... where the first line holds values.
    delimiter : str
        What a line ``sep=;`` says, a tab in ``.tsv`` files, else the most frequent one of comma, semicolon, tab and
        bar in the header.
    encoding : str
        "utf-16" where the file begins with its mark, else "utf8".
    line_bytes : int
        The length of the longer one of the first two lines.
    decimal : str
        The sign before decimals: where semicolons are between the values the comma, unless numbers show a point.
    skip : int
        Lines before the header.
    has_header : bool
        Whether there is a header.
    guessed : bool
        Whether nothing showed the sign before decimals, though it matters: 1.234 is either.
    """

    names: list[str]
    delimiter: str
    encoding: str
    line_bytes: int
    decimal: str = "."
    skip: int = 0
    has_header: bool = True
    guessed: bool = False


def read_dialect(path: Path) -> Dialect:
    """Return how a file is written; a header that cannot be read raises :class:`DataFileError`."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            begins = stream.read(6)
        _require_text(path, begins)
        encoding = "utf-16" if begins[:2] in _UTF16_MARKS else "utf8"
        with open_text(path, encoding) as stream:
            lines = list(islice(_bounded(stream, path), _LOOKED_AT))
        return _dialect(path, lines, encoding)
    except (csv.Error, EOFError, OSError, UnicodeError, lzma.LZMAError, zlib.error) as error:
        raise DataFileError(f"{path}: its header cannot be read ({' '.join(str(error).split())[:300]}).") from error


def _dialect(path: Path, lines: list[str], encoding: str) -> Dialect:
    first = next((i for i, line in enumerate(lines) if line.strip("\r\n")), len(lines))
    skip, delimiter = 0, None
    said = _SEP_LINE.fullmatch(lines[first].strip("\r\n")) if first < len(lines) else None
    if said is not None:
        delimiter, skip = said[1], first + 1
    body = [line for line in lines[skip:] if line.strip("\r\n")]
    if not body:
        raise DataFileError(f"{path} is empty: a table needs a header line with the names of its columns.")
    if "\0" in body[0]:
        raise DataFileError(f"{path}: its header holds zero bytes, so it is not text in UTF-8; convert it to UTF-8.")
    if delimiter is None:
        delimiter = "\t" if ".tsv" in path.suffixes else max(_DELIMITERS, key=_QUOTED.sub("", body[0]).count)
    rows = list(csv.reader(body, delimiter=delimiter))
    names = rows[0]
    has_header = not _are_values(names)
    if not has_header:
        names = [f"x{j}" for j in range(len(names))]
    decimal, guessed = _decimal([cell.strip() for row in rows[has_header:] for cell in row], delimiter)
    width = max(len(line.encode()) for line in body[:2])
    return Dialect(names, delimiter, encoding, width, decimal, skip, has_header, guessed)


def _are_values(cells: Sequence[str]) -> bool:
    """Return whether the cells of a first line are values: names are no decimals, and whole ones ascend (years)."""
    numbers = [cell.strip() for cell in cells if _NUMBER.fullmatch(cell.strip())]
    if any(_WHOLE.fullmatch(cell) is None for cell in numbers):
        return True
    whole = [int(cell) for cell in numbers]
    return any(after <= before for before, after in pairwise(whole))


def _decimal(cells: Sequence[str], delimiter: str) -> tuple[str, bool]:
    """Return the sign before decimals, and whether it is a guess that changes numbers."""
    if delimiter != ";":
        return ".", False
    commas = any(_COMMA_NUMBER.fullmatch(cell) for cell in cells)
    points = any(_POINT_NUMBER.fullmatch(cell) and not _GROUPED.fullmatch(cell) for cell in cells)
    if points and not commas:
        return ".", False
    return ",", not commas and any(_GROUPED.fullmatch(cell) for cell in cells)


def _require_text(path: Path, begins: bytes) -> None:
    """Raise for a file that is no text, but of a kind that is known by its first bytes."""
    for mark, (what, suffix) in _MARKS.items():
        if begins.startswith(mark):
            advice = f"Give it a name that ends in {suffix}." if suffix else "Save it as CSV or Parquet."
            raise DataFileError(f"{path} is {what}, not text. {advice}")


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a text file, decompressing it by its suffix; bytes that are no text are found by the reader of the rows."""
    name = "utf-8-sig" if encoding == "utf8" else encoding
    stream: IO[str] = OPENERS.get(path.suffix, open)(path, "rt", newline="", encoding=name, errors="replace")
    return stream


def data_lines(path: Path, dialect: Dialect) -> Iterator[list[str]]:
    """Yield the values of each line below the header, read one by one: slow, to find what a parser refused."""
    with open_text(path, dialect.encoding) as stream:
        lines = islice(_bounded(stream, path), dialect.skip, None)
        rows = (row for row in csv.reader(lines, delimiter=dialect.delimiter) if row)
        yield from islice(rows, int(dialect.has_header), None)


def _bounded(stream: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a text; one that is very long is an error before it fills the memory."""
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise DataFileError(
                f"{path}, line {number}: longer than {_LONGEST_LINE >> 20} million characters, so this is not a table."
            )
        yield line
