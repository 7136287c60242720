"""What a column of text was perhaps meant to be: numbers or dates, written in a way that must be said."""

from __future__ import annotations

import re
from collections import Counter

from nystrom.preprocessing.parse import guess_date_format

# Frequent values of a text column that are looked at.
_LOOKED_AT = 200
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
        return f"looks like numbers with a decimal comma, as in {texts[0]!r} (decimal=','; --decimal , in the shell)"
    if _share(texts, _DECORATED):
        return f"looks like numbers, but written as {texts[0]!r} (write them plainly: 1234.5)"
    return ""


def date_hint(counts: Counter[str]) -> str:
    """Return in which form the values of a column of text are dates; empty if in none that is known."""
    form = guess_date_format([text for text, _ in counts.most_common(_LOOKED_AT)])
    if form is None:
        return ""
    return f"looks like dates (say how they are written: date_format={form!r}; --date-format '{form}' in the shell)"


def _share(texts: list[str], form: re.Pattern[str]) -> bool:
    """Return whether most of the texts that are no plain numbers have a form, and there are several of them."""
    return len(texts) > 1 and sum(form.fullmatch(text) is not None for text in texts) >= _MOST * len(texts)
