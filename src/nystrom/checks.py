"""Checks of parameters: each returns the value in its plain type, or raises an error that names the argument."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection
from contextlib import suppress
from typing import TypeAlias, TypeGuard

import numpy as np

from nystrom.types import Array


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether the value is an integer; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether the value is a real number; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def check_flag(value: object, name: str) -> bool:
    """Return True or False; 1 and 0 are accepted.

    Examples
    --------
    >>> check_flag(np.True_, "fit_intercept")
    True
    """
    if isinstance(value, (bool, np.bool_)) or (is_whole(value) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{name} must be True or False; got {value!r}.")


def check_degree(value: object) -> int:
    """Return the degree of a polynomial; a float is accepted if it is an integer."""
    if not is_number(value) or not 1 <= value < math.inf or value % 1:
        raise ValueError(f"degree must be a whole number, 1 or more; got {value!r}.")
    return int(value)


def check_number(value: object, name: str) -> float:
    """Return a finite number."""
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number; got {value!r}.")
    return float(value)


def check_count(value: object, name: str, *, least: int = 1, advice: str = "") -> int:
    """Return an integer of at least ``least``.

    Examples
    --------
    >>> check_count(3, "n_init")
    3
    """
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.{advice and ' ' + advice}")
    return int(value)


def check_optional_count(value: object, name: str) -> int | None:
    """Return an integer of at least 1, or None."""
    if value is None:
        return None
    if not is_whole(value) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, or None; got {value!r}.")
    return int(value)


def check_choice(value: object, name: str, allowed: Collection[str]) -> str:
    """Return one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {tuple(allowed)}; got {value!r}.")
    return value


def check_tolerance(value: object, name: str) -> float:
    """Return a finite number that is not negative."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}.")
    return float(value)


def check_share(value: object, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, neither included, such as 0.9; got {value!r}.")
    return float(value)


def check_positive(value: object, name: str) -> float:
    """Return a positive finite number."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number; got {value!r}.")
    return float(value)


def check_seconds(value: object, name: str) -> float | None:
    """Return a time in seconds, from a positive number or a text such as "30s", "5min" or "2h"; None stays None.

    Examples
    --------
    >>> check_seconds("1.5min", "max_time"), check_seconds(30, "max_time")
    (90.0, 30.0)
    """
    if value is None:
        return None
    seconds = float("nan")
    if is_number(value):
        seconds = float(value)
    elif isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*(s|sec|min|m|h)\s*", value)
        with suppress(ValueError):
            seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2][0]] if found else seconds
    if not 0 < seconds < math.inf:
        raise ValueError(
            f'{name} must be a positive number of seconds, a text such as "30s" or "5min", or None; got {value!r}.'
        )
    return seconds


def check_variance(value: object, name: str, *, advice: str = "") -> float | None:
    """Return a positive number, or None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    if not is_number(value) or not 0 < value < math.inf:
        shown = f"an array of shape {np.asarray(value).shape}" if isinstance(value, (list, np.ndarray)) else repr(value)
        raise ValueError(f"{name} must be a positive number or 'auto'; got {shown}.{advice}")
    return float(value)


def check_candidates(value: object, name: str, *, advice: str = "") -> Array | None:
    """Return one positive number, or several candidates, as an array; None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    values = np.asarray([value] if is_number(value) else value)
    numeric = values.dtype.kind in "iuf" and values.ndim == 1 and values.size > 0
    if not numeric or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"{name} must be a positive number, a list of them to choose from, or 'auto'; got {value!r}.{advice}"
        )
    return values.astype(np.float64)


def check_alphas(alpha: object) -> Array | None:
    """Return the regularisations as an array, or None for "auto"."""
    advice = (
        " Without regularisation the function is not unique where landmarks depend on each other; to regularise "
        "almost nothing, use a small value such as 1e-8."
    )
    return check_candidates(alpha, "alpha", advice=advice)


RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


def make_generator(random_state: RandomState) -> np.random.Generator:
    """Return a Generator from a seed, a Generator, a legacy RandomState, or None.

    Examples
    --------
    >>> bool(make_generator(0).random() == make_generator(0).random())
    True
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be None, a non-negative integer, a numpy Generator or RandomState; "
            f"got {random_state!r}."
        ) from error
