"""One column of a table: what a pass learns about it, and how its values become numbers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from nystrom.exceptions import DataFileError
from nystrom.rows.arrow import ArrowColumn, import_arrow, is_number_text
from nystrom.tables.text import (
    as_days,
    as_labels,
    as_numbers,
    as_text,
    as_truths,
    as_wholes,
    date_hint,
    first_bad,
    full_date_formats,
    has_codes,
    number_hint,
)
from nystrom.types import Array

KINDS = ("number", "category", "boolean", "date", "drop")
# Code of a category or gap that did not occur in the fit.
UNSEEN = -1.0
# Maximum number of distinct values counted; beyond it, the rarest are dropped.
_MOST_VALUES = 20_000
# A note without a warning: row numbers may represent time.
COUNTS_ROWS = "counts the rows"
# Names of columns that hold identifiers of rows, customers and the like.
_IDENTIFIER = re.compile(r"(^|[\W_])(id|uuid|guid|key|index|serial)$|[a-z](ID|Id)$|^(ID|Id)$|^Unnamed: 0$", re.ASCII)
# Text that is distinct in every row, for at least this many rows, is an identifier.
_ALL_DIFFERENT = 20
# Maximum number of distinct values counted while a column may still be numeric.
_FEW_VALUES = 1_000
# Largest number accepted: squares of larger ones overflow when summed over many rows.
_MOST_SIZE = 1e150
# If rare values were dropped, the frequent ones must cover at least this share of the rows to get columns.
_LEAST_COVERED = 0.01
# Cycles of a date in days, and the minimum span of the dates to distinguish each from a trend.
_CYCLES = {"year": (365.2425, 365.0), "week": (7.0, 7.0), "day": (1.0, 1.0)}


@dataclass
class Moments:
    """Count, mean and sum of squared deviations of numbers; merged without loss."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Array) -> None:
        """Add finite numbers."""
        if values.size:
            mean = float(values.mean())
            deviations = values - mean
            squares = float(deviations @ deviations)
            self.merge(Moments(values.size, mean, squares, float(values.min()), float(values.max())))

    def merge(self, other: Moments) -> None:
        """Add the numbers of another object."""
        total = self.count + other.count
        if total:
            gap = other.mean - self.mean
            self.squares += other.squares + gap * gap * self.count * (other.count / total)
            self.mean += gap * other.count / total
            self.count = total
            self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclass
