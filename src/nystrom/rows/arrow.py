"""Tables in files (CSV, Parquet, Feather): how a CSV file is written, record batches, and rows of numbers."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from nystrom.exceptions import DataFileError, MissingDependencyError, TableWarning, warn_caller
from nystrom.rows.reading import Columns, Stamp, check_dtype, choose_columns, reading
from nystrom.rows.stream import Piece, StreamRows, rechunk
from nystrom.types import Array

OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_DELIMITERS = ",;\t|"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# First bytes of common files that are not text: what they are, and the suffix under which they are read.
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
# Number of lines searched for the decimal separator.
_LOOKED_AT = 200
_LONGEST_LINE = 4 * 2**20
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"\d+")
_COMMA_NUMBER = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


@dataclass(frozen=True)
class Dialect:
    """What the first lines of a CSV file show about it.

    Attributes
    ----------
    names : list of str
        The header; x0, x1, ... if the first line holds values.
    delimiter : str
        The one named by a line ``sep=;``, a tab in ``.tsv`` files, else the most frequent of comma, semicolon, tab and
        bar in the header.
    encoding : str
        "utf-16" if the file begins with its byte order mark, else "utf8".
    line_bytes : int
        The length of the longer of the first two lines.
    decimal : str
        The decimal separator: a comma if semicolons separate the values, unless numbers show a point.
    skip : int
        Lines before the header.
    has_header : bool
        Whether there is a header.
    guessed : bool
        Whether nothing showed the decimal separator although it matters: 1.234 may be either.
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
    """Return whether the cells of a first line are values: names are not decimals, and integers ascend (years)."""
    numbers = [cell.strip() for cell in cells if _NUMBER.fullmatch(cell.strip())]
    if any(_WHOLE.fullmatch(cell) is None for cell in numbers):
        return True
    whole = [int(cell) for cell in numbers]
    return any(after <= before for before, after in pairwise(whole))


def _decimal(cells: Sequence[str], delimiter: str) -> tuple[str, bool]:
    """Return the decimal separator, and whether it is a guess that changes numbers."""
    if delimiter != ";":
        return ".", False
    commas = any(_COMMA_NUMBER.fullmatch(cell) for cell in cells)
    points = any(_POINT_NUMBER.fullmatch(cell) and not _GROUPED.fullmatch(cell) for cell in cells)
    if points and not commas:
        return ".", False
    return ",", not commas and any(_GROUPED.fullmatch(cell) for cell in cells)


def _require_text(path: Path, begins: bytes) -> None:
    """Raise for a file that is not text but of a kind recognised by its first bytes."""
    for mark, (what, suffix) in _MARKS.items():
        if begins.startswith(mark):
            advice = f"Give it a name that ends in {suffix}." if suffix else "Save it as CSV or Parquet."
            raise DataFileError(f"{path} is {what}, not text. {advice}")


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a text file, decompressing it by its suffix; the reader of the rows reports bytes that are not text."""
    name = "utf-8-sig" if encoding == "utf8" else encoding
    stream: IO[str] = OPENERS.get(path.suffix, open)(path, "rt", newline="", encoding=name, errors="replace")
    return stream


def data_lines(path: Path, dialect: Dialect) -> Iterator[list[str]]:
    """Yield the values of each line below the header, one by one: slow, to find what a parser refused."""
    with open_text(path, dialect.encoding) as stream:
        lines = islice(_bounded(stream, path), dialect.skip, None)
        rows = (row for row in csv.reader(lines, delimiter=dialect.delimiter) if row)
        yield from islice(rows, int(dialect.has_header), None)


def _bounded(stream: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a text; a very long line raises before it fills the memory."""
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise DataFileError(
                f"{path}, line {number}: longer than {_LONGEST_LINE >> 20} million characters, so this is not a table."
            )
        yield line


# A pyarrow RecordBatch or Table, and one of its columns; pyarrow ships no types.
Batch: TypeAlias = Any
ArrowColumn: TypeAlias = Any

