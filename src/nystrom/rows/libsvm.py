"""Sparse rows from LIBSVM text: one row per line, ``label index:value …``, indices from 1, ascending.

A file is read in pieces of a few megabytes. NumPy checks and converts each piece as a whole. If it finds anything
unusual, :func:`parse_line` reads the piece again line by line; it either accepts what it sees (comments, blank lines)
or names the line and what is wrong with it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError
from nystrom.rows.reading import Stamp, check_dtype
from nystrom.rows.sparse import csr_rows
from nystrom.rows.stream import Piece, StreamRows
from nystrom.types import Array, SparseMatrix

_PIECE_BYTES = 8 * 2**20
_LONGEST_LINE = 256 * 2**20
_LARGEST_INDEX = 2**31 - 1
_OPENERS: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
_PLAIN = np.zeros(256, dtype=bool)
_PLAIN[list(b"0123456789+-.eE: \t\r\n")] = True
_DIGIT = np.zeros(256, dtype=bool)
_DIGIT[list(b"0123456789")] = True
_NUMBER_START = np.zeros(256, dtype=bool)
_NUMBER_START[list(b"0123456789+-.")] = True
_SPACE = np.zeros(256, dtype=bool)
_SPACE[list(b" \t\r\n")] = True


# Bytes that the parser holds for an 8 MiB piece of text with its tokens and numbers.
_PARSER_BYTES = 160 * 2**20


@dataclass(frozen=True)
class TextPiece:
    """Some consecutive rows: targets, entries per row, and all column numbers (from 0) and values."""

    y: Array
    counts: Array
    columns: Array
    values: Array


def read_libsvm(path: Path | str, *, n_features: int | None = None) -> tuple[SparseMatrix, Array]:
    """Read a LIBSVM file, plain or compressed (``.bz2``, ``.gz``, ``.xz``).

    Parameters
    ----------
    path : path
        The file.
    n_features : int, optional
        Number of columns; an index above it is an error. By default the largest index found.

    Returns
    -------
    X : CSR matrix of shape (n, n_features), float64
    y : ndarray of shape (n,), float64

    Raises
    ------
    DataFileError
        The file is not LIBSVM text; the message names the number of the first bad line.

    Notes
    -----
    Time and memory are linear in the file: a few million entries per second, about half of it decompression.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from nystrom.datasets import read_libsvm
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny"
    >>> _ = file.write_text("+1 1:0.5 3:2\\n-1 2:1\\n")
    >>> X, y = read_libsvm(file)
    >>> X.toarray().tolist(), y.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1.0, -1.0])
    """
    path = Path(path)
    pieces = list(iterate_libsvm(path, n_features=n_features))
    if not pieces or not sum(piece.y.size for piece in pieces):
        raise DataFileError(f"{path.name}: the file holds no rows. Fetch it again: the copy is empty.")
    counts = np.concatenate([piece.counts for piece in pieces])
    columns = np.concatenate([piece.columns for piece in pieces])
    width = n_features or (int(columns.max()) + 1 if columns.size else 1)
    X = sp.csr_matrix(
        (np.concatenate([piece.values for piece in pieces]), columns, np.r_[0, np.cumsum(counts)]),
        shape=(counts.size, width),
    )
    return X, np.concatenate([piece.y for piece in pieces])


def iterate_libsvm(path: Path, *, n_features: int | None = None) -> Iterator[TextPiece]:
    """Yield the rows of a LIBSVM file in order, a few megabytes of text at a time; see :func:`read_libsvm`."""
    line = 1
    for text in _lines_in_pieces(path):
        piece = _parse_fast(text, n_features)
        yield piece if piece is not None else _parse_lines(text, n_features, path.name, line)
        line += text.count(b"\n")


def open_text(path: Path) -> IO[bytes]:
    """Open a file, decompressing it by its suffix."""
    opener = _OPENERS.get(path.suffix)
    return opener(path, "rb") if opener else io.FileIO(path)


def _lines_in_pieces(path: Path) -> Iterator[bytes]:
    """Yield the file's text in pieces that end at the end of a line."""
    rest = b""
    line = 1
    with open_text(path) as stream:
        while True:
            try:
                text = stream.read(_PIECE_BYTES)
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                raise DataFileError(
                    f"{path.name}, near line {line + rest.count(10)}: the compressed file is damaged or cut "
                    f"short ({error}). Fetch it again."
                ) from error
            if not text:
                break
            cut = text.rfind(b"\n") + 1
            if not cut:
                rest += text
                if len(rest) > _LONGEST_LINE:
                    raise DataFileError(
                        f"{path.name}, line {line}: longer than {_LONGEST_LINE >> 20} MiB, so this is not "
                        f"LIBSVM text (one row 'label index:value …' a line)."
                    )
                continue
            piece = rest + text[:cut]
            rest = text[cut:]
            line += piece.count(b"\n")
            yield piece
    if rest:
        yield rest + b"\n"


