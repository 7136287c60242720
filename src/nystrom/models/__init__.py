"""Model files: what predictions need, checked on loading, without pickle. ``docs/saving.md`` describes the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import nystrom
from nystrom.exceptions import ModelFileError, NotInModelFileError
from nystrom.kernels import InMetric, Kernel, OnColumns
from nystrom.kernels.base import GammaKernel
from nystrom.models.container import Container, write_container
from nystrom.models.registry import kinds, left_out
from nystrom.models.values import Packer, Unpacker

__all__ = ["FORMAT_VERSION", "load", "save", "to_numpy"]

FORMAT = "nystrom-model"
FORMAT_VERSION = 1


def save(model: Any, path: str | os.PathLike[str], *, full: bool = False, imports: bool = False) -> None:
    """Save a fitted estimator, or a pipeline of estimators, in one file without pickle.

    Parameters
    ----------
    model : estimator
        Any estimator of this library, :class:`nystrom.preprocessing.TableEncoder`, scikit-learn's StandardScaler,
        MinMaxScaler, MaxAbsScaler and RobustScaler, or a :class:`sklearn.pipeline.Pipeline` of these.
    path : path
        The file to write; an existing file is replaced only when the new one is complete.
    full : bool, default=False
        Whether to keep what predictions do not need, such as the m × m statistics for ``partial_fit`` and ``merge``.
    imports : bool, default=False
        Whether a kernel or selector of your own is saved as its import path, ``module:name``, with the fields of an
        object. Loading such a file runs the code of that module, and needs ``load(path, imports=True)``.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import nystrom
    >>> X = np.linspace(0, 5, 200)[:, None]
    >>> model = nystrom.KernelRidge(n_landmarks=20, random_state=0).fit(X, np.sin(X).ravel())
    >>> path = os.path.join(tempfile.mkdtemp(), "sine.nystrom")
    >>> nystrom.save(model, path)
    >>> bool(np.array_equal(nystrom.load(path).predict(X), model.predict(X)))
    True
    """
    if not isinstance(model, BaseEstimator) or type(model) not in {kind.type for kind in kinds().values()}:
        names = ", ".join(name for name, kind in kinds().items() if issubclass(kind.type, BaseEstimator))
        raise TypeError(f"save takes one of {names}; got {type(model).__name__}.")
    check_is_fitted(model)
    packer = Packer(kinds(), left_out(model, full=full), imports=imports)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "nystrom": nystrom.__version__,
        "full": bool(full),
        "model": packer.pack(model, ""),
    }
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"cannot save {path}: the folder {Path(path).parent} does not exist.")
    write_container(path, manifest, packer.arrays)


def load(path: str | os.PathLike[str], *, imports: bool = False) -> Any:
    """Load a model that :func:`save` wrote; it predicts with the same bits.

    No code in the file is run, and everything is checked first: checksums, sizes, types and shapes.

    Parameters
    ----------
    path : path
        A model file.
    imports : bool, default=False
        Whether modules named in the file may be imported, as for a kernel of your own that was saved with
        ``imports=True``. This runs their code: allow it only for a file that you trust.

    Returns
    -------
    estimator
        An estimator of the saved type. Using anything that the file does not hold raises an error that says so.

    Raises
    ------
    ModelFileError
        If the file is damaged, is not a model file, or needs another version of this library.
    """
    container = Container(path)
    return unpack_model(container, imports=imports)


def unpack_model(container: Container, *, imports: bool = False) -> Any:
    """Return the model in a container."""
    manifest = container.manifest
    if manifest.get("format") != FORMAT:
        container.fail("not a nystrom model file.")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        container.fail(
            f"written by nystrom {str(manifest.get('nystrom'))[:30]} in version {str(version)[:30]} of the model "
            f"format; nystrom {nystrom.__version__} reads version {FORMAT_VERSION}. Load it with the nystrom that "
            f"wrote it, or fit again."
        )
    try:
        model = Unpacker(kinds(), container, imports=imports).unpack(manifest.get("model"))
    except NotInModelFileError as error:
        container.fail(f"damaged or forged: it leaves out what no model can do without ({error}).")
    except ModelFileError as error:
        written = str(manifest.get("nystrom"))[:30]
        if written == nystrom.__version__:
            raise
        raise ModelFileError(
            f"{error} The file was written by nystrom {written}; this is {nystrom.__version__}."
        ) from None
    if not isinstance(model, BaseEstimator):
        container.fail(f"damaged or forged: it holds a {type(model).__name__}, not a model.")
    return model


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
        parameters, where a kernel inside another is also a dict: a kernel in a metric has ``kernel`` and the array
        ``root``, and is the kernel of ``x * root``, or of ``x @ root`` for a matrix; a kernel of some columns has
        ``kernel`` and the numbers ``columns``. Classifiers also have ``classes``.
        The class of a row is that of the largest value; with a single value, it is the second class if positive.

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
    Z = getattr(model, "mean_map_", model.map_).landmarks.points
    scale, shift = getattr(model, "_y_deviation", 1.0), getattr(model, "_y_mean", 0.0)
    t = model.landmark_coef_.shape[1]
    parts = {
        "landmarks": np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, dtype=np.float64),
        "coef": np.asarray(model.landmark_coef_ * scale, dtype=np.float64),
        "intercept": np.broadcast_to(np.asarray(getattr(model, "intercept_", 0.0) * scale + shift), (t,)).astype(float),
        "kernel": _kernel_values(model.map_.kernel, Z.shape[1]),
    }
    return {**parts, "classes": model.classes_} if hasattr(model, "classes_") else parts


def _kernel_values(value: Any, p: int) -> Any:
    """Return a kernel of p columns as nested dicts with its name; arrays, numbers and text are returned as they are."""
    if isinstance(value, (tuple, list)):
        return type(value)(_kernel_values(item, p) for item in value)
    if not isinstance(value, Kernel):
        return value.item() if isinstance(value, np.generic) else value
    Packer(kinds(), frozenset()).pack(value, "kernel")  # raises for a function, which cannot be given as arrays
    name = next(name for name, kind in kinds().items() if kind.type is type(value))
    parts = dict(kinds()[name].parts(value))
    if isinstance(value, OnColumns):
        numbers = value.numbers(p)
        parts["columns"], p = numbers, len(numbers)
    p = value.root.shape[-1] if isinstance(value, InMetric) else p
    if isinstance(value, GammaKernel):
        parts["gamma"] = value._number(p)
    return {"name": name, **{key: _kernel_values(part, p) for key, part in parts.items()}}