# Words in a CSV file that mean a missing value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "?")
# The key under which a record batch stores the decimal separator of its text.
DECIMAL = "decimal"
BATCH_ROWS = 8192
_BUFFER_BYTES = 2**20
# Bytes of CSV text decoded at a time; a block holds several lines. pyarrow holds about 40 times as much, plus 70 kB
# per column and 6 times what a larger block exceeds this by (measured with 785 columns).
_CSV_BLOCK_BYTES = 2**18
_COLUMN_BYTES = 70_000
_LINES_A_BLOCK = 16
# Each column of a block costs about 60 µs however few lines it has, so long lines get larger blocks, up to a limit.
_LINES_WORTH_IT = 600
_WIDE_BLOCK_BYTES = 2**20
# Bytes of text per block for columns of numbers, which pyarrow decodes itself; this size is the fastest.
_NUMBER_BLOCK_BYTES = 4 * 2**20
# Largest integer up to which float64 represents all integers.
EXACT = 2**53
_NO_NUMBERS = "Leave the column out with columns=[...], or encode it (nystrom.preprocessing.TableEncoder)."
_TRUTHS = ("true", "false")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
}


def import_arrow(module: str = "pyarrow") -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError("pyarrow", "io", "Reading CSV, Parquet and Feather files") from error
    return {
        "pyarrow": pyarrow,
        "compute": pyarrow.compute,
        "csv": pyarrow.csv,
        "ipc": pyarrow.ipc,
        "parquet": pyarrow.parquet,
    }[module]


def release_arrow() -> None:
    """Return memory that pyarrow keeps for its next call to the system."""
    import_arrow().default_memory_pool().release_unused()


@dataclass(frozen=True)
class Table:
    """A source of named columns.

    Attributes
    ----------
    name : str
        For messages.
    names : list of str
        The columns.
    typed : bool
        Whether the columns have types; those of a CSV file are text until they are parsed.
    read : callable
        Takes a path, column names, and the names among them to decode as numbers; returns an iterator over record
        batches. Each call starts from the first row.
    paths : tuple
        The files; a single None for a table in memory.
    stamp : Stamp or None
        The files and their state when they were opened.
    count : int or None
        The number of rows, if known without a pass.
    held_bytes : int
        Bytes held in memory while reading.
    singles : frozenset of str
        The columns that hold float32 in every file.
    """

    name: str
    names: list[str]
    typed: bool
    read: Callable[[Any, list[str], Collection[str]], Iterator[Batch]]
    paths: tuple[Path | None, ...] = (None,)
    stamp: Stamp | None = None
    count: int | None = None
    held_bytes: int = 0
    singles: frozenset[str] = frozenset()

    def batches(self, columns: Sequence[str], *, numbers: Collection[str] = ()) -> Iterator[Batch]:
        """Yield record batches of these columns, in order; a damaged file raises :class:`DataFileError`.

        Columns in ``numbers`` are decoded as float64 if the file has no types.
        """
        for path in self.paths:
            batches = self.read(path, list(dict.fromkeys(columns)), numbers)
            row = 0
            while True:
                with nullcontext() if path is None else reading(self.name if len(self.paths) == 1 else path, row):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch
                row += batch.num_rows


def table_kind(path: Path) -> str | None:
    """Return "csv", "parquet" or "feather" by the name of a file, or None."""
    bare = path.with_suffix("") if path.suffix in OPENERS else path
    return SUFFIXES.get(bare.suffix.lower())