def _parse_fast(text: bytes, n_features: int | None) -> TextPiece | None:
    """Convert a piece of regular text as a whole; None if it must be read line by line."""
    raw = np.frombuffer(text, dtype=np.uint8)
    if not _PLAIN[raw].all():
        return None
    colons = np.flatnonzero(raw == ord(":"))
    if colons.size and not (_DIGIT[raw[colons - 1]].all() and _NUMBER_START[raw[colons + 1]].all()):
        return None
    space = _SPACE[raw]
    starts = np.flatnonzero(~space & np.r_[True, space[:-1]])
    ends = np.flatnonzero(raw == ord("\n"))
    first_token = np.searchsorted(starts, np.r_[0, ends[:-1]])
    tokens = np.diff(np.r_[first_token, starts.size])
    if (tokens < 1).any() or starts.size != ends.size + colons.size:
        return None
    # Every token except the first of its line must hold exactly one colon.
    owner = np.searchsorted(starts, colons, side="right") - 1
    expected = np.delete(np.arange(starts.size), first_token)
    if not np.array_equal(owner, expected):
        return None
    numbers = _numbers(text.replace(b":", b" "), ends.size + 2 * colons.size)
    if numbers is None or not np.isfinite(numbers).all():
        return None
    return _assemble(numbers, tokens - 1, n_features)


def _numbers(text: bytes, count: int) -> Array | None:
    """Return the ``count`` numbers of a text without letters other than e, or None if there are more or fewer."""
    # NumPy stops where it cannot parse, with a warning at most. The text cannot contain the appended NaN itself, so
    # the NaN comes last only if everything was parsed.
    try:
        numbers = np.fromstring(text + b" nan", dtype=np.float64, sep=" ")
    except (DeprecationWarning, ValueError):
        return None
    return numbers[:-1] if numbers.size == count + 1 and np.isnan(numbers[-1]) else None


def _assemble(numbers: Array, counts: Array, n_features: int | None) -> TextPiece | None:
    """Split the numbers of a piece into labels, column numbers (which must be in order) and values."""
    at = np.r_[0, np.cumsum(2 * counts[:-1] + 1)]
    is_pair = np.ones(numbers.size, dtype=bool)
    is_pair[at] = False
    pairs = numbers[is_pair]
    index, values = pairs[0::2], pairs[1::2]
    limit = _LARGEST_INDEX if n_features is None else n_features
    if index.size and not (index.min() >= 1 and index.max() <= limit and (index == np.floor(index)).all()):
        return None
    row_begins = np.zeros(index.size + 1, dtype=bool)
    row_begins[np.cumsum(counts)] = True
    rises = np.diff(index) > 0
    if index.size > 1 and not (rises | row_begins[1 : index.size]).all():
        return None
    return TextPiece(numbers[at], counts, (index - 1).astype(np.int32), values.copy())


