"""The choice of landmarks: one class per method, and the registry of their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from nystrom.checks import RandomState, make_generator
from nystrom.devices import fetch, is_foreign_array
from nystrom.engine import Resources
from nystrom.engine.passes import Passes
from nystrom.engine.threads import one_blas_thread
from nystrom.kernels import GammaLike, Kernel, KernelLike, make_kernel
from nystrom.landmarks.auto import Auto
from nystrom.landmarks.base import GivenIndices, GivenPoints, Landmarks, Own, Selector, see
from nystrom.landmarks.clustered import KMeans, SketchedKMeans
from nystrom.landmarks.pivoted import KMeansPlusPlus, RPCholesky
from nystrom.landmarks.sampled import ColumnNorm, Diagonal, Leverage, Uniform
from nystrom.rows import RowBlocks, as_blocks
from nystrom.types import Matrix, RowsLike, issparse

__all__ = [
    "SELECTORS",
    "Auto",
    "ColumnNorm",
    "Diagonal",
    "GivenIndices",
    "GivenPoints",
    "KMeans",
    "KMeansPlusPlus",
    "Landmarks",
    "LandmarksLike",
    "Leverage",
    "Own",
    "OwnSelector",
    "RPCholesky",
    "Selector",
    "SketchedKMeans",
    "Uniform",
    "make_selector",
    "select_landmarks",
]


class OwnSelector(Protocol):
    """A user object that chooses landmarks; a function with the same arguments works too."""

    def select(self, rows: RowBlocks, m: int, kernel: Kernel, rng: np.random.Generator) -> Any:
        """Return the numbers of at most m rows, or at most m points."""


LandmarksLike: TypeAlias = (
    str | Selector | OwnSelector | Callable[..., Any] | Matrix | Sequence[int] | Sequence[Sequence[float]]
)

SELECTORS: dict[str, Callable[[], Selector]] = {
    "auto": Auto,
    "sketched-kmeans": SketchedKMeans,
    "kmeans": KMeans,
    "uniform": Uniform,
    "diagonal": Diagonal,
    "column-norm": ColumnNorm,
    "leverage": Leverage,
    "kmeans++": KMeansPlusPlus,
    "rpcholesky": RPCholesky,
    "rpcholesky+lloyd": lambda: RPCholesky(lloyd=3),
}


def make_selector(landmarks: LandmarksLike) -> Selector:
    """Return the selector for a parameter ``landmarks``.

    Parameters
    ----------
    landmarks : str, Selector, array of shape (m, p), integer array of shape (m,), or function
        A name of the registry, a selector, the points themselves, the numbers of the rows to use, or a function
        ``select(rows, m, kernel, rng)`` or an object with such a method.

    Examples
    --------
    >>> make_selector("sketched-kmeans")
    SketchedKMeans()
    >>> make_selector([0, 3, 7])
    GivenIndices(indices=array([0, 3, 7]))
    """
    if isinstance(landmarks, Selector):
        return landmarks
    landmarks = fetch(landmarks) if is_foreign_array(landmarks) else landmarks
    names = ", ".join(repr(name) for name in SELECTORS)
    if isinstance(landmarks, str):
        if landmarks not in SELECTORS:
            raise ValueError(
                f"landmarks must be one of {names}, a selector such as nystrom.landmarks.SketchedKMeans(), an m × p "
                f"array of points or an array of row numbers; got {landmarks!r}."
            )
        return SELECTORS[landmarks]()
    if issparse(landmarks):
        return GivenPoints(landmarks)
    if isinstance(landmarks, (np.ndarray, list, tuple)):
        array = np.asarray(landmarks)
        if array.ndim == 2 and array.dtype.kind in "fiub":
            return GivenPoints(array)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return GivenIndices(array)
        raise ValueError(
            f"landmarks given as an array must be points of shape (m, p) or a one-dimensional integer array of row "
            f"numbers; got shape {array.shape} of {array.dtype}. For a mask use numpy.flatnonzero(mask)."
        )
    if (callable(landmarks) or callable(getattr(landmarks, "select", None))) and not isinstance(landmarks, type):
        return Own(landmarks)
    raise ValueError(
        f"landmarks must be one of {names}, a selector such as nystrom.landmarks.SketchedKMeans(), an m × p array of "
        f"points, an array of row numbers, or a function select(rows, m, kernel, rng) or an object with one; got "
        f"{landmarks!r} ({type(landmarks).__name__})."
    )


@one_blas_thread
def select_landmarks(
    X: RowsLike,
    n_landmarks: int,
    *,
    method: LandmarksLike = "auto",
    kernel: KernelLike = "gaussian",
    gamma: GammaLike = "scale",
    degree: int = 3,
    coef0: float = 1,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> Landmarks:
    """Choose landmarks for the rows of X.

    Parameters
    ----------
    X : array, memmap, sparse matrix, data frame, RowBlocks, Dask array or dataframe, shape (n, p)
        The rows; with ``kernel="precomputed"`` the kernel matrix.
    n_landmarks : int
        The number m, at least 1. More than n means n.
    method : str, Selector or array
        "auto", "sketched-kmeans", "kmeans", "uniform", "diagonal", "column-norm", "leverage", "kmeans++",
        "rpcholesky", "rpcholesky+lloyd"; or a selector object; or points, or row numbers.
    kernel, gamma, degree, coef0
        The kernel, for the methods that use it.
    n_jobs : int or None
        Threads; None for all cores. The result does not depend on it.
    random_state : int, numpy.random.Generator, RandomState or None
        The seed.

    Returns
    -------
    Landmarks
        ``points`` (m × p) and ``indices`` (row numbers, or None if the points are not rows).

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom import select_landmarks
    >>> X = np.random.default_rng(0).normal(size=(1000, 20))
    >>> select_landmarks(X, 10, random_state=0).points.shape
    (10, 20)
    >>> select_landmarks(X, 4, method="uniform", random_state=0).indices.shape
    (4,)
    """
    made = make_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0)
    rows = as_blocks(X, objects=made.takes_objects)
    selector = make_selector(method)
    passes = Passes(rows, Resources(n_jobs=n_jobs).engine(rows))
    found, _ = see(passes, made).select(selector, n_landmarks, make_generator(random_state))
    passes.check_finite()
    return found
