"""Selectors and sizes on the user's own rows: error, time, memory and score, and which to take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom.checks import RandomState, check_count, make_generator
from nystrom.engine import make_engine
from nystrom.engine.memory import fit_footprint, format_memory
from nystrom.engine.passes import Passes
from nystrom.engine.threads import one_blas_thread
from nystrom.errors import ErrorEstimate
from nystrom.estimators import KernelRidge, KernelRidgeClassifier, Nystroem
from nystrom.exceptions import ApproximationWarning, FewerLandmarksWarning, silenced
from nystrom.kernels import GammaLike, KernelLike, Precomputed, make_kernel
from nystrom.landmarks import SELECTORS as WORDS
from nystrom.landmarks import LandmarksLike, Selector, make_selector
from nystrom.rows import array_rows, as_blocks
from nystrom.rows.draw import draw_rows, fetch_rows
from nystrom.types import Array, Matrix, RowsLike, TargetLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SELECTORS = ("auto", "uniform", "kmeans++", "rpcholesky")
SIZES = (50, 100, 200, 400)
# More rows change the figures little, and would take long.
MOST_ROWS = 100_000
_HELD_OUT = 0.25
_MOST_CLASSES = 20
# With fewer rows a score says nothing.
_LEAST_ROWS = 8
# Errors within this factor of the best are as good.
_AS_GOOD = 1.1


@dataclass(frozen=True)
class Compared:
    """One selector at one size.

    Attributes
    ----------
    selector, n_landmarks : str, int
        What was tried, a selector object as it prints; the landmarks found may be fewer than asked for.
    error : ErrorEstimate
        Relative Frobenius error with its interval, every direction kept.
    seconds : float
        Of the fit.
    memory : int
        Bytes that a fit adds to the process, with one thread.
    score, noise : float or None
        On held-out rows, R² or accuracy, and its standard error; None without a target.
    """

    selector: str
    n_landmarks: int
    error: ErrorEstimate
    seconds: float
    memory: int
    score: float | None = None
    noise: float | None = None


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found: ``rows``, the ``best`` of them with a ``reason``, and how many rows were used."""

    rows: tuple[Compared, ...]
    best: Compared
    reason: str
    n_rows: int
    score_name: str = ""

    @property
    def columns(self) -> list[str]:
        """Headings of the table."""
        scored = [self.score_name] if self.score_name else []
        return ["landmarks by", "m", "error", "95 % interval", "seconds", "memory", *scored]

    @property
    def cells(self) -> list[list[str]]:
        """The table as text, one row per selector and size."""
        return [
            [
                row.selector,
                f"{row.n_landmarks:,}",
                _figure(row.error.value),
                f"{_figure(row.error.low)} to {_figure(row.error.high)}",
                f"{row.seconds:.2f}",
                format_memory(row.memory),
                *([f"{row.score:.4f} ± {row.noise:.4f}"] if row.score is not None else []),
            ]
            for row in self.rows
        ]

    @property
    def advice(self) -> str:
        """The recommendation in one sentence."""
        return f"Take landmarks={_quoted(self.best.selector)}, n_landmarks={self.best.n_landmarks}: {self.reason}."

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in self._table
        ]
        return "\n".join([*lines, "", self.advice])

    @property
    def _table(self) -> list[list[str]]:
        return [self.columns, *self.cells]

    def plot(self, *, score: bool = False, ax: Axes | None = None) -> Axes:
        """Plot errors with their intervals (or scores) against the number of landmarks, and return the Axes."""
        from nystrom.plotting import plot_comparison

        return plot_comparison(self, score=score, ax=ax)


