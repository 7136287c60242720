"""The error that no landmarks can beat, as a function of the rows."""

from __future__ import annotations

from nystrom.certificate import ErrorEstimate
from nystrom.certificate.best import NORMS, best_error
from nystrom.checks import check_choice, check_count
from nystrom.engine import make_engine
from nystrom.engine.survey import Survey
from nystrom.generator import RandomState, make_generator
from nystrom.kernels import GammaLike, KernelLike, make_kernel
from nystrom.landmarks import LandmarksLike, make_selector
from nystrom.landmarks.base import resolve
from nystrom.rows import as_blocks
from nystrom.types import RowsLike


def best_possible(
    X: RowsLike,
    n_components: int,
    *,
    kernel: KernelLike = "gaussian",
    gamma: GammaLike = "scale",
    degree: int = 3,
    coef0: float = 1,
    norm: str = "fro",
    landmarks: LandmarksLike = "auto",
    confidence: float = 0.95,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
) -> ErrorEstimate:
    """Return the relative error of the exact best approximation of rank r, which no landmarks can beat.

    Beside :meth:`nystrom.Nystroem.approximation_error` it says how much of an error is the rank's fault, and how much
    the landmarks'.

    Parameters
    ----------
    X : rows
        Any rows.
    n_components : int
        The rank r.
    kernel, gamma, degree, coef0, n_jobs
        As in :class:`nystrom.Nystroem`.
    norm : {"fro", "trace"}
        Of the error.
    landmarks : str, array or selector
        How the landmarks are chosen that stand for all rows where these are more than 2,000.
    confidence : float
        Of the interval.
    random_state : int, Generator, RandomState or None
        Seed.

    Returns
    -------
    ErrorEstimate
        Exact up to 2,000 rows, with an interval above.

    Notes
    -----
    Cost: O(n³) up to 2,000 rows; above, two fits of 4r and 8r landmarks (at least 200 and 400) and their errors.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom import Nystroem
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> best = best_possible(X, 10)
    >>> bool(best.value < Nystroem(n_components=10, random_state=0).fit(X).approximation_error(X).value)
    True
    """
    rank = check_count(n_components, "n_components")
    check_choice(norm, "norm", NORMS)
    rows = as_blocks(X)
    survey = Survey(rows, make_engine(rows, n_jobs))
    parsed = make_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0)
    parsed = resolve(parsed, survey)
    selector, rng = make_selector(landmarks), make_generator(random_state)
    return best_error(survey, parsed, rank, selector, rng, norm=norm, confidence=confidence)
