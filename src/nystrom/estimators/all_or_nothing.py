"""A fit that ends in an error, or by Ctrl-C, leaves the estimator as it was: fitted as before, or not at all."""

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
        except BaseException:
            # No fit changes a result of an earlier one in place, so the references are enough.
            vars(self).clear()
            vars(self).update(before)
            raise

    return fit
