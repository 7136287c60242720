"""A fit that ends in an error, or by Ctrl-C, leaves the estimator as it was: fitted as before, or not at all.

A lack of memory that no count foresaw is told with what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

_FITS = ("fit", "partial_fit", "fit_transform", "fit_predict")


def restore_on_failure(cls: type) -> None:
    """Wrap the methods of ``cls`` that fit, so that all of their results are stored, or none."""
    for name in _FITS:
        method = vars(cls).get(name)
        if isinstance(method, FunctionType):
            setattr(cls, name, _restoring(method))


def _restoring(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            # No fit changes a result of an earlier one in place, so the references are enough.
            vars(self).clear()
            vars(self).update(before)
            if isinstance(error, MemoryError) and error.__cause__ is None:
                raise MemoryError(
                    f"{type(self).__name__}.{method.__name__} found no memory for a part of its work ({error}). Fewer "
                    f"landmarks or fewer columns of X need less; max_memory= tells before the work how much it needs."
                ) from error
            raise

    return fit