class Summary:
    """What a pass has learned about a column so far. ``open_kinds`` are the kinds that fit all its values."""

    name: str
    date_format: str | None = None
    open_kinds: tuple[str, ...] = ("number", "boolean", "date", "category")
    rows: int = 0
    missing: int = 0
    empty: int = 0
    moments: dict[str, Moments] = field(default_factory=lambda: {kind: Moments() for kind in ("number", "date")})
    counts: Counter[str] = field(default_factory=Counter)
    forgot: bool = False
    whole: bool = True
    timed: bool = False
    # The first value that is not a number, and how many numbers are in its batch and in later ones.
    stray: str | None = None
    numbers_after: int = 0
    # Whether each number is the previous one plus 1, and the last number.
    counting: bool = True
    last: float | None = None
    # For a target: labels are counted unchanged; whether whole numbers are exact.
    is_target: bool = False
    exact: bool = True
    # Whether dates that are not in date_format may be ISO 8601.
    iso_too: bool = False
    # Whether the numbers of every batch are distinct.
    distinct: bool = True
    # Formats in which all values so far are dates if they are neither in the given one nor in ISO 8601, with moments.
    guessed: dict[str, Moments] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = Counter(self.counts)  # files store it as a dict

    def update(self, column: ArrowColumn, source: str, decimal: str = ".") -> None:
        """Add the values of a column, as returned by :func:`column_of`; errors name the source."""
        values = column.drop_null()
        count = len(values)
        if "number" in self.open_kinds and not self._add_numbers(values, source, decimal):
            self.open_kinds = tuple(kind for kind in self.open_kinds if kind != "number")
        if "number" not in self.open_kinds:
            if "boolean" in self.open_kinds and not self._allows(values, as_truths):
                self.open_kinds = tuple(kind for kind in self.open_kinds if kind != "boolean")
            if "date" in self.open_kinds and not self._add_dates(values):
                self.open_kinds = tuple(kind for kind in self.open_kinds if kind != "date")
        if "category" in self.open_kinds:
            self._count(values)
        self.rows += len(column)
        self.missing += len(column) - count
        self.empty += len(column) - count

    def _allows(self, values: ArrowColumn, parse: Callable[[ArrowColumn], object]) -> bool:
        try:
            parse(values)
        except import_arrow().ArrowInvalid:
            return False
        return True

    def _add_numbers(self, values: ArrowColumn, source: str, decimal: str) -> bool:
        parse = partial(as_numbers, decimal=decimal)
        if self.is_target and "category" in self.open_kinds and has_codes(values):
            return False  # 007 and 7 are different classes
        try:
            numbers = parse(values)
        except import_arrow().ArrowInvalid:
            if self.stray is None:
                self.stray = str(values[first_bad(values, parse)])
            return False
        if self.is_target:
            self.exact = self.exact and self._allows(values, as_wholes)
        finite = np.isfinite(numbers)
        self.missing += int((~finite).sum())
        self._look(numbers[finite], source)
        self.moments["number"].add(numbers[finite])
        self.whole = self.whole and bool((numbers[finite] == np.rint(numbers[finite])).all())
        return True

    def _look(self, numbers: Array, source: str) -> None:
        """Refuse numbers that cannot be scaled; check whether they count the rows."""
        if not numbers.size:
            return
        largest = numbers[np.abs(numbers).argmax()]
        if abs(largest) > _MOST_SIZE:
            raise DataFileError(
                f"{source}: column {self.name!r} holds {largest:g}: numbers beyond {_MOST_SIZE:g} cannot be scaled. "
                f"Correct the value, or leave it empty."
            )
        before = numbers[0] - 1 if self.last is None else self.last
        self.counting = self.counting and bool((np.diff(numbers, prepend=before) == 1).all())
        self.last = float(numbers[-1])
        self.distinct = self.distinct and len(np.unique(numbers)) == len(numbers)

    def _add_dates(self, values: ArrowColumn) -> bool:
        if self.guessed:
            return self._narrow_formats(values)
        if self.moments["date"].count < self.rows - self.missing:
            return False  # earlier values were numbers
        parse = partial(as_days, date_format=self.date_format)
        if self.iso_too and not self.moments["date"].count and not self._allows(values, parse):
            self.date_format = None
        try:
            days = as_days(values, self.date_format)
        except import_arrow().ArrowInvalid:
            if self.moments["date"].count:
                return False
            self.guessed = {form: Moments() for form in full_date_formats(as_text(values))}
            return self._narrow_formats(values)
        self.moments["date"].add(days)
        self.timed = self.timed or bool((days != np.floor(days)).any())
        return True

    def _narrow_formats(self, values: ArrowColumn) -> bool:
        """Keep the guessed formats in which these values are dates too; return whether one is left."""
        for form in [*self.guessed]:
            try:
                days = as_days(values, form)
            except import_arrow().ArrowInvalid:
                del self.guessed[form]
                continue
            self.guessed[form].add(days)
            self.timed = self.timed or bool((days != np.floor(days)).any())
        return bool(self.guessed)

    def _count(self, values: ArrowColumn) -> None:
        maybe_numbers = "number" in self.open_kinds
        if maybe_numbers and len(self.counts) > _FEW_VALUES:
            self.forgot = True
            return
        found = import_arrow("compute").value_counts(as_labels(values) if self.is_target else as_text(values))
        for value, count in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
            if value is not None:
                self.counts[value] += count
                if self.stray is not None and is_number_text(value):
                    self.numbers_after += count
        if len(self.counts) > _MOST_VALUES:
            self.counts = Counter(dict(self.counts.most_common(_MOST_VALUES // 2)))
            self.forgot = True

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def number_hint(self) -> str:
        """Why its text may be meant as numbers; empty if there is no sign of it."""
        numbers = self.moments["number"].count + self.numbers_after
        return number_hint(self.counts, self.stray, numbers, self.present)

    def identifies_rows(self, max_categories: int) -> bool:
        """Whether its values identify single rows and not groups of rows."""
        if not self.forgot:
            return len(self.counts) > self.present / 2
        covered = sum(count for _, count in self.counts.most_common(max_categories))
        return covered < _LEAST_COVERED * self.present

    @property
    def variety(self) -> str:
        """The number of distinct values, if there are too many."""
        distinct = f"more than {_MOST_VALUES:,}" if self.forgot else f"{len(self.counts):,}"
        return f"nearly every value is different ({distinct} of {self.present:,})"

    @property
    def is_identifier(self) -> bool:
        """Whether the column holds identifiers, judged by its name and by distinct numbers."""
        counted = self.counts and not self.forgot
        different = len(self.counts) == self.present if counted else self.distinct
        return self.whole and different and self.present > 2 and _IDENTIFIER.search(self.name.strip()) is not None

    @property
    def counts_rows(self) -> bool:
        """Whether the column counts the rows consecutively."""
        return self.counting and self.whole and self.missing == 0 and self.moments["number"].count == self.rows > 2


@dataclass(frozen=True)
class Column:
    """A learned column and its encoding.

    Attributes
    ----------
    name : str
    kind : str
        "number", "category", "boolean", "date", or "left out".
    mean, scale : float
        For numbers and dates (in days): the encoded value is ``(x − mean) / scale``.
    categories : tuple of str
        Categories with their own column or code, most frequent first.
    other : bool
        Whether the other categories share a column or a code.
    missing : bool
        Whether gaps have a column or a code.
    cycles : tuple of str
        For a date: "year", "week" and "day", each encoded as sine and cosine.
    date_format : str or None
        Format of dates in text; None is ISO 8601.
    note : str
        Why the column was left out, or what is unusual about it.
    codes : bool
        For categories: whether they are encoded as numbers in one column. The first category is 0; the code for the
        other categories and the code for gaps follow. Values not seen in the fit are −1.
    """

    name: str
    kind: str
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()
    other: bool = False
    missing: bool = False
    cycles: tuple[str, ...] = ()
    date_format: str | None = None
    note: str = ""
    codes: bool = False

    def __post_init__(self) -> None:
        """Check the types: columns also come from files."""
        good = (
            all(isinstance(value, str) for value in (self.name, self.kind, self.note, *self.categories))
            and isinstance(self.categories, tuple)
            and self.kind in (*KINDS[:-1], "left out")
            and all(isinstance(value, (int, float)) and math.isfinite(value) for value in (self.mean, self.scale))
            and self.scale > 0
            and self.codes in (False, self.kind == "category")
            and set(self.cycles) <= set(_CYCLES)
            and (self.date_format is None or isinstance(self.date_format, str))
        )
        if not good:
            raise ValueError(f"the column {self.name!r} has an invalid description")

    @property
    def features(self) -> list[str]:
        """The names of its encoded columns."""
        if self.kind == "left out":
            return []
        if self.codes:
            return [self.name]
        if self.kind == "category":
            names = [f"{self.name}_{category}" for category in self.categories]
            names += [f"{self.name}_other"] * self.other
        else:
            names = [self.name, *(f"{self.name}_{cycle}_{wave}" for cycle in self.cycles for wave in ("sin", "cos"))]
        return [*names, *[f"{self.name}_missing"] * self.missing]

    def encode(self, column: ArrowColumn, out: Array, source: str, start: int, decimal: str = ".") -> None:
        """Write the values of a column, as returned by :func:`column_of`, into ``out``; ``start`` is the first row."""
        if self.kind == "category":
            self._encode_category(as_text(column), out)
            return
        parsers: dict[str, Callable[[ArrowColumn], Array]] = {
            "number": partial(as_numbers, decimal=decimal),
            "boolean": as_truths,
            "date": partial(as_days, date_format=self.date_format),
        }
        parse = parsers[self.kind]
        try:
            values = parse(column)
        except import_arrow().ArrowInvalid:
            at = first_bad(column, parse)
            what = {"number": "a number", "boolean": "true or false", "date": "a date"}[self.kind]
            raise DataFileError(
                f"{source}, row {start + at}, column {self.name!r}: {str(column[at])!r} is not {what}, as all values "
                f"were when the encoder was fitted. Correct the value, or leave it empty."
            ) from None
        gaps = ~np.isfinite(values)
        scaled = (values - self.mean) / self.scale
        scaled[gaps] = 0.0
        out[:, 0] = scaled
        for j, cycle in enumerate(self.cycles):
            angle = values * (2 * np.pi / _CYCLES[cycle][0])
            angle[gaps] = 0.0
            out[:, 1 + 2 * j], out[:, 2 + 2 * j] = np.sin(angle), np.cos(angle)
            out[gaps, 1 + 2 * j : 3 + 2 * j] = 0.0
        if self.missing:
            out[:, -1] = gaps

    def _encode_category(self, texts: ArrowColumn, out: Array) -> None:
        """Write one-hot columns, or codes in their order: one per category, then the others, then the gaps."""
        arrow, compute = import_arrow(), import_arrow("compute")
        codes = compute.index_in(texts, value_set=arrow.array(self.categories, arrow.string()), skip_nulls=True)
        gaps = np.asarray(texts.is_null().to_numpy(zero_copy_only=False))
        known = np.asarray(codes.is_valid().to_numpy(zero_copy_only=False)) & ~gaps
        positions = np.asarray(codes.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.intp)
        if self.codes:
            rest = float(len(self.categories))
            unknown = np.where(gaps, rest + 1 if self.missing else UNSEEN, rest if self.other else UNSEEN)
            out[:, 0] = np.where(known, positions, unknown)
            return
        out[:] = 0.0
        out[np.flatnonzero(known), positions[known]] = 1.0
        if self.other:
            out[:, len(self.categories)] = ~known & ~gaps
        if self.missing:
            out[:, -1] = gaps


def settle(summary: Summary, forced: str | None, max_categories: int, *, codes: bool = False) -> Column:
    """Return the encoding of a column after a complete pass; ``codes`` applies to categories."""
    kind = forced or summary.open_kinds[0]
    if kind == "date" and len(summary.guessed) > 1 and forced is None:
        kind = "category"  # day and month, or month and day: the note says how to tell
    missing = summary.missing > 0
    if kind == "drop":
        return Column(summary.name, "left out", note="dropped as asked")
    if summary.present == 0:
        return Column(summary.name, "left out", note="every value is missing")
    if forced is None and not missing and (len(summary.counts) == 1 and not summary.forgot):
        return Column(summary.name, "left out", note="every value is the same")
    if kind == "category":
        return _settle_category(summary, max_categories, forced=forced is not None, codes=codes)
    if kind == "boolean":
        return Column(summary.name, "boolean", missing=missing)
    moments = summary.moments[kind]
    scale = moments.deviation or 1.0
    if kind == "number":
        if moments.low == moments.high and not missing:
            return Column(summary.name, "left out", note="every value is the same in double precision")
        if summary.counts_rows and not summary.name.strip() and forced is None:
            return Column(summary.name, "left out", note="it has no name and counts the rows")
        if summary.is_identifier and forced is None:
            keep = f"types={{{summary.name!r}: 'number'}} keeps it"
            note = f"its name and its values, all different, say that it is an identifier ({keep})"
            return Column(summary.name, "left out", note=note)
        note = COUNTS_ROWS if summary.counts_rows else ""
        return Column(summary.name, "number", moments.mean, scale, missing=missing, note=note)
    date_format = summary.date_format
    if summary.guessed:
        date_format, moments = next(iter(summary.guessed.items()))
        scale = moments.deviation or 1.0
    span = moments.high - moments.low
    cycles = tuple(
        cycle for cycle, (_, least) in _CYCLES.items() if span >= least and (cycle != "day" or summary.timed)
    )
    return Column(summary.name, "date", moments.mean, scale, missing=missing, cycles=cycles, date_format=date_format)


def _settle_category(summary: Summary, max_categories: int, *, forced: bool, codes: bool) -> Column:
    distinct = len(summary.counts)
    note = "" if forced else summary.number_hint or date_hint(summary.counts)
    ordered = sorted(summary.counts.items(), key=lambda item: (-item[1], item[0]))
    # Codes need one column, whatever their number.
    kept = tuple(value for value, _ in ordered[: None if codes else max_categories])
    all_different = not (summary.forgot or note) and distinct == summary.present >= _ALL_DIFFERENT
    if not forced and (all_different or (distinct > max_categories and summary.identifies_rows(max_categories))):
        note = f"{note and note + '; '}{summary.variety}"
        return Column(summary.name, "left out", note=note)
    other, missing = distinct > len(kept) or (codes and summary.forgot), summary.missing > 0
    return Column(summary.name, "category", categories=kept, other=other, missing=missing, note=note, codes=codes)