@one_blas_thread
def compare(
    X: RowsLike,
    y: TargetLike = None,
    *,
    selectors: Sequence[LandmarksLike] = SELECTORS,
    sizes: Sequence[int] = SIZES,
    kernel: KernelLike = "gaussian",
    gamma: GammaLike = "scale",
    most_rows: int = MOST_ROWS,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
) -> Comparison:
    """Compare ways to choose landmarks, and numbers of them, on these rows.

    Parameters
    ----------
    X : rows
        Any rows; more than ``most_rows`` are represented by a sample.
    y : array of shape (n,), optional
        A target: numbers (kernel ridge regression, R²), or classes (kernel ridge classifier, accuracy). Each is scored
        on a quarter of the rows that its fit has not seen. Rows from a file may hold their target.
    selectors : sequence of str or selector
        Ways to choose landmarks.
    sizes : sequence of int
        Numbers of landmarks.
    kernel, gamma, n_jobs
        As in :class:`nystrom.Nystroem`.
    most_rows : int
        Rows to work with at most.
    random_state : int, Generator, RandomState or None
        Seed.

    Returns
    -------
    Comparison
        Prints as a table with a recommendation; ``rows``, ``best``, ``reason`` and ``plot()``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> found = compare(X, selectors=["auto", "uniform"], sizes=[20, 40])
    >>> len(found.rows), found.best.n_landmarks
    (4, 40)
    """
    for name, given in (("selectors", selectors), ("sizes", sizes)):
        listed = given.ndim > 0 if isinstance(given, np.ndarray) else isinstance(given, Sequence)
        if not listed or isinstance(given, (str, bytes)):
            raise ValueError(f"{name} must be a list; got {given!r}.")
    names = [_name(selector) for selector in selectors]
    ways = [make_selector(selector) for selector in selectors]
    counts = [check_count(size, "sizes") for size in sizes]
    if not ways or not counts:
        raise ValueError("selectors and sizes must each name at least one; got none.")
    rng = make_generator(random_state)
    pairwise = isinstance(make_kernel(kernel, gamma=gamma), Precomputed)
    X, y = _in_memory(X, y, check_count(most_rows, "most_rows", least=10), n_jobs, rng, pairwise=pairwise)
    counts = sorted({min(size, X.shape[0]) for size in counts})
    seed = int(rng.integers(2**31))
    classes = y is not None and _is_classes(y)
    held_out = None if y is None else _order(y, rng, classes=classes)
    rows = []
    # The table already says what these warnings would.
    with silenced(ApproximationWarning, FewerLandmarksWarning):
        for name, way in zip(names, ways, strict=True):
            for size in counts:
                params = {"kernel": kernel, "gamma": gamma, "landmarks": way, "n_landmarks": size, "n_jobs": n_jobs}
                rows.append(_one(X, y, name, params, held_out, seed, classes=classes, pairwise=pairwise))
    score_name = "" if y is None else "accuracy" if classes else "R²"
    best, reason = recommend(rows, score_name, X.shape[0])
    return Comparison(tuple(rows), best, reason, X.shape[0], score_name)


def recommend(rows: Sequence[Compared], score_name: str = "", n_rows: float = float("inf")) -> tuple[Compared, str]:
    """Return the cheapest of those that are as good as the best, and why; there are at most ``n_rows`` landmarks."""
    if score_name:
        top = max(rows, key=lambda row: row.score or 0.0)
        good = [row for row in rows if (row.score or 0.0) >= (top.score or 0.0) - (top.noise or 0.0)]
        best = min(good, key=lambda row: (row.n_landmarks, row.error.value))
        most = max(row.n_landmarks for row in rows)
        more = "; more than were tried may still help" if best.n_landmarks == most < n_rows else ""
        return best, (
            f"its {score_name} of {best.score:.4f} is within one standard error of the best ({top.score:.4f} with "
            f"{_quoted(top.selector)}, {top.n_landmarks}), at the fewest landmarks{more}"
        )
    top = min(rows, key=lambda row: row.error.value)
    good = [row for row in rows if row.error.value <= _AS_GOOD * top.error.value]
    best = min(good, key=lambda row: (row.seconds, row.n_landmarks))
    return best, (
        f"its error of {_figure(best.error.value)} is within {_AS_GOOD - 1:.0%} of the best "
        f"({_figure(top.error.value)} with {_quoted(top.selector)}, {top.n_landmarks}), at the least time "
        f"({best.seconds:.2f} s); for a given error try Nystroem(tol=...)"
    )


def _name(selector: LandmarksLike) -> str:
    """Return what a selector is called in the table."""
    if isinstance(selector, str):
        return selector
    return repr(selector) if isinstance(selector, Selector) else f"array of shape {np.shape(selector)}"


def _quoted(name: str) -> str:
    """Return the name as a value of ``landmarks``: only words need quotes."""
    return repr(name) if name in WORDS else name


def _figure(error: float) -> str:
    """Return an error with four decimals; a small one with two digits."""
    return f"{error:.4f}" if error == 0 or error >= 1e-3 else f"{error:.1e}"


