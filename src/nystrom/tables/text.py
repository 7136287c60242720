"""Arrow columns as numbers, days, booleans and labels, and hints at what a text column may be meant to hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np

from nystrom.rows.arrow import DECIMAL, EXACT, ArrowColumn, Batch, import_arrow, is_text
from nystrom.types import Array

_CURRENCIES = "$€£¥"
# Thousands separators by decimal sign.
_GROUPS = {".": ",'’ \u00a0\u202f", ",": ".'’ \u00a0\u202f"}
_NUMBER = (
    rf"^[{_CURRENCIES}]?\s*[+-]?\s*[{_CURRENCIES}]?"
    r"(\d{{1,3}}([{group}]\d{{3}})+|\d*)({decimal}\d*)?([eE][+-]?\d+)?"
    rf"\s*[{_CURRENCIES}%]?$"
)
_ZONE = r"(?i)(z|[+-]\d\d:?\d\d)\s*$"
_MICROSECONDS_A_DAY = 86_400_000_000
_TRUTHS = ("true", "false")


# Number of frequent values of a text column that are examined.
_LOOKED_AT = 200
# How many of these are tried individually as dates.
_TRIED_AS_DATES = 50
# Minimum share of values in a format for it to be mentioned.
_MOST = 0.9
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
# A currency, a percent sign, or spaces, commas and apostrophes between groups of digits.
_DECORATED = re.compile(r"[^\w\s+-]?\s*[+-]?\d{1,3}(?:[ ,'’\u00a0\u202f]?\d{3})*(?:[.,]\d+)?\s*[^\w\s]?")


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


def plain(column: ArrowColumn) -> ArrowColumn:
    """Return a column without dictionary, and text as ``string``."""
    arrow = import_arrow()
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(arrow.string()) if is_text(column.type) and column.type != arrow.string() else column


def column_of(batch: Batch, name: str) -> ArrowColumn:
    """Return a column of a record batch without dictionary, text as ``string``."""
    return plain(batch.column(batch.schema.get_field_index(name)))


def decimal_of(batch: Batch) -> str:
    """Return the decimal sign in the text of a record batch."""
    return ((batch.schema.metadata or {}).get(DECIMAL.encode()) or b".").decode()


def as_numbers(column: ArrowColumn, decimal: str = ".") -> Array:
    """Return a column as float64, with NaN for gaps; text that is not a number raises ``ArrowInvalid``.

    Numbers in text may have thousands separators and a currency, the same in all values, or all have a percent sign.
    """
    arrow = import_arrow()
    types = arrow.types
    if is_text(column.type):
        return _text_numbers(column, decimal)
    if types.is_duration(column.type):
        column = column.cast(arrow.duration("us"), safe=False).cast(arrow.int64())
        return _floats(column) / 1e6
    if types.is_time(column.type):
        column = column.cast(arrow.time64("us"), safe=False).cast(arrow.int64())
        return _floats(column) / 1e6
    if types.is_timestamp(column.type) or types.is_date(column.type):
        raise arrow.ArrowInvalid("a date is not a number")
    if types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    return _floats(column)


def _text_numbers(column: ArrowColumn, decimal: str) -> Array:
    arrow, compute = import_arrow(), import_arrow("compute")
    column = compute.utf8_trim_whitespace(column)
    if decimal == ".":
        with suppress(arrow.ArrowInvalid):
            return _floats(column)
    number = _NUMBER.format(group=_GROUPS[decimal], decimal=re.escape(decimal))
    dressed = compute.match_substring_regex(column, number)
    if (
        decimal == ","
        and compute.any(compute.and_(compute.invert(dressed), compute.match_substring(column, "."))).as_py()
    ):
        raise arrow.ArrowInvalid("a point where a comma comes before decimals")
    percent = compute.ends_with(column, "%")
    if compute.any(percent).as_py() and not compute.all(percent).as_py():
        raise arrow.ArrowInvalid("some values are per cent and others are not")
    if sum(compute.any(compute.match_substring(column, sign)).as_py() or False for sign in _CURRENCIES) > 1:
        raise arrow.ArrowInvalid("several currencies")
    bare = compute.replace_substring_regex(column, f"[{_CURRENCIES}%\\s{_GROUPS[decimal]}]", "")
    bare = compute.replace_substring(bare, decimal, ".") if decimal != "." else bare
    values = _floats(compute.if_else(dressed, bare, column))
    return values / 100 if compute.any(percent).as_py() else values


def _floats(column: ArrowColumn) -> Array:
    column = column.cast(import_arrow().float64(), safe=False)
    return np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def as_truths(column: ArrowColumn) -> Array:
    """Return booleans, or the words true and false, as 1 and 0, with NaN for gaps; others raise ``ArrowInvalid``."""
    arrow, compute = import_arrow(), import_arrow("compute")
    if not is_text(column.type):
        values = as_numbers(column)
        if np.any((values != 0) & (values != 1) & ~np.isnan(values)):
            raise arrow.ArrowInvalid("a number is neither 0 nor 1")
        return values
    codes = compute.index_in(compute.ascii_lower(compute.utf8_trim_whitespace(column)), arrow.array(_TRUTHS[::-1]))
    if codes.null_count > column.null_count:
        raise arrow.ArrowInvalid("a word is neither true nor false")
    return _floats(codes)


def as_days(column: ArrowColumn, date_format: str | None = None) -> Array:
    """Return dates as days since 1970-01-01 (UTC where they have a zone), with NaN for gaps.

    Text is read as ISO 8601, or in ``date_format``; other text raises ``ArrowInvalid``.
    """
    arrow, compute = import_arrow(), import_arrow("compute")
    if is_text(column.type):
        column = compute.utf8_trim_whitespace(column)
        if date_format is not None:
            column = compute.strptime(column, format=date_format, unit="us")
        else:
            column = _as_times(column)
    elif column.null_count == len(column):
        return np.full(len(column), np.nan)
    elif not arrow.types.is_timestamp(column.type) and not arrow.types.is_date(column.type):
        raise arrow.ArrowInvalid("a number is not a date")
    elif arrow.types.is_date(column.type):
        column = column.cast(arrow.timestamp("ms")).cast(arrow.timestamp("us"))
    zone = column.type.tz if arrow.types.is_timestamp(column.type) else None
    column = column.cast(arrow.timestamp("us", zone), safe=False).cast(arrow.int64())
    return _floats(column) / _MICROSECONDS_A_DAY


def _as_times(column: ArrowColumn) -> ArrowColumn:
    """Return ISO 8601 text as timestamps; those without a zone count as UTC if others have one."""
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
    if arrow.types.is_boolean(column.type):
        return compute.if_else(column, "True", "False")
    if arrow.types.is_floating(column.type):
        column = compute.if_else(compute.is_nan(column), None, column)
        with suppress(arrow.ArrowInvalid):  # if some are not whole, all keep their point
            column = column.cast(arrow.int64())
    return column.cast(arrow.string())


def as_labels(column: ArrowColumn) -> ArrowColumn:
    """Return a column as Arrow strings, distinct for distinct values: text unchanged, others by :func:`as_text`."""
    return column if is_text(column.type) else as_text(column)


def has_codes(column: ArrowColumn) -> bool:
    """Return whether some text is digits after a zero, such as 007: a code, which a number would shorten."""
    compute = import_arrow("compute")
    return is_text(column.type) and bool(compute.any(compute.match_substring_regex(column, r"^\s*0\d+\s*$")).as_py())


def as_wholes(column: ArrowColumn) -> tuple[Array, Array]:
    """Return whole numbers exactly, as int64 or uint64, and a mask of gaps; other values raise ``ArrowInvalid``."""
    arrow, compute = import_arrow(), import_arrow("compute")
    if is_text(column.type):
        trimmed = compute.utf8_trim_whitespace(column)
        with suppress(arrow.ArrowInvalid):
            column = trimmed.cast(arrow.int64())
    if not arrow.types.is_integer(column.type):
        values = as_numbers(column)
        gaps = ~np.isfinite(values)
        if np.any(np.abs(values[~gaps]) > EXACT) or np.any(values[~gaps] != np.rint(values[~gaps])):
            raise arrow.ArrowInvalid("a number is not whole, or beyond 2**53")
        return np.where(gaps, 0, values).astype(np.int64), gaps
    gaps = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    kind = np.uint64 if column.type == arrow.uint64() else np.int64
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=kind), gaps


_LEAST_DATE_DIGITS = 4
_DATE_FORMATS = tuple(
    date + time
    for date in ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
                 "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y")
    for time in ("", " %H:%M", " %H:%M:%S")
)  # fmt: skip


def full_date_formats(column: ArrowColumn) -> list[str]:
    """Return the known formats, with years of four digits, in which the first values of a text column are dates.

    Two digits are no proof of a year: 1.2.11 may be a version.
    """
    if not is_text(column.type):
        return []
    texts = [text.strip() for text in column[:_LOOKED_AT].to_pylist()]
    return [form for form in _DATE_FORMATS if "%Y" in form and texts and _all_dates(texts, form)]


def _all_dates(texts: Sequence[str], form: str) -> bool:
    try:
        for text in texts:
            datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def guess_date_format(texts: Sequence[str]) -> str | None:
    """Return the first known format in which all texts are dates, or None.

    Examples
    --------
    >>> guess_date_format(["31.1.2020", "1.2.2020"]), guess_date_format(["31.1.2020", "soon"])
    ('%d.%m.%Y', None)
    """
    return next((form for form in _DATE_FORMATS if texts and _all_dates(texts, form)), None)


def date_form(text: str) -> str | None:
    """Return the first known date format of a text, or None.

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


