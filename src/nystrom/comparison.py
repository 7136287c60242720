"""Compare selectors, sizes and metrics on the user's rows by score, error, time and memory, and recommend one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom.checks import RandomState, check_choice, check_count, check_seconds, make_generator
from nystrom.engine import Resources
from nystrom.engine.memory import fit_footprint, format_memory
from nystrom.engine.passes import Passes
from nystrom.engine.progress import Progress, Silent, make_progress
from nystrom.engine.threads import one_blas_thread
from nystrom.errors import ErrorEstimate
from nystrom.estimators import KernelRidge, KernelRidgeClassifier, Nystroem
from nystrom.exceptions import ApproximationWarning, FewerLandmarksWarning, silenced
from nystrom.kernels import GammaLike, Gaussian, KernelLike, Laplacian, Matern, make_kernel
from nystrom.landmarks import SELECTORS as WORDS
from nystrom.landmarks import LandmarksLike, Selector, make_selector
from nystrom.rows import array_rows, as_blocks
from nystrom.rows.draw import draw_rows, fetch_rows
from nystrom.rows.reading import require_unmasked
from nystrom.scoring import hold_out, judge
from nystrom.types import Array, Matrix, RowsLike, TargetLike, issparse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SELECTORS = ("auto", "uniform", "kmeans++", "rpcholesky")
SIZES = (50, 100, 200, 400)
METRICS = ("auto", "diagonal", "full")
# More rows change the figures little, and would take long.
MOST_ROWS = 100_000
# The held-out share of ``nystrom fit``, so that fitting the recommendation from the shell shows the same score.
HELD_OUT = 0.2
# Maximum number of dense columns for which a metric is learned by default; this takes seconds.
_METRIC_COLUMNS = 300
_MOST_CLASSES = 20
# Maximum number of landmarks when sizes are doubled automatically; time grows with their square.
_MOST_LANDMARKS = 1600
# Minimum number of rows for a score to be meaningful.
_LEAST_ROWS = 8
# Errors within this factor of the best count as equal to it.
_AS_GOOD = 1.1


def default_metric(kernel: KernelLike, gamma: GammaLike, n_columns: int, *, is_sparse: bool) -> str | None:
    """Return the metric that ``nystrom fit`` uses: "auto" where the kernel allows it and it is cheap, else None."""
    learned = isinstance(gamma, str) and gamma == "scale" and not is_sparse and n_columns <= _METRIC_COLUMNS
    if isinstance(kernel, str) and kernel == "auto":
        return "auto" if learned else None
    return "auto" if learned and isinstance(make_kernel(kernel, gamma=gamma), (Gaussian, Matern, Laplacian)) else None


@dataclass(frozen=True)
class Compared:
    """One selector at one size.

    Attributes
    ----------
    selector, n_landmarks : str, int
        The selector (an object by its repr) and the landmarks found, which may be fewer than requested.
    error : ErrorEstimate
        Relative Frobenius error with its interval, with all directions kept.
    seconds : float
        Time of the fit.
    memory : int
        Bytes that a fit adds to the process, with one thread.
    score, noise : float or None
        R² or accuracy on held-out rows, and its standard error; None without a target.
    metric : str or None
        The metric requested.
    is_default : bool
        Whether this is the fit that ``nystrom fit`` makes by default.
    """

    selector: str
    n_landmarks: int
    error: ErrorEstimate
    seconds: float
    memory: int
    score: float | None = None
    noise: float | None = None
    metric: str | None = None
    is_default: bool = False

    @property
    def name(self) -> str:
        """The selector, and the metric if one was learned."""
        default = " (default)" if self.is_default else ""
        return self.selector + (f", metric {self.metric}" if self.metric else "") + default


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`compare`: ``rows``, the ``best`` of them with a ``reason``, and the number of rows used.

    ``settings`` are the parameters of the best that differ from those of ``nystrom fit``; ``machine`` is its estimator.
    """

    rows: tuple[Compared, ...]
    best: Compared
    reason: str
    n_rows: int
    score_name: str = ""
    machine: str = "Nystroem"
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Headings of the table."""
        scored = [self.score_name] if self.score_name else []
        return ["landmarks by", "m", *scored, "error", "95 % interval", "seconds", "memory"]

    @property
    def cells(self) -> list[list[str]]:
        """The table as text, one row per selector and size."""
        return [
            [
                row.name,
                f"{row.n_landmarks:,}",
                *([f"{row.score:.4f} ± {row.noise:.4f}"] if row.score is not None else []),
                _figure(row.error.value),
                f"{_figure(row.error.low)} to {_figure(row.error.high)}",
                f"{row.seconds:.2f}",
                format_memory(row.memory),
            ]
            for row in self.rows
        ]

    @property
    def python(self) -> str:
        """The recommendation as a line of Python."""
        fixed = {"KernelRidge": ["alpha='auto'", "fit_intercept=True"], "KernelRidgeClassifier": ["alpha='auto'"]}
        given = dict(self.settings)
        if self.score_name and "metric" not in given:
            given["metric"] = self.best.metric  # the default's metric
        shown = [
            f"{name}={_quoted(value) if name == 'landmarks' else repr(value)}"
            for name, value in given.items()
            if value is not None
        ]
        return f"{self.machine}({', '.join([*fixed.get(self.machine, []), *shown, 'random_state=0'])})"

    def command(self, data: str, target: str | None = None, more: Sequence[str] = ()) -> str:
        """Return the recommendation as a shell command; ``more`` are options for the table."""
        words = ["nystrom", "fit", data, *(["--target", target] if target else ["--model", "features"]), *more]
        for name, value in self.settings.items():
            words += [f"--{name.replace('_', '-')}", "none" if value is None else str(value)]
        return shlex.join([*words, "--out", "MODEL"])

    @property
    def advice(self) -> str:
        """The recommendation in one sentence."""
        metric = f", metric={self.best.metric!r}" if self.best.metric else ""
        return (
            f"Use landmarks={_quoted(self.best.selector)}, n_landmarks={self.best.n_landmarks}{metric}: {self.reason}."
        )

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in self._table
        ]
        return "\n".join([*lines, "", self.advice, self.python])

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
    metrics: Sequence[str] = METRICS,
    kernel: KernelLike = "gaussian",
    gamma: GammaLike = "scale",
    most_rows: int = MOST_ROWS,
    max_time: float | str | None = None,
    n_jobs: int | None = None,
    verbose: bool | int = 0,
    random_state: RandomState = 0,
) -> Comparison:
    """Compare ways to choose landmarks, and numbers of them, on these rows.

    Parameters
    ----------
    X : rows
        Any rows; more than ``most_rows`` are represented by a sample.
    y : array of shape (n,), optional
        A target: numbers (kernel ridge regression, R²), or classes (kernel ridge classifier, accuracy). Each fit is
        scored on the fifth of the rows that it has not seen; larger sizes are tried while the score improves.
        Rows from a file may hold their target.
    selectors : sequence of str or selector
        Ways to choose landmarks.
    sizes : sequence of int
        Numbers of landmarks.
    metrics : sequence of str
        Metrics to learn from the target, where the kernel allows it: "auto", "diagonal" or "full".
    kernel, gamma, n_jobs
        As in :class:`nystrom.Nystroem`.
    most_rows : int
        Rows to work with at most.
    max_time : float, str or None
        Seconds, or text such as "2min", after which no fit begins; the default fit and one other are always made.
    verbose : bool or int
        1 shows each fit.
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
    for name, given in (("selectors", selectors), ("sizes", sizes), ("metrics", metrics)):
        listed = given.ndim > 0 if isinstance(given, np.ndarray) else isinstance(given, Sequence)
        if not listed or isinstance(given, (str, bytes)):
            raise ValueError(f"{name} must be a list; got {given!r}.")
    names = [_name(selector) for selector in selectors]
    ways = [make_selector(selector) for selector in selectors]
    counts = [check_count(size, "sizes") for size in sizes]
    if not ways or not counts:
        raise ValueError("selectors and sizes must each name at least one; got none.")
    for metric in metrics:
        check_choice(metric, "metrics", METRICS)
    rng = make_generator(random_state)
    pairwise = not make_kernel(kernel, gamma=gamma).has_coordinates
    X, y = _in_memory(X, y, check_count(most_rows, "most_rows", least=10), n_jobs, rng, pairwise=pairwise)
    seed = random_state if isinstance(random_state, (int, np.integer)) else int(rng.integers(2**31))
    found = _Search(X, y, {"kernel": kernel, "gamma": gamma, "n_jobs": n_jobs}, int(seed), pairwise)
    found.progress, limit = make_progress(verbose), check_seconds(max_time, "max_time")
    found.until = float("inf") if limit is None else time.monotonic() + limit
    counts = sorted({min(size, found.n_train) for size in counts})
    # The table already shows what these warnings would say.
    with silenced(ApproximationWarning, FewerLandmarksWarning):
        default = default_metric(kernel, gamma, X.shape[1], is_sparse=issparse(X))
        if y is not None:
            found.add("auto", make_selector("auto"), None, default, is_default=True)
        # Metrics come before the many selectors and sizes: in a limited time they are more likely to win.
        for metric in metrics if default and y is not None else ():
            if metric != default:
                found.add("auto", make_selector("auto"), None, metric)
        for name, way in zip(names, ways, strict=True):
            for size in counts:
                found.add(name, way, size)
        if y is not None:
            found.grow()
    rows, score_name = found.rows, "" if y is None else "accuracy" if found.classes else "R²"
    best, reason = recommend(rows, score_name, found.n_train, found.losses)
    reason += f"; {found.n_skipped} fits were left out to end in time" if found.n_skipped else ""
    machine = "Nystroem" if y is None else "KernelRidgeClassifier" if found.classes else "KernelRidge"
    asked = {"kernel": kernel, "gamma": gamma}
    plain = {"kernel": "gaussian", "gamma": "scale"}
    settings = {name: value for name, value in asked.items() if value is not plain[name] and value != plain[name]}
    if not best.is_default:
        settings |= {"landmarks": best.selector} if best.selector != "auto" else {}
        settings |= {"n_landmarks": best.n_landmarks} if best.metric is None else {}
        settings |= {"metric": best.metric} if y is not None and best.metric != default else {}
    return Comparison(tuple(rows), best, reason, X.shape[0], score_name, machine, settings)


