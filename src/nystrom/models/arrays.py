"""The few arrays that predictions are made of, for programs without this library."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.models.registry import kinds
from nystrom.models.values import Packer


def to_numpy(model: Any) -> dict[str, Any]:
    """Return what a machine predicts with: ``k(x, landmarks) @ coef + intercept``, as arrays and plain values.

    Parameters
    ----------
    model : estimator
        A fitted machine with ``landmark_coef_``: KernelRidge, KernelRidgeClassifier, KernelLogisticRegression,
        KernelSVC, KernelSVR or GaussianProcessRegressor (its mean). Not with ``solver="exact"``.

    Returns
    -------
    dict
        ``landmarks`` (m, p), ``coef`` (m, t) and ``intercept`` (t,), float64; ``kernel``, a dict with ``name`` and its
        parameters; ``classes`` of a classifier. The class of a row is that of the largest value, or with one value the
        second class where it is positive.

    Examples
    --------
    >>> import nystrom
    >>> X = np.linspace(0, 5, 100)[:, None]
    >>> model = nystrom.KernelRidge(n_landmarks=10, gamma=1.0, random_state=0).fit(X, np.sin(X).ravel())
    >>> parts = to_numpy(model)
    >>> K = np.exp(-parts["kernel"]["gamma"] * (X - parts["landmarks"].T) ** 2)
    >>> bool(np.allclose(K @ parts["coef"] + parts["intercept"], model.predict(X)[:, None]))
    True
    """
    check_is_fitted(model)
    if not hasattr(model, "landmark_coef_") or getattr(model, "solver_", None) == "exact":
        raise TypeError(
            f"{type(model).__name__} does not predict by k(x, Z) @ coef; to_numpy takes the ridge machines with "
            f"solver='factor' or 'cg', logistic regression, support vectors, and the Gaussian process."
        )
    Z = model.landmarks_
    scale, shift = getattr(model, "_y_deviation", 1.0), getattr(model, "_y_mean", 0.0)
    t = model.landmark_coef_.shape[1]
    packed = Packer(kinds(), frozenset()).pack(model.kernel_, "kernel")
    parts = {
        "landmarks": np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, dtype=np.float64),
        "coef": np.asarray(model.landmark_coef_ * scale, dtype=np.float64),
        "intercept": np.broadcast_to(np.asarray(getattr(model, "intercept_", 0.0) * scale + shift), (t,)).astype(float),
        "kernel": _plain(packed),
    }
    return {**parts, "classes": model.classes_} if hasattr(model, "classes_") else parts


def _plain(node: Any) -> Any:
    """Return a kernel as nested dicts with its name."""
    if not isinstance(node, dict) or "$object" not in node:
        return node
    return {"name": node["$object"], **{key: _plain(value) for key, value in node["fields"].items()}}