def open_table_files(
    path: Path, *, kind: str | None = None, missing: Sequence[str] = MISSING, decimal: str | None = None
) -> Table:
    """Return the table in a file, or in all files of one kind in a folder, in the order of their names.

    ``missing`` are the words that mean a missing value in a CSV file; ``decimal`` is its decimal separator, detected by
    default.
    """
    paths = [path]
    if path.is_dir():
        found = [file for file in path.iterdir() if file.is_file()]
        paths = sorted(file for file in found if table_kind(file) is not None and kind in (None, table_kind(file)))
        if len({table_kind(file) for file in paths}) != 1:
            raise ValueError(f"the folder {path} must hold files of one kind: .csv, .parquet or .feather.")
    kind = kind or table_kind(paths[0])
    if kind is None:
        raise ValueError(
            f"{path} is no table: its name must end in one of {', '.join(SUFFIXES)} (after .csv also .gz, .bz2, .xz)."
        )
    if kind == "csv":
        table = _open_csv(paths, str(path), tuple(missing), decimal)
    else:
        table = (_open_parquet if kind == "parquet" else _open_feather)(paths, str(path))
    repeated = sorted({name for name in table.names if table.names.count(name) > 1})
    if repeated:
        header = "" if repeated[0].strip() else " Is its first line a header with the names of the columns?"
        raise DataFileError(f"{paths[0]}: two columns have the name {repeated[0]!r}; rename one of them.{header}")
    return table


def _parquet_file(path: Path) -> Any:
    return import_arrow("parquet").ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def _open_parquet(paths: list[Path], name: str) -> Table:
    """Open Parquet files, read batch by batch, never a whole row group."""
    schemas, count = [], 0
    for path in paths:
        with reading(path):
            file = _parquet_file(path)
            schemas.append(_types_of(file.schema_arrow))
            count += _rows_in(file, path)
    names = [name for name, _ in schemas[0]]
    held = len(names) * (_BUFFER_BYTES + 3 * 16 * BATCH_ROWS)
    read = partial(_read_parquet, paths[0].name)
    return Table(name, names, True, read, tuple(paths), Stamp.of(paths), count, held, _singles(schemas))


def _rows_in(file: Any, path: Path) -> int:
    rows = int(file.metadata.num_rows)
    if rows < 0:
        raise DataFileError(f"{path}: the file says that it has {rows} rows. Write it again.")
    return rows


