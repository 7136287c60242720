"""Arrow columns as numbers, days and text; a column of text from a CSV file is parsed on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np

from nystrom.rows.arrow import ArrowColumn, Batch, import_arrow
from nystrom.types import Array

# The key under which a record batch says which sign stands before decimals in its text.
DECIMAL = "decimal"
_DECIMAL_COMMA = r"^(\s*[+-]?\d*),(\d+(?:[eE][+-]?\d+)?\s*)$"
_ZONE = r"(?i)(z|[+-]\d\d:?\d\d)\s*$"
_MICROSECONDS_A_DAY = 86_400_000_000
_TRUTHS = ("true", "false")


def kind_of(column_type: Any, name: str, source: str) -> str:
    """Return what a column of an Arrow type holds: "text", "number", "boolean" or "date"; or raise."""
    types = import_arrow().types
    if types.is_dictionary(column_type):
        return kind_of(column_type.value_type, name, source)
    if is_text(column_type):
        return "text"
    if types.is_boolean(column_type):
        return "boolean"
    if types.is_timestamp(column_type) or types.is_date(column_type):
        return "date"
    numeric = types.is_integer, types.is_floating, types.is_decimal, types.is_duration, types.is_time, types.is_null
    if any(test(column_type) for test in numeric):
        return "number"
    raise TypeError(
        f"column {name!r} of {source} holds {column_type}; a table may hold numbers, text, categories, booleans, dates "
        f"and gaps. Drop the column with drop=[{name!r}], or turn it into some of these."
    )


def is_text(column_type: Any) -> bool:
    """Return whether an Arrow type is text."""
    types = import_arrow().types
    views = getattr(types, "is_string_view", lambda _: False)
    return bool(types.is_string(column_type) or types.is_large_string(column_type) or views(column_type))


def plain(column: ArrowColumn) -> ArrowColumn:
    """Return a column without dictionary, and text as ``string``."""
    arrow = import_arrow()
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(arrow.string()) if is_text(column.type) and column.type != arrow.string() else column


def column_of(batch: Batch, name: str) -> ArrowColumn:
    """Return a column of a record batch without dictionary, text as ``string``, decimal commas as points."""
    column = plain(batch.column(batch.schema.get_field_index(name)))
    about = batch.schema.metadata or {}
    if about.get(DECIMAL.encode()) == b"," and is_text(column.type):
        column = import_arrow("compute").replace_substring_regex(column, _DECIMAL_COMMA, r"\1.\2")
    return column


def as_numbers(column: ArrowColumn) -> Array:
    """Return a column as float64, with NaN for gaps; text that is no number raises ``ArrowInvalid``."""
    arrow, compute = import_arrow(), import_arrow("compute")
    types = arrow.types
    if is_text(column.type):
        column = compute.utf8_trim_whitespace(column)
    if types.is_duration(column.type):
        column = column.cast(arrow.duration("us"), safe=False).cast(arrow.int64())
        return _floats(column) / 1e6
    if types.is_time(column.type):
        column = column.cast(arrow.time64("us"), safe=False).cast(arrow.int64())
        return _floats(column) / 1e6
    if types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    return _floats(column)


def _floats(column: ArrowColumn) -> Array:
    column = column.cast(import_arrow().float64(), safe=False)
    return np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def as_truths(column: ArrowColumn) -> Array:
    """Return booleans, or the words true and false, as 1 and 0, with NaN for gaps; others raise ``ArrowInvalid``."""
    arrow, compute = import_arrow(), import_arrow("compute")
    if not is_text(column.type):
        return as_numbers(column)
    codes = compute.index_in(compute.ascii_lower(compute.utf8_trim_whitespace(column)), arrow.array(_TRUTHS[::-1]))
    if codes.null_count > column.null_count:
        raise arrow.ArrowInvalid("a word is neither true nor false")
    return _floats(codes)


def as_days(column: ArrowColumn, date_format: str | None = None) -> Array:
    """Return dates as days since 1970-01-01 (UTC where they have a zone), with NaN for gaps.

    Text is read as ISO 8601, or as ``date_format`` says; other text raises ``ArrowInvalid``.
    """
    arrow, compute = import_arrow(), import_arrow("compute")
    if is_text(column.type):
        column = compute.utf8_trim_whitespace(column)
        if date_format is not None:
            column = compute.strptime(column, format=date_format, unit="us")
        else:
            column = _as_times(column)
    elif arrow.types.is_date(column.type):
        column = column.cast(arrow.timestamp("ms")).cast(arrow.timestamp("us"))
    zone = column.type.tz if arrow.types.is_timestamp(column.type) else None
    column = column.cast(arrow.timestamp("us", zone), safe=False).cast(arrow.int64())
    return _floats(column) / _MICROSECONDS_A_DAY


def _as_times(column: ArrowColumn) -> ArrowColumn:
    """Return ISO 8601 text as timestamps; those without a zone count as UTC where others have one."""
    arrow, compute = import_arrow(), import_arrow("compute")
    zoned = compute.match_substring_regex(column, _ZONE)
    if not compute.any(zoned).as_py():
        return column.cast(arrow.timestamp("us"))
    plain_times = compute.if_else(zoned, None, column).cast(arrow.timestamp("us"))
    zone_times = compute.if_else(zoned, column, None).cast(arrow.timestamp("us", "UTC"))
    return compute.coalesce(zone_times, plain_times.cast(zone_times.type))


def as_text(column: ArrowColumn) -> ArrowColumn:
    """Return a column as Arrow strings; whole floats lose the point, so that 3.0 and 3 are one category."""
    arrow, compute = import_arrow(), import_arrow("compute")
    if is_text(column.type):
        return compute.replace_substring_regex(compute.utf8_trim_whitespace(column), r"^(-?\d+)\.0+$", r"\1")
    if arrow.types.is_floating(column.type):
        column = compute.if_else(compute.is_nan(column), None, column)
        with suppress(arrow.ArrowInvalid):  # where some are not whole, all keep their point
            column = column.cast(arrow.int64())
    return column.cast(arrow.string())


_LEAST_DATE_DIGITS = 4
_DATE_FORMATS = tuple(
    date + time
    for date in ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
                 "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y")
    for time in ("", " %H:%M", " %H:%M:%S")
)  # fmt: skip


def guess_date_format(texts: Sequence[str]) -> str | None:
    """Return the first known format in which all texts are dates, or None.

    Examples
    --------
    >>> guess_date_format(["31.1.2020", "1.2.2020"]), guess_date_format(["31.1.2020", "soon"])
    ('%d.%m.%Y', None)
    """
    for form in _DATE_FORMATS if texts else ():
        with suppress(ValueError):
            for text in texts:
                datetime.strptime(text, form)
            return form
    return None


def date_form(text: str) -> str | None:
    """Return the first known form in which a text is a date, or None.

    Examples
    --------
    >>> date_form("2020-01-31"), date_form("31.1.2020"), date_form("0000-00-00")
    ('ISO 8601', '%d.%m.%Y', None)
    """
    if sum(map(str.isdigit, text)) < _LEAST_DATE_DIGITS:
        return None
    with suppress(ValueError):
        datetime.fromisoformat(text)
        return "ISO 8601"
    return guess_date_format([text])


def is_number_text(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def first_bad(column: ArrowColumn, parse: Callable[[ArrowColumn], Array]) -> int:
    """Return the position of the first value that ``parse`` refuses; the column is known to have one."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(column[low:middle])
            low = middle
        except import_arrow().ArrowInvalid:
            high = middle
    return low