def number_hint(counts: Counter[str], stray: str | None, numbers: int, present: int) -> str:
    """Return why a text column may be meant as numbers, and what to do; empty if there is no sign of it.

    Parameters
    ----------
    counts : Counter
        Its values.
    stray : str or None
        The first value that is not a number.
    numbers, present : int
        The number of numeric values, and of all values that are present.
    """
    if stray is not None and present > numbers >= _MOST * present:
        return (
            f"read as text because of {stray!r}, while {numbers:,} of its {present:,} values are numbers (correct it, "
            f"or name it in missing_values; --missing in the shell)"
        )
    texts = [text for text, _ in counts.most_common(_LOOKED_AT)]
    if _share(texts, _DECIMAL_COMMA) and not _share(texts, _THOUSANDS):
        shown = next(text for text in texts if _DECIMAL_COMMA.fullmatch(text))
        return f"looks like numbers with a decimal comma, as in {shown!r} (decimal=','; --decimal , in the shell)"
    if _share(texts, _DECORATED):
        shown = next(text for text in texts if _DECORATED.fullmatch(text))
        return f"looks like numbers, but written as {shown!r} (write them plainly: 1234.5)"
    return ""


def date_hint(counts: Counter[str]) -> str:
    """Return the date format of a text column, or why its values cannot be read as dates; empty if not dates."""
    texts = [text for text, _ in counts.most_common(_LOOKED_AT)]
    form = guess_date_format(texts)
    if form is not None:
        return f"looks like dates (give their format: date_format={form!r}; --date-format '{form}' in the shell)"
    return _nearly_dates(texts[:_TRIED_AS_DATES])


def _nearly_dates(texts: list[str]) -> str:
    """Return why texts that are mostly dates, or dates in several formats, were not read as dates."""
    shown: dict[str, str] = {}
    strays = []
    for text in texts:
        form = date_form(text)
        if form is None:
            strays.append(text)
        else:
            shown.setdefault(form, text)
    if not shown or len(texts) - len(strays) < max(_MOST * len(texts), 2):
        return ""
    if strays:
        return (
            f"read as text because of {strays[0]!r}, while nearly all of its values are dates (correct it, or name it "
            f"in missing_values; --missing in the shell)"
        )
    if len(shown) == 1:
        return ""  # in a format that the parameters exclude
    one, other = [*shown.values()][:2]
    return f"looks like dates in several forms, such as {one!r} and {other!r} (write all in one)"


def _share(texts: list[str], form: re.Pattern[str]) -> bool:
    """Return whether there are several texts and most of them match a pattern."""
    return len(texts) > 1 and sum(form.fullmatch(text) is not None for text in texts) >= _MOST * len(texts)