def _read_parquet(first: str, path: Path, columns: list[str], numbers: Collection[str]) -> Iterator[Batch]:
    with _parquet_file(path) as file:
        _require(path, first, columns, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
            yield batch.select(columns)


def _open_feather(paths: list[Path], name: str) -> Table:
    """Open Feather (Arrow IPC) files, read one record batch at a time."""
    schemas = []
    for path in paths:
        with reading(path):
            reader = import_arrow("ipc").open_file(import_arrow().OSFile(str(path)))
            schemas.append(_types_of(reader.schema))
    names = [name for name, _ in schemas[0]]
    held = len(names) * 3 * 16 * BATCH_ROWS
    read = partial(_read_feather, paths[0].name)
    return Table(name, names, True, read, tuple(paths), Stamp.of(paths), None, held, _singles(schemas))


def _read_feather(first: str, path: Path, columns: list[str], numbers: Collection[str]) -> Iterator[Batch]:
    arrow, ipc = import_arrow(), import_arrow("ipc")
    schema = ipc.open_file(arrow.OSFile(str(path))).schema
    _require(path, first, columns, schema.names)
    options = ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
    reader = ipc.open_file(arrow.OSFile(str(path)), options=options)
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        batch.validate(full=True)  # a damaged offset would be followed out of the buffer
        yield batch.select(columns)


def _types_of(schema: Any) -> list[tuple[str, Any]]:
    return [(field.name, field.type) for field in schema]


def _singles(schemas: Sequence[Any]) -> frozenset[str]:
    single = import_arrow().float32()
    return frozenset(set.intersection(*({name for name, kind in schema if kind == single} for schema in schemas)))


def _require(path: Path, first: str, columns: Sequence[str], names: Sequence[str]) -> None:
    missing = sorted(set(columns) - set(names))
    if missing:
        raise DataFileError(f"{path}: the columns {missing} of {first} are not in this file.")


def _open_csv(paths: list[Path], name: str, missing: tuple[str, ...], decimal: str | None) -> Table:
    """Open CSV files, plain, ``.gz``, ``.bz2`` or ``.xz``, with or without a header."""
    dialect = read_dialect(paths[0])
    if not dialect.has_header:
        warn_caller(
            f"{name} has no header: its first line holds values. Its columns are called x0, x1, ...; write their names "
            f"into the first line to change that.",
            TableWarning,
        )
    if dialect.guessed and decimal is None:
        warn_caller(
            f"{name} has semicolons between values, so points in numbers such as 1.234 are read as marks between "
            f"thousands; if they come before decimals, set decimal='.' (--decimal . in the shell).",
            TableWarning,
        )
    sign = decimal or dialect.decimal
    held = 40 * _CSV_BLOCK_BYTES + _COLUMN_BYTES * len(dialect.names)
    held += 6 * (_csv_block(dialect, ()) - _CSV_BLOCK_BYTES)
    read = partial(_read_csv, paths[0].name, dialect, missing, sign)
    return Table(name, dialect.names, False, read, tuple(paths), Stamp.of(paths), None, held)


def _csv_block(dialect: Dialect, numbers: Collection[str]) -> int:
    wide = min(_LINES_WORTH_IT * dialect.line_bytes, _WIDE_BLOCK_BYTES)
    least = _NUMBER_BLOCK_BYTES if numbers else _CSV_BLOCK_BYTES
    return max(least, wide, _LINES_A_BLOCK * dialect.line_bytes)


def _read_csv(
    first: str,
    dialect: Dialect,
    missing: tuple[str, ...],
    decimal: str,
    path: Path,
    columns: list[str],
    numbers: Collection[str],
) -> Iterator[Batch]:
    arrow, reader = import_arrow(), import_arrow("csv")
    own = read_dialect(path)
    if own.names != dialect.names:
        raise DataFileError(f"{path}: its header is not that of {first}.")
    types = {name: arrow.float64() if name in numbers else arrow.string() for name in dialect.names}
    options = reader.ReadOptions(
        block_size=_csv_block(dialect, numbers),
        use_threads=False,
        encoding=dialect.encoding,
        skip_rows=own.skip,
        column_names=None if own.has_header else dialect.names,
    )
    parse = reader.ParseOptions(delimiter=own.delimiter, newlines_in_values=True)
    convert = reader.ConvertOptions(
        column_types=types,
        include_columns=columns,
        null_values=list(missing),
        strings_can_be_null=True,
        decimal_point=decimal,
    )
    try:
        with _open_compressed(path) as source:
            batches = reader.open_csv(source, read_options=options, parse_options=parse, convert_options=convert)
            for batch in batches:
                yield batch.replace_schema_metadata({DECIMAL: decimal})
    except arrow.ArrowException as error:
        _explain(path, own, [name for name in columns if name in numbers], missing, decimal, error)
        raise


def _open_compressed(path: Path) -> AbstractContextManager[Any]:
    """Give something pyarrow can read: an open file if it does not know the compression, else the path."""
    return lzma.open(path) if path.suffix == ".xz" else nullcontext(path)


def _explain(
    path: Path, dialect: Dialect, numbers: list[str], missing: tuple[str, ...], decimal: str, error: Exception
) -> None:
    """Raise for the row that pyarrow's message omits, by reading the lines one by one."""
    if "invalid UTF8" in str(error):
        raise DataFileError(
            f"{path}: {error}. Convert the file to UTF-8: iconv -f LATIN1 -t UTF-8 FILE > NEW, or the encoding that it "
            f"has."
        ) from error
    wanted = [dialect.names.index(name) for name in numbers]
    for number, line in enumerate(data_lines(path, dialect)):
        if len(line) != len(dialect.names):
            raise DataFileError(
                f"{path}, row {number}: {len(line)} columns, but the header has {len(dialect.names)}. Correct that "
                f"line: every row has as many values as the header."
            ) from error
        bad = next((j for j in wanted if line[j] not in missing and not is_number_text(line[j], decimal)), None)
        if bad is not None:
            raise DataFileError(
                f"{path}, row {number}, column {dialect.names[bad]!r}: {line[bad]!r:.80} is not a number. {_NO_NUMBERS}"
            ) from error


def is_number_text(text: str, decimal: str = ".") -> bool:
    """Return whether a text is a number with this decimal separator."""
    if decimal == ",":
        if "." in text:
            return False
        text = text.replace(",", ".")
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python reads 1_0 as 10


class ArrowRows(StreamRows):
    """Rows of numbers in a table: columns by name or number, one of them perhaps the target.

    Parameters
    ----------
    table : Table
    columns, target, dtype
        As for :func:`~nystrom.rows.files.open_rows`.
    """

    def __init__(
        self,
        table: Table,
        *,
        columns: Sequence[int | str] | None,
        target: int | str | None,
        dtype: DTypeLike,
    ) -> None:
        self.table = table
        self.name = table.name
        self.stamp = table.stamp
        self.column_names = table.names
        self.columns: Columns = choose_columns(table.names, columns, target, table.name)
        chosen = range(len(table.names)) if self.columns.features is None else self.columns.features
        self.features = [table.names[j] for j in chosen]
        self.feature_names = tuple(self.features)
        self.target_name = None if self.columns.target is None else table.names[self.columns.target]
        self.has_target = self.target_name is not None
        stored = np.float32 if set(self.features) <= table.singles else np.float64
        self.dtype = check_dtype(stored, dtype, table.name)
        self.held_bytes = 3 * BATCH_ROWS * (len(self.features) + 1) * 8 + len(self.features) * _BUFFER_BYTES
        if not table.typed:
            self.held_bytes += 4 * _NUMBER_BLOCK_BYTES
        self._target_kind = self._find_target_kind()

    def count_rows(self, block_rows: int | None) -> None:
        """Set the size; if the file does not state its number of rows, by a pass over its batches."""
        count = self.table.count
        if count is None:
            # Decoding all columns also finds words among the numbers of a text file.
            names = self.features[:1] if self.table.typed else self._wanted
            count = sum(batch.num_rows for batch in self._read(names))
        if count == 0:
            raise DataFileError(f"{self.name} holds no rows.")
        self.set_size((count, len(self.features)), 0, block_rows)

    def _find_target_kind(self) -> str:
        """Return "number", "boolean" or "text", from the target's type; for text, from its first value present."""
        if self.target_name is None or self.table.typed:
            return "number"
        path, place = self.table.paths[0], self.columns.target
        assert path is not None
        assert place is not None
        with reading(path):
            dialect = read_dialect(path)
            lines = data_lines(path, dialect)
            words = (line[place] for line in lines if len(line) == len(dialect.names))
            first = next((word for word in words if word not in MISSING), "0")
        if first.strip().lower() in _TRUTHS:
            return "boolean"
        return "number" if is_number_text(first, dialect.decimal) else "text"

    def _read(self, names: Sequence[str]) -> Iterator[Batch]:
        numbers = set(self._wanted)
        if self._target_kind != "number":
            numbers.discard(str(self.target_name))
        return self.table.batches(names, numbers=numbers)

    @property
    def _wanted(self) -> list[str]:
        return self.features if self.target_name is None else [*self.features, self.target_name]

    def _choice(self) -> str:
        return self.columns.identity

    def pieces(self) -> Iterator[Piece]:
        start = 0
        for batch in self._read(self._wanted):
            yield Piece(self._matrix(batch), self._target(batch, start))
            start += batch.num_rows

    def row_groups(self) -> list[tuple[Path, int, int]]:
        """Return the file, number and length of each row group of Parquet files, in order."""
        files = [(path, _parquet_file(path).metadata) for path in self.table.paths if path is not None]
        groups = [(path, g, file.row_group(g).num_rows) for path, file in files for g in range(file.num_row_groups)]
        return [group for group in groups if group[2]]

    def read_row_group(self, path: Path, number: int) -> Piece:
        """Return the rows of one row group."""
        with reading(path), _parquet_file(path) as file:
            batches = file.iter_batches(batch_size=BATCH_ROWS, row_groups=[number], columns=self._wanted)
            pieces = [Piece(self._matrix(batch), self._target(batch, 0)) for batch in batches]
        return next(rechunk(pieces, sum(piece.n_rows for piece in pieces)))

    def _matrix(self, batch: Batch) -> Array:
        X = np.empty((batch.num_rows, len(self.features)), self.dtype)
        for j, name in enumerate(self.features):
            X[:, j] = _numbers(batch.column(batch.schema.get_field_index(name)), name, self.name)
        return X

    def _target(self, batch: Batch, start: int) -> Array | None:
        if self.target_name is None:
            return None
        column = batch.column(batch.schema.get_field_index(self.target_name))
        arrow = import_arrow()
        types = arrow.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self._target_kind == "boolean":
            column = self._truths(column, start)
        if types.is_boolean(column.type):
            return np.array(column.to_pylist(), dtype=object if column.null_count else np.bool_)
        if is_text(column.type):
            return np.array(column.to_pylist(), dtype=object if column.null_count else np.str_)
        y = _numbers(column, self.target_name, self.name).astype(np.float64)
        if types.is_integer(column.type) and np.any(np.abs(y) >= EXACT):
            raise DataFileError(
                f"{self.name}: the target {self.target_name!r} holds whole numbers beyond 2**53, which differ from "
                f"their neighbours by less than double precision shows. Store them as text if they name classes."
            )
        return y

    def _truths(self, column: ArrowColumn, start: int) -> ArrowColumn:
        compute = import_arrow("compute")
        words = compute.ascii_lower(compute.utf8_trim_whitespace(column))
        codes = compute.index_in(words, import_arrow().array(_TRUTHS), skip_nulls=True)
        if codes.null_count > column.null_count:
            at = next(i for i, code in enumerate(codes.to_pylist()) if code is None and column[i].as_py() is not None)
            raise DataFileError(
                f"{self.name}, row {start + at}, column {self.target_name!r}: the target {column[at].as_py()!r} is "
                f"neither true nor false, as the first one is."
            )
        return compute.equal(codes, 0)

    def target(self) -> Array | None:
        if self.target_name is None:
            return None
        parts, start = [], 0
        for batch in self._read([self.target_name]):
            parts.append(self._target(batch, start))
            start += batch.num_rows
        return np.concatenate([part for part in parts if part is not None])


def is_text(column_type: Any) -> bool:
    """Return whether an Arrow type is text."""
    types = import_arrow().types
    views = getattr(types, "is_string_view", lambda _: False)
    return bool(types.is_string(column_type) or types.is_large_string(column_type) or views(column_type))


def _numbers(column: ArrowColumn, name: str, source: str) -> Array:
    arrow = import_arrow()
    types = arrow.types
    if not (types.is_floating(column.type) or types.is_integer(column.type) or types.is_boolean(column.type)):
        raise DataFileError(f"{source}: column {name!r} holds {column.type}, not numbers. {_NO_NUMBERS}")
    if not types.is_floating(column.type):
        column = column.cast(arrow.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def write_parquet_part(path: Path, values: Array, prefix: str = "f") -> None:
    """Write one block of rows as a Parquet file of its own."""
    import_arrow("parquet").write_table(_table(values, prefix), path, compression="none")


def read_parquet_part(path: Path) -> Array:
    """Return the rows that :func:`write_parquet_part` wrote."""
    table = import_arrow("parquet").read_table(path)
    return np.column_stack([column.to_numpy() for column in table.columns])


def count_parquet_rows(path: Path) -> int:
    """Return the rows of a Parquet file, by its footer."""
    return int(import_arrow("parquet").ParquetFile(path).metadata.num_rows)


def join_parquet(parts: Sequence[Path], path: Path) -> None:
    """Write one Parquet file with a row group for each part, in order."""
    parquet = import_arrow("parquet")
    tables = (parquet.read_table(part) for part in parts)
    first = next(tables)
    with parquet.ParquetWriter(path, first.schema) as writer:
        for table in chain((first,), tables):
            writer.write_table(table)


def _table(values: Array, prefix: str) -> Any:
    arrow = import_arrow()
    names = [f"{prefix}{j}" for j in range(values.shape[1])]
    return arrow.table([arrow.array(np.ascontiguousarray(column)) for column in values.T], names=names)
