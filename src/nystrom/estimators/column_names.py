"""Names and number of columns: set by ``fit``, and the same ever after, as in scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from nystrom.rows import RowBlocks
from nystrom.warn import warn_caller

_MOST_NAMES = 5


def check_columns(estimator: Any, rows: RowBlocks, *, reset: bool, from_file: bool = False) -> None:
    """Set ``n_features_in_`` and ``feature_names_in_`` if ``reset``; else raise where the rows differ from them.

    Rows without names beside a fit with names (or the other way round) get scikit-learn's warning, unless they come
    ``from_file``: there nobody chose to give or leave out names.
    """
    if reset:
        _remember(estimator, rows)
        return
    owner = type(estimator).__name__
    fitted = getattr(estimator, "feature_names_in_", None)
    given = rows.feature_names
    if fitted is not None and given is not None:
        if list(fitted) != list(given):
            raise ValueError(_differences(list(fitted), list(given)))
    elif given is not None and not from_file:
        warn_caller(f"X has feature names, but {owner} was fitted without feature names", UserWarning)
    elif fitted is not None and not from_file:
        warn_caller(f"X does not have valid feature names, but {owner} was fitted with feature names", UserWarning)
    if rows.n_columns != estimator.n_features_in_:
        raise ValueError(
            f"X has {rows.n_columns} features, but {owner} is expecting {estimator.n_features_in_} features as input."
        )


def _remember(estimator: Any, rows: RowBlocks) -> None:
    estimator.n_features_in_ = rows.n_columns
    if rows.feature_names is not None:
        estimator.feature_names_in_ = np.array(rows.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _differences(fitted: list[str], given: list[str]) -> str:
    lines = ["The feature names should match those that were passed during fit."]
    unseen, missing = sorted(set(given) - set(fitted)), sorted(set(fitted) - set(given))
    if unseen:
        lines += ["Feature names unseen at fit time:", *_listed(unseen)]
    if missing:
        lines += ["Feature names seen at fit time, yet now missing:", *_listed(missing)]
    if not unseen and not missing:
        lines += ["Feature names must be in the same order as they were in fit."]
    return "\n".join([*lines, ""])


def _listed(names: list[str]) -> Iterable[str]:
    return [f"- {name}" for name in names[:_MOST_NAMES]] + ["- ..."] * (len(names) > _MOST_NAMES)
