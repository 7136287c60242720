"""Models in files: what predictions need, checked on loading, with no pickle. ``docs/saving.md`` has the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import nystrom
from nystrom.exceptions import ModelFileError, NotInModelFileError
from nystrom.models.arrays import to_numpy
from nystrom.models.container import Container, write_container
from nystrom.models.registry import kinds, left_out
from nystrom.models.values import Packer, Unpacker

__all__ = ["FORMAT_VERSION", "load", "save", "to_numpy"]

FORMAT = "nystrom-model"
FORMAT_VERSION = 1


def save(model: Any, path: str | os.PathLike[str], *, full: bool = False) -> None:
    """Save a fitted estimator, or a pipeline of such, in one file without pickle.

    Parameters
    ----------
    model : estimator
        Any estimator of this library, :class:`nystrom.preprocessing.TableEncoder`, scikit-learn's StandardScaler,
        MinMaxScaler, MaxAbsScaler and RobustScaler, or a :class:`sklearn.pipeline.Pipeline` of these.
    path : path
        The file to write; what was there is replaced at once, when the new file is complete.
    full : bool, default=False
        Whether to keep what predictions do without, such as the m × m statistics that ``partial_fit`` and ``merge``
        need.

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
    packer = Packer(kinds(), left_out(model, full=full))
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


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that :func:`save` wrote; it predicts with the same bits.

    No code in the file is run, and everything is checked first: checksums, sizes, types and shapes.

    Parameters
    ----------
    path : path
        A model file.

    Returns
    -------
    estimator
        Of the type that was saved. What the file does not hold says so when it is used.

    Raises
    ------
    ModelFileError
        If the file is damaged, or is no model file, or needs another version of this library.
    """
    container = Container(path)
    return unpack_model(container)


def unpack_model(container: Container) -> Any:
    """Return the model in a container that was read."""
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
        model = Unpacker(kinds(), container).unpack(manifest.get("model"))
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