def _parse_lines(text: bytes, n_features: int | None, name: str, first_line: int) -> TextPiece:
    y, counts, columns, values = [], [], [], []
    for number, line in enumerate(text.split(b"\n")[:-1], start=first_line):
        try:
            row = parse_line(line, n_features)
        except ValueError as error:
            raise DataFileError(f"{name}, line {number}: {error}") from None
        if row is not None:
            y.append(row[0])
            counts.append(len(row[1]))
            columns.extend(row[1])
            values.extend(row[2])
    return TextPiece(
        np.array(y, dtype=np.float64),
        np.array(counts, dtype=np.int64),
        np.array(columns, dtype=np.int32),
        np.array(values, dtype=np.float64),
    )


def parse_line(line: bytes, n_features: int | None) -> tuple[float, list[int], list[float]] | None:
    """Return label, column numbers (from 0) and values of one line; None for a blank line or a comment.

    Raises
    ------
    ValueError
        What is wrong with the line.
    """
    try:
        words = line.split(b"#", 1)[0].decode("ascii").split()
    except UnicodeDecodeError:
        raise ValueError("not text (bytes outside ASCII). Is the file compressed under another name?") from None
    if not words:
        return None
    label = _finite(words[0], "the label")
    columns: list[int] = []
    values: list[float] = []
    last = 0
    for word in words[1:]:
        index, colon, value = word.partition(":")
        if index == "qid":
            continue
        if not colon or not (index.isdigit() or index.removeprefix("-").isdigit()):
            raise ValueError(f"expected index:value with a whole index, found {_short(word)}.")
        column = int(index) if len(index) < 12 else _LARGEST_INDEX + 1
        _check_index(column, last, n_features)
        columns.append(column - 1)
        values.append(_finite(value, f"the value of index {column}"))
        last = column
    return label, columns, values


def _check_index(column: int, last: int, n_features: int | None) -> None:
    if column < 1:
        raise ValueError(f"index {column} is not allowed: LIBSVM counts columns from 1.")
    if n_features is not None and column > n_features:
        raise ValueError(f"index {column} is beyond the {n_features} columns that this set has.")
    if column > _LARGEST_INDEX:
        raise ValueError(f"an index is beyond {_LARGEST_INDEX}, the largest that is read.")
    if column <= last:
        raise ValueError(f"index {column} comes after index {last}: indices must ascend along a line.")


def _finite(word: str, what: str) -> float:
    try:
        if "_" in word:  # Python would read 1_0 as 10
            raise ValueError
        number = float(word)
    except ValueError:
        raise ValueError(f"{what} must be a number, found {_short(word)}.") from None
    if not np.isfinite(number):
        raise ValueError(f"{what} is {word}: values must be finite.")
    return number


def _short(word: str) -> str:
    return repr(word if len(word) <= 40 else word[:37] + "…")


class LibsvmRows(StreamRows):
    """A LIBSVM text file, plain or compressed; the label is the target."""

    is_sparse = True
    has_target = True
    held_bytes = _PARSER_BYTES

    def __init__(self, path: Path, *, n_features: int | None, dtype: DTypeLike, label: bool) -> None:
        self.path = path
        self.name = str(path)
        self.dtype = check_dtype(np.float64, dtype, self.name)
        self.stamp = Stamp.of(path)
        self.has_target = label
        self._n_features = n_features

    def pieces(self) -> Iterator[Piece]:
        width = self._n_features
        for part in iterate_libsvm(self.path, n_features=width):
            columns = width or self._width(part.columns)
            indptr = np.concatenate([[0], np.cumsum(part.counts)])
            X = csr_rows(part.values, part.columns, indptr, (part.y.size, columns), self.name)
            yield Piece(X.astype(self.dtype, copy=False), part.y if self.has_target else None)

    def _width(self, columns: Array) -> int:
        # After measuring, every piece has the full width; before that, its own.
        known = getattr(self, "shape", None)
        return int(known[1]) if known else int(columns.max(initial=0)) + 1
