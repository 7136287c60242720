"""How a CSV file is written: its encoding, delimiter, names, and the sign before decimals."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Dialect:
    """What is known of a CSV file from its first lines.

    Attributes
    ----------
    names : list of str
        The header.
    delimiter : str
        A tab in ``.tsv`` files, else the most frequent one of comma, semicolon, tab and bar in the header.
    encoding : str
        "utf-16" where the file begins with its mark, else "utf8".
    line_bytes : int
        The length of the longer one of the first two lines.
    """

    names: list[str]
    delimiter: str
    encoding: str
    line_bytes: int

    @property
    def decimal(self) -> str:
        """The sign before decimals: semicolons stand between values where the comma is taken for numbers."""
        return "," if self.delimiter == ";" else "."


def read_dialect(path: Path) -> Dialect:
    """Return how a file is written; a header that cannot be read raises :class:`DataFileError`."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            begins = stream.read(6)
        _require_text(path, begins)
        encoding = "utf-16" if begins[:2] in _UTF16_MARKS else "utf8"
        with _open_text(path, encoding) as stream:
            lines = [_first_line(stream), stream.readline()]
        delimiter = "\t" if ".tsv" in path.suffixes else _delimiter(lines[0])
        with _open_text(path, encoding) as stream:
            names = next(row for row in csv.reader(stream, delimiter=delimiter) if row)
    except StopIteration:
        raise DataFileError(f"{path} is empty: a table needs a header line with the names of its columns.") from None
    except (csv.Error, EOFError, OSError, UnicodeError, lzma.LZMAError) as error:
        raise DataFileError(f"{path}: its header cannot be read ({' '.join(str(error).split())[:300]}).") from error
    if "\0" in lines[0]:
        raise DataFileError(f"{path}: its header holds zero bytes, so it is not text in UTF-8; convert it to UTF-8.")
    return Dialect(names, delimiter, encoding, max(len(line.encode()) for line in lines))


def _require_text(path: Path, begins: bytes) -> None:
    """Raise for a file that is no text, but of a kind that is known by its first bytes."""
    for mark, (what, suffix) in _MARKS.items():
        if begins.startswith(mark):
            advice = f"Give it a name that ends in {suffix}." if suffix else "Save it as CSV or Parquet."
            raise DataFileError(f"{path} is {what}, not text. {advice}")


def _first_line(stream: IO[str]) -> str:
    """Return the first line that is not empty: the reader of the rows takes it as the header, too."""
    return next((line for line in stream if line.strip("\r\n")), "")


def _delimiter(line: str) -> str:
    bare = _QUOTED.sub("", line)
    return max(_DELIMITERS, key=bare.count)


def _open_text(path: Path, encoding: str) -> IO[str]:
    # Bytes that are no text are found, with their row, by the reader of the whole file.
    name = "utf-8-sig" if encoding == "utf8" else encoding
    stream: IO[str] = OPENERS.get(path.suffix, open)(path, "rt", newline="", encoding=name, errors="replace")
    return stream