class _Search:
    """The fits made so far; with a target, also the loss of every held-out row."""

    def __init__(self, X: Matrix, y: Array | None, params: dict[str, Any], seed: int, pairwise: bool) -> None:
        self.X, self.y, self.params, self.seed, self.pairwise = X, y, params, seed, pairwise
        self.classes = y is not None and _is_classes(y)
        self.rows: list[Compared] = []
        self.losses: list[Array] = []
        self.progress: Progress = Silent()
        self.until, self.n_skipped = float("inf"), 0
        self._ways: dict[str, Selector] = {}
        self._held = np.zeros(X.shape[0], dtype=bool)
        if y is not None:
            codes = np.unique(y, return_inverse=True)[1] if self.classes else np.zeros(len(y), dtype=np.intp)
            self._held = hold_out(codes, HELD_OUT, np.random.default_rng(seed))

    @property
    def n_train(self) -> int:
        return int(np.count_nonzero(~self._held))

    def add(
        self, name: str, way: Selector, size: int | None, metric: str | None = None, *, is_default: bool = False
    ) -> None:
        """Make one fit if there is time; without a size, use the machine's default number of landmarks."""
        if time.monotonic() > self.until and any(not row.is_default for row in self.rows):
            self.n_skipped += 1
            return
        shown = [name, *([f"metric {metric}"] if metric else []), *([f"{size:,} landmarks"] if size else [])]
        self.progress.start(", ".join(shown), self.n_train)
        params = {**self.params, "landmarks": way, "n_landmarks": size, "random_state": self.seed}
        seen, held = np.flatnonzero(~self._held), np.flatnonzero(self._held)
        # The columns of a kernel matrix correspond to rows too.
        columns = seen if self.pairwise else slice(None)
        X = self.X[seen][:, columns]
        began = time.perf_counter()
        if self.y is None:
            machine: Any = Nystroem(n_components=None, **params).fit(X)
        elif self.classes:
            machine = KernelRidgeClassifier(alpha="auto", metric=metric, **params).fit(X, self.y[seen])
        else:
            machine = KernelRidge(alpha="auto", fit_intercept=True, metric=metric, **params).fit(X, self.y[seen])
        seconds = time.perf_counter() - began
        rows, m = array_rows(X), machine.landmarks_.shape[0]
        error = machine.approximation_error(X, random_state=self.seed)
        memory = fit_footprint(rows, m, way.held_bytes(rows, m)).least
        score: dict[str, Any] = {}
        if self.y is not None:
            guess = np.asarray(machine.predict(self.X[held][:, columns]))
            judged = judge(self.y[held], guess, classes=self.classes)
            score = {"score": judged.value, "noise": judged.noise}
            self.losses.append(judged.losses)
        self._ways[name] = way
        self.rows.append(Compared(name, m, error, seconds, memory, **score, metric=metric, is_default=is_default))
        self.progress.advance(self.n_train)
        self.progress.stop()

    def grow(self) -> None:
        """Double the size of the best selector without a metric while its score clearly improves."""
        plain = [i for i, row in enumerate(self.rows) if row.metric is None and not row.is_default]
        while plain:
            at = max(plain, key=lambda i: (self.rows[i].score or 0.0, -self.rows[i].n_landmarks))
            row = self.rows[at]
            of_way = [i for i in plain if self.rows[i].selector == row.selector]
            size = min(2 * row.n_landmarks, self.n_train, _MOST_LANDMARKS)
            if row.n_landmarks < max(self.rows[i].n_landmarks for i in of_way) or size <= row.n_landmarks:
                return
            new = len(self.rows)
            self.add(row.selector, self._ways[row.selector], size)
            if len(self.rows) == new:
                return
            plain.append(new)
            if not _clearly_less(self.losses[new], self.losses[at]):
                return


