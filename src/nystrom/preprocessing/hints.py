"""What a column of text was perhaps meant to be: numbers or dates, written in a way that must be said."""

from __future__ import annotations

import re
from collections import Counter

from nystrom.preprocessing.parse import date_form, guess_date_format

# Frequent values of a text column that are looked at.
_LOOKED_AT = 200
# Of these, the ones that are tried as dates one by one.
_TRIED_AS_DATES = 50
# The share of the values that must have a form for it to be pointed out.
_MOST = 0.9
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
# A currency, a sign for per cent, or spaces, commas and apostrophes between groups of digits.
_DECORATED = re.compile(r"[^\w\s+-]?\s*[+-]?\d{1,3}(?:[ ,'’\u00a0\u202f]?\d{3})*(?:[.,]\d+)?\s*[^\w\s]?")


def number_hint(counts: Counter[str], stray: str | None, numbers: int, present: int) -> str:
    """Return why a column of text was perhaps meant to be numbers, and what to do; empty if nothing says so.

    Parameters
    ----------
    counts : Counter
        Its values.
    stray : str or None
        The first value that is no number.
    numbers, present : int
        How many of its values are numbers, and how many there are.
    """
    if stray is not None and present > numbers >= _MOST * present:
        return (
            f"taken as text because of {stray!r}, while {numbers:,} of its {present:,} values are numbers (mend it, or "
            f"name it in missing_values; --missing in the shell)"
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
    """Return in which form the values of a column of text are dates, or what keeps them from it; empty if not dates."""
    texts = [text for text, _ in counts.most_common(_LOOKED_AT)]
    form = guess_date_format(texts)
    if form is not None:
        return f"looks like dates (say how they are written: date_format={form!r}; --date-format '{form}' in the shell)"
    return _nearly_dates(texts[:_TRIED_AS_DATES])


def _nearly_dates(texts: list[str]) -> str:
    """Return why texts that are dates but for some, or in several forms, were not read as dates."""
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
            f"taken as text because of {strays[0]!r}, while nearly all of its values are dates (mend it, or name it in "
            f"missing_values; --missing in the shell)"
        )
    if len(shown) == 1:
        return ""  # of a form that the reader was told not to expect
    one, other = [*shown.values()][:2]
    return f"looks like dates in several forms, such as {one!r} and {other!r} (write all in one)"


def _share(texts: list[str], form: re.Pattern[str]) -> bool:
    """Return whether most of the texts that are no plain numbers have a form, and there are several of them."""
    return len(texts) > 1 and sum(form.fullmatch(text) is not None for text in texts) >= _MOST * len(texts)