def _one(
    X: Matrix,
    y: Array | None,
    name: str,
    params: dict[str, Any],
    order: Array | None,
    seed: int,
    *,
    classes: bool,
    pairwise: bool,
) -> Compared:
    began = time.perf_counter()
    fitted = Nystroem(n_components=None, random_state=seed, **params).fit(X)
    seconds = time.perf_counter() - began
    rows, m = array_rows(X), fitted.landmarks_.shape[0]
    error = fitted.approximation_error(X, random_state=seed)
    memory = fit_footprint(rows, m, params["landmarks"].held_bytes(rows, m)).least
    if y is None or order is None:
        return Compared(name, m, error, seconds, memory)
    cut = max(int(_HELD_OUT * len(order)), 1)
    held, seen = order[:cut], order[cut:]
    # The columns of a kernel matrix are rows too.
    columns = seen if pairwise else slice(None)
    machine = (KernelRidgeClassifier if classes else KernelRidge)(
        alpha="auto", solver="factor", fit_intercept=True, random_state=seed, **params
    ).fit(X[seen][:, columns], y[seen])
    score, noise = _score(y[held], np.asarray(machine.predict(X[held][:, columns])), classes=classes)
    return Compared(name, m, error, seconds, memory, score, noise)


def _order(y: Array, rng: np.random.Generator, *, classes: bool) -> Array:
    """Return the rows in random order, the first of which are held out; one row of each class is among the last."""
    order = rng.permutation(len(y))
    if not classes:
        return order
    first = np.zeros(len(y), dtype=bool)
    first[np.unique(y[order], return_index=True)[1]] = True
    return np.concatenate([order[~first], order[first]])


def _score(y: Array, predicted: Array, *, classes: bool) -> tuple[float, float]:
    """Return accuracy or R², and its standard error."""
    losses = (predicted != y).astype(np.float64) if classes else (predicted - y) ** 2
    scale = 1.0 if classes else float(np.var(y))
    if scale == 0:
        # R² of a constant, as scikit-learn has it.
        return float(not losses.any()), 0.0
    return 1 - float(losses.mean()) / scale, float(losses.std()) / np.sqrt(len(losses)) / scale


def _is_classes(y: Array) -> bool:
    """Return whether a target names classes: text, truths, or few whole numbers."""
    if y.dtype.kind not in "fiu":
        return True
    return len(np.unique(y)) <= _MOST_CLASSES and bool(np.all(y == np.round(y)))


def _check_target(y: Array, n_rows: int) -> None:
    if y.shape != (n_rows,):
        raise ValueError(f"y must have one entry per row, shape ({n_rows},); got shape {y.shape}.")
    if y.dtype.kind not in "fiubOUST":
        raise ValueError(f"y must hold numbers, or classes as text, truths or whole numbers; got {y.dtype}.")
    if n_rows < _LEAST_ROWS:
        raise ValueError(
            f"a target is scored on held-out rows, for which {n_rows} rows are too few; give at least {_LEAST_ROWS}, "
            f"or no y."
        )
    if y.dtype.kind == "O":
        # NaN is the one value that differs from itself.
        missing = np.array([value is None or value != value for value in y])
    else:
        missing = ~np.isfinite(y) if y.dtype.kind == "f" else np.zeros(n_rows, dtype=bool)
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(f"y has no finite value in row {row} ({y[row]}); drop such rows first.")


def _in_memory(
    X: RowsLike, y: TargetLike, most_rows: int, n_jobs: int | None, rng: np.random.Generator, *, pairwise: bool
) -> tuple[Matrix, Array | None]:
    """Return at most so many rows as one matrix, with their target; of a kernel matrix also as many columns."""
    rows = as_blocks(X)
    passes = Passes(rows, make_engine(rows, n_jobs))
    numbers, _ = draw_rows(rows.shape[0], most_rows, None, rng)
    if y is not None:
        y = np.asarray(y)
        _check_target(y, rows.shape[0])
    sample, inside = fetch_rows(passes, numbers, with_target=y is None and rows.has_target)
    if pairwise and rows.shape[0] == rows.shape[1]:
        sample = sample[:, numbers]
    if y is not None:
        return sample, y[numbers]
    if inside is None:
        return sample, None
    _check_target(inside[:, 0], len(inside))
    return sample, inside[:, 0]