def _clearly_less(losses: Array, others: Array) -> bool:
    """Whether the losses on the same rows are lower by more than one standard error of the difference."""
    change = others - losses
    return bool(change.mean() > change.std() / np.sqrt(len(change)))


def recommend(
    rows: Sequence[Compared],
    score_name: str = "",
    n_rows: float = float("inf"),
    losses: Sequence[Array] | None = None,
) -> tuple[Compared, str]:
    """Return the cheapest fit that is as good as the best, and the reason; sizes are at most ``n_rows``.

    With the losses of all held-out rows, the standard error is that of the difference to the best on the same rows.
    """
    if score_name:
        at = max(range(len(rows)), key=lambda i: rows[i].score or 0.0)
        top = rows[at]
        if losses is None:
            good = [row for row in rows if (row.score or 0.0) >= (top.score or 0.0) - (top.noise or 0.0)]
        else:
            good = [row for row, each in zip(rows, losses, strict=True) if not _clearly_less(losses[at], each)]
        # Fewer landmarks than the default's must not score lower than it, and an equal fit needs no options.
        least = max((row.score or 0.0 for row in good if row.is_default), default=-np.inf)
        good = [row for row in good if (row.score or 0.0) >= least]
        best = min(good, key=lambda row: (row.n_landmarks, not row.is_default, row.error.value))
        most = max(row.n_landmarks for row in rows)
        more = "; more than were tried may still help" if best.n_landmarks == most < n_rows else ""
        if best is top:
            return best, f"its {score_name} of {best.score:.4f} on held-out rows is the best{more}"
        return best, (
            f"its {score_name} of {best.score:.4f} is within one standard error of the best ({top.score:.4f} with "
            f"{top.name}, {top.n_landmarks}), at the fewest landmarks{more}"
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
    """Return the name of a selector in the table."""
    if isinstance(selector, str):
        return selector
    if isinstance(selector, (np.ndarray, list, tuple)):
        return f"array of shape {np.shape(selector)}"
    return str(getattr(selector, "__name__", None) or repr(selector))


def _quoted(name: str) -> str:
    """Return the name as a value of ``landmarks``, quoted if it is a word."""
    return repr(name) if name in WORDS else name


def _figure(error: float) -> str:
    """Return an error with four decimals, or with two significant digits if it is small."""
    return f"{error:.4f}" if error == 0 or error >= 1e-3 else f"{error:.1e}"


def _is_classes(y: Array) -> bool:
    """Return whether a target holds classes: text, booleans, or few distinct whole numbers."""
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
    if y.dtype.kind in "fiu" and y.min() == y.max():
        raise ValueError(
            f"y is {y[0]} in every row, which leaves nothing to score. Leave y out to compare errors alone."
        )


def _in_memory(
    X: RowsLike, y: TargetLike, most_rows: int, n_jobs: int | None, rng: np.random.Generator, *, pairwise: bool
) -> tuple[Matrix, Array | None]:
    """Return at most ``most_rows`` rows as one matrix, with their target; of a kernel matrix, take the same columns."""
    rows = as_blocks(X)
    passes = Passes(rows, Resources(n_jobs=n_jobs).engine(rows))
    numbers, _ = draw_rows(rows.shape[0], most_rows, None, rng)
    if y is not None:
        require_unmasked(y, "y")
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
