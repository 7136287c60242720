"""Explain predictions: importances and partial dependence by original column, and the nearest rows.

All functions take a fitted machine, alone or as the last step of a pipeline. After a ``TableEncoder``, the encoded
columns of one table column (categories, gaps, cycles of a date) count as one. After other transformers, the columns are
those that the machine sees.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import RandomState, check_count, make_generator
from nystrom.engine import Resources
from nystrom.exceptions import MissingDependencyError
from nystrom.kernels import InMetric
from nystrom.rows import array_rows, as_blocks
from nystrom.rows.draw import draw_rows, take_with_targets
from nystrom.rows.files import open_rows
from nystrom.rows.reading import require_unmasked
from nystrom.tables import TableEncoder
from nystrom.tables.columns import Column
from nystrom.types import Array, RowsLike, TargetLike, to_dense

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More rows change a mean over rows little.
MOST_ROWS = 10_000
# Number of columns whose pairs are examined by default.
_MOST_PAIRED = 8
# Normal quantile for 95 % intervals.
_DEVIATIONS = 1.96


# Cycles of a date: what is counted, how many there are, the number of the first, and how many come before 1970-01-01,
# which was a Thursday.
_COUNTED = {
    "year": ("month", 12, 1, 0),
    "week": ("weekday", 7, 0, 3),
    "day": ("hour", 24, 0, 0),
}


class Span(NamedTuple):
    """The encoded columns of one original column, or of one cycle of a date."""

    name: str
    start: int
    stop: int
    column: Column | None = None
    cycle: str = ""

    @property
    def at(self) -> slice:
        return slice(self.start, self.stop)


class Opened(NamedTuple):
    """A machine and a sample of the rows that it sees, with their row numbers, and their targets if given."""

    machine: Any
    X: Array
    y: Array | None
    spans: tuple[Span, ...]
    numbers: Array
    n_rows: int


def open_model(
    model: Any,
    X: RowsLike,
    y: TargetLike = None,
    *,
    with_target: bool = False,
    max_rows: int | None = None,
    rng: np.random.Generator,
) -> Opened:
    """Return the machine of a model and at most ``max_rows`` rows as it sees them: one pass.

    If a target is needed, it is y, or else that of the rows or the table; table rows without a target are left out.
    """
    machine, rows = model, X
    if hasattr(model, "steps"):
        *before, (_, machine) = model.steps
        by_table = y is None and with_target and len(before) == 1 and isinstance(before[0][1], TableEncoder)
        rows = before[0][1].rows(X, need_target=True) if by_table else model[:-1].transform(X)
    check_is_fitted(machine)
    if isinstance(rows, (str, os.PathLike)):
        rows, y = open_rows(rows, target=y, columns=machine._columns), None
    blocks = as_blocks(rows)
    n, fitted = blocks.shape[0], getattr(machine, "feature_names_in_", None)
    if fitted is not None and blocks.feature_names is not None and list(fitted) != list(blocks.feature_names):
        raise ValueError(f"the columns of X must be those of the fit, in their order: {', '.join(map(repr, fitted))}.")
    if y is not None:
        require_unmasked(y, "y")
    if y is not None and np.asarray(y).shape[:1] != (n,):
        raise ValueError(f"y must have one target for each of the {n} rows of X; got the shape {np.asarray(y).shape}.")
    numbers, _ = draw_rows(n, n if max_rows is None else max_rows, None, rng)
    sample = take_with_targets(blocks, Resources().engine(blocks), numbers)
    target = sample.y if y is None else np.asarray(y)[numbers]
    if with_target and target is None:
        raise ValueError("the target of the rows is needed; give y, or rows that hold it.")
    return Opened(machine, np.asarray(to_dense(sample.X)), target, spans_of(model), numbers, n)


def spans_of(model: Any) -> tuple[Span, ...]:
    """Return the original columns of a fitted model, in the order of the columns that its machine sees."""
    *before, (_, machine) = getattr(model, "steps", [("machine", model)])
    encoder = before[0][1] if len(before) == 1 else None
    if not isinstance(encoder, TableEncoder):
        names = getattr(machine, "feature_names_in_", None)
        if names is None and before and hasattr(model[:-1], "get_feature_names_out"):
            names = model[:-1].get_feature_names_out()
        if names is None:
            names = [f"x{j}" for j in range(machine.n_features_in_)]
        return tuple(Span(str(name), j, j + 1) for j, name in enumerate(names))
    spans, start = [], 0
    for column in encoder.coding.used:
        spans.append(Span(column.name, start, start + len(column.features), column))
        start = spans[-1].stop
    return tuple(spans)


def answer(machine: Any, X: Array, *, probabilities: bool = False) -> Array:
    """Return predictions of shape (n, t): numbers, or for classifiers scores, or probabilities if requested."""
    if not hasattr(machine, "predict"):
        raise TypeError(
            f"{type(machine).__name__} predicts nothing that could be explained; give a machine with predict."
        )
    # Blocks, because an array without column names warns if the fit had names.
    rows = array_rows(X)
    if probabilities and hasattr(machine, "predict_proba"):
        values = np.asarray(machine.predict_proba(rows))
        return values[:, 1:] if values.shape[1] == 2 else values
    values = np.asarray(machine.decision_function(rows) if hasattr(machine, "classes_") else machine.predict(rows))
    return values.reshape(len(X), -1)


def metric_shares(machine: Any, spans: Sequence[Span]) -> Array | None:
    """Return the share of each original column in the metric of a machine; None if it has none or a plain one."""
    if not (isinstance(machine.map_.kernel, InMetric) and hasattr(machine, "feature_importances_")):
        return None
    shares = np.asarray(machine.feature_importances_)
    return np.array([shares[span.at].sum() for span in spans])


@dataclass(frozen=True)
class Importance:
    """How much worse a model scores when a column is shuffled.

    Attributes
    ----------
    columns : tuple of str
        The original columns.
    values, low, high : arrays of shape (columns,)
        The loss of score, and its 95 % interval over the rows.
    score, score_name : float, str
        The score on the unshuffled rows, and its name: "R²" or "accuracy".
    metric : array of shape (columns,) or None
        The share of each column in the metric of the machine, if it has one. It depends on units: in metres instead of
        kilometres it is a million times smaller. Compare shares only among columns of the same scale.
    n_rows : int
        Number of rows used.
    """

    columns: tuple[str, ...]
    values: Array
    low: Array
    high: Array
    score: float
    score_name: str
    metric: Array | None
    n_rows: int

    @property
    def order(self) -> Array:
        """The column numbers, most important first."""
        return np.argsort(-self.values, kind="stable")

    def __repr__(self) -> str:
        head = f"{self.score_name} {self.score:.4f} on {self.n_rows:,} rows; loss when a column is shuffled:"
        width = max(map(len, self.columns))
        shares = "" if self.metric is None else "   metric's share"
        lines = [
            f"{self.columns[j]:<{width}} {self.values[j]:8.4f}  [{self.low[j]:.4f}, {self.high[j]:.4f}]"
            + ("" if self.metric is None else f"   {self.metric[j]:.3f}")
            for j in self.order
        ]
        return "\n".join([head + shares, *lines])

    def to_frame(self) -> Any:
        """Return a pandas frame with a row per column, the most important first."""
        table = {"column": list(self.columns), "importance": self.values, "low": self.low, "high": self.high}
        return make_frame(table if self.metric is None else {**table, "metric": self.metric}).iloc[self.order]

    def plot(self, *, most: int = 20, ax: Axes | None = None) -> Axes:
        """Draw the losses with their intervals as bars, the largest first, and return the Axes."""
        from nystrom.plotting import plot_importance

        return plot_importance(self, most=most, ax=ax)


def permutation_importance(
    model: Any,
    X: RowsLike,
    y: TargetLike = None,
    *,
    n_repeats: int = 5,
    max_rows: int = MOST_ROWS,
    random_state: RandomState = 0,
) -> Importance:
    """Return how much worse a model scores when the values of one original column are shuffled among the rows.

    Columns with the same information share their importance, because each can replace the other. Use held-out rows.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted machine with a target, or a pipeline that ends with one.
    X, y : rows and their target
        y may be omitted if the rows hold it; for a path, it is the name of its column.
    n_repeats : int
        Shuffles per column; their losses are averaged.
    max_rows : int
        Rows drawn from X, at most.
    random_state : int, Generator, RandomState or None
        Seed.

    Examples
    --------
    >>> import numpy as np, nystrom
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = nystrom.KernelRidge(n_landmarks=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> found = permutation_importance(model, X, np.sin(X[:, 0]))
    >>> bool(found.values[0] > 1 > 0.1 > found.values[1])
    True
    """
    rng = make_generator(random_state)
    check_count(n_repeats, "n_repeats")
    most = check_count(max_rows, "max_rows", least=2)
    return importance_of(open_model(model, X, y, with_target=True, max_rows=most, rng=rng), n_repeats, rng)


def importance_of(
    opened: Opened, n_repeats: int, rng: np.random.Generator, advance: Callable[[int], None] = lambda rows: None
) -> Importance:
    """Return the permutation importance of an opened model; ``advance`` is called with the number of rows predicted."""
    machine, rows, spans = opened.machine, opened.X, opened.spans
    lose, name = _losses(machine, np.asarray(opened.y))
    plain = lose(rows)
    values, noise = np.zeros(len(spans)), np.zeros(len(spans))
    for j, span in enumerate(spans):
        worse = np.zeros(len(rows))
        for _ in range(n_repeats):
            shuffled = rows.copy()
            shuffled[:, span.at] = rows[rng.permutation(len(rows)), span.at]
            worse += (lose(shuffled) - plain) / n_repeats
            advance(len(rows))
        values[j], noise[j] = worse.mean(), worse.std(ddof=1) / math.sqrt(len(rows))
    low, high = values - _DEVIATIONS * noise, values + _DEVIATIONS * noise
    columns = tuple(span.name for span in spans)
    shares = metric_shares(machine, spans)
    return Importance(columns, values, low, high, 1 - float(plain.mean()), name, shares, len(rows))


def leading_columns(model: Any, *, n_repeats: int = 5, random_state: RandomState = 0) -> list[tuple[str, float]]:
    """Return the original columns of a model with their shares, largest first; no rows are needed.

    The share is that of the mean squared change of the predictions for the landmarks when the values of the column are
    shuffled among the landmarks. It shows what the model uses, not what improves its score: for that, see
    :func:`permutation_importance`. Empty for machines without a target or whose rows have no coordinates.
    """
    machine = model.steps[-1][1] if hasattr(model, "steps") else model
    if not hasattr(machine, "landmark_coef_") or not machine.map_.kernel.has_coordinates:
        return []
    rng, rows = make_generator(random_state), np.asarray(to_dense(machine.landmarks_))
    plain, spans = answer(machine, rows), spans_of(model)
    changes = np.zeros(len(spans))
    for j, span in enumerate(spans):
        for _ in range(n_repeats):
            shuffled = rows.copy()
            shuffled[:, span.at] = rows[rng.permutation(len(rows)), span.at]
            changes[j] += float(np.square(answer(machine, shuffled) - plain).sum())
    shares = changes / (changes.sum() or 1.0)
    return [(spans[j].name, float(shares[j])) for j in np.argsort(-shares, kind="stable")]


def _losses(machine: Any, y: Array) -> tuple[Callable[[Array], Array], str]:
    """Return the function from rows to losses whose mean is 1 minus the score, and the name of the score."""
    if hasattr(machine, "classes_"):
        return lambda X: (np.asarray(machine.predict(array_rows(X))) != y).astype(float), "accuracy"
    truth = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    spread = float(np.square(truth - truth.mean(axis=0)).sum(axis=1).mean())
    if spread == 0:
        raise ValueError("the target is the same in every row, so nothing can be said about what it depends on.")
    return lambda X: np.square(answer(machine, X) - truth).sum(axis=1) / spread, "R²"


@dataclass(frozen=True)
class Dependence:
    """The mean prediction when one column has the same value in every row.

    Attributes
    ----------
    column : str
        The original column.
    grid : array of shape (g,)
        Values of the column that occur in the rows: numbers, dates, or text for categories.
    values : array of shape (g, t)
        Mean predictions: numbers, or for classifiers probabilities, or scores if the machine has no probabilities.
    lines : array of shape (rows, g, t)
        The prediction for each row.
    outputs : tuple of str
        Names of the t outputs.
    """

    column: str
    grid: Array
    values: Array
    lines: Array
    outputs: tuple[str, ...]

    def __repr__(self) -> str:
        table = zip(self.grid, self.values, strict=True)
        rows = [f"{_shown(at):>12} " + " ".join(f"{value:10.4g}" for value in values) for at, values in table]
        return "\n".join([f"{self.column:>12} " + " ".join(f"{name:>10}" for name in self.outputs), *rows])

    def to_frame(self) -> Any:
        """Return a pandas frame with the grid and a column per output."""
        return make_frame({self.column: self.grid, **dict(zip(self.outputs, self.values.T, strict=True))})

    def plot(self, *, lines: bool = True, ax: Axes | None = None) -> Axes:
        """Draw the means, and the ``lines`` of single rows behind a single output; return the Axes."""
        from nystrom.plotting import plot_dependence

        return plot_dependence(self, lines=lines, ax=ax)


def partial_dependence(
    model: Any, X: RowsLike, column: str, *, n_points: int = 20, max_rows: int = 200, random_state: RandomState = 0
) -> Dependence:
    """Return how the predictions for some rows change when one original column is set to each of several values.

    The values are quantiles of the column's values in X, or its categories. If columns
    depend on each other, some of the rows made this way may be unlike any real row. Each grid point of a date is one
    day, with its position in the year and the week.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted machine with a target, or a pipeline that ends with one.
    X : rows
        Any rows.
    column : str
        Its name; "x0", "x1", … if columns have no names.
    n_points, max_rows : int
        Maximum numbers of values and rows. The cost is one prediction for each pair of them.
    random_state : int, Generator, RandomState or None
        Seed.
    """
    rng = make_generator(random_state)
    check_count(n_points, "n_points", least=2)
    opened = open_model(model, X, max_rows=MOST_ROWS, rng=rng)
    named = {span.name: span for span in opened.spans}
    if column not in named:
        raise ValueError(f"column must be one of {', '.join(map(repr, named))}; got {column!r}.")
    return dependence_of(opened, named[column], n_points, check_count(max_rows, "max_rows"), rng)


def parts_of(span: Span) -> list[Span]:
    """Return the cycles of a date and its trend, as spans of their own; other columns as they are."""
    if span.column is None or not span.column.cycles:
        return [span]
    cycles = span.column.cycles
    starts = [span.start + 1 + 2 * j for j in range(len(cycles))]
    waves = [Span(f"{span.name}, {_COUNTED[c][0]}", at, at + 2, None, c) for c, at in zip(cycles, starts, strict=True)]
    column = replace(span.column, cycles=(), missing=False)
    return [*waves[::-1], Span(f"{span.name}, trend", span.start, span.start + 1, column)]


def dependence_of(opened: Opened, span: Span, n_points: int, max_rows: int, rng: np.random.Generator) -> Dependence:
    """Return the partial dependence of an opened model on one column."""
    machine = opened.machine
    grid, parts = _grid(opened.X[:, span.at], span, n_points)
    rows = opened.X[draw_rows(len(opened.X), max_rows, None, rng)[0]]
    lines = []
    for part in parts:
        rows[:, span.at] = part
        lines.append(answer(machine, rows, probabilities=True))
    found = np.stack(lines, axis=1)
    if hasattr(machine, "classes_"):
        names = machine.classes_[-found.shape[2] :]
    else:
        names = ["prediction"] if found.shape[2] == 1 else [f"target {j}" for j in range(found.shape[2])]
    return Dependence(span.name, grid, found.mean(axis=0), found, tuple(map(str, names)))


def _grid(rows: Array, span: Span, n_points: int) -> tuple[Array, Array]:
    """Return values of a column and their encoded columns, both taken from rows."""
    column = span.column
    if span.cycle:
        _, count, first_number, before = _COUNTED[span.cycle]
        places = np.linspace(0, count, 2 * count + 1)
        angle = 2 * np.pi * (places - before) / count
        return places + first_number, np.column_stack([np.sin(angle), np.cos(angle)])
    if column is not None and column.kind == "category":
        names = np.array([*column.categories, *["(other)"] * column.other, *["(missing)"] * column.missing])
        if column.codes:
            codes = np.unique(rows[rows >= 0])[:n_points]  # the first are the most frequent
            return names[np.minimum(codes.astype(int), len(names) - 1)], codes[:, None]
        seen = np.flatnonzero(rows.any(axis=0))
        return names[seen], np.eye(rows.shape[1])[seen]
    if column is not None and column.missing:
        rows = rows[rows[:, -1] == 0] if (rows[:, -1] == 0).any() else rows
    _, first = np.unique(rows[:, 0], return_index=True)
    # np.unique sorts: ``first`` lists one row per distinct value, in ascending order.
    if len(first) > n_points:
        order = np.argsort(rows[:, 0], kind="stable")
        # Both tails hold few rows, so estimates there would be unreliable.
        places = np.quantile(np.arange(len(rows)), np.linspace(0.01, 0.99, n_points), method="nearest")
        first = order[np.unique(places.astype(int))]
        first = first[np.unique(rows[first, 0], return_index=True)[1]]
    parts = rows[first]
    values = parts[:, 0] if column is None else parts[:, 0] * column.scale + column.mean
    if column is not None and column.kind == "date":
        values = (values * 86_400).round().astype("datetime64[s]")
    return values, parts


@dataclass(frozen=True)
class Interactions:
    """How strongly pairs of columns interact.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Pairs of original columns, the strongest first.
    values : array of shape (pairs,)
        Friedman's H: the deviation of the joint effect from the sum of both, as a share of the deviation of the joint
        effect. 0 where the effects add up.
    """

    pairs: tuple[tuple[str, str], ...]
    values: Array

    def __repr__(self) -> str:
        return "\n".join(f"{a} × {b}: {value:.3f}" for (a, b), value in zip(self.pairs, self.values, strict=True))

    def to_frame(self) -> Any:
        """Return a pandas frame with a row per pair, the strongest first."""
        first, second = zip(*self.pairs, strict=True)
        return make_frame({"first": list(first), "second": list(second), "interaction": self.values})

    def plot(self, *, most: int = 15, ax: Axes | None = None) -> Axes:
        """Draw the values as bars, strongest first, and return the Axes."""
        from nystrom.plotting import plot_shapley

        names = [f"{a} × {b}" for a, b in self.pairs]
        ax = plot_shapley(self.values[None], 0.0, names, most=most, ax=ax)
        ax.set_xlabel("interaction (H)")
        return ax


def interactions(
    model: Any,
    X: RowsLike,
    columns: Sequence[str] | None = None,
    *,
    max_rows: int = 50,
    random_state: RandomState = 0,
) -> Interactions:
    """Return how strongly each pair of original columns interacts, by partial dependence.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted machine with a target, or a pipeline that ends with one.
    X : rows
        Any rows.
    columns : sequence of str, optional
        The columns to pair; by default the eight that predictions depend on most.
    max_rows : int
        Rows drawn from X. The cost is one prediction for every two rows and every pair of columns.
    random_state : int, Generator, RandomState or None
        Seed.

    Notes
    -----
    An effect smaller than a tenth of the deviation of the predictions counts as zero, since its H is noise.
    """
    rng = make_generator(random_state)
    opened = open_model(model, X, max_rows=check_count(max_rows, "max_rows", least=2), rng=rng)
    named = {span.name: span for span in opened.spans}
    for name in columns or ():
        if name not in named:
            raise ValueError(f"columns must be among {', '.join(map(repr, named))}; got {name!r}.")
    rows, machine = opened.X, opened.machine
    n = len(rows)

    def effect(*spans: Span) -> Array:
        """Return, for each row, the centred mean prediction if all rows had its values in these columns, (n, t)."""
        mixed = np.repeat(rows[None], n, axis=0)
        for span in spans:
            mixed[:, :, span.at] = rows[:, None, span.at]
        found = answer(machine, mixed.reshape(n * n, -1)).reshape(n, n, -1).mean(axis=1)
        return np.asarray(found - found.mean(axis=0))

    alone = {name: effect(span) for name, span in named.items() if columns is None or name in columns}
    kept = sorted(alone, key=lambda name: -float(np.square(alone[name]).sum()))[: None if columns else _MOST_PAIRED]
    spread = float(np.square(answer(machine, rows) - answer(machine, rows).mean(axis=0)).sum())
    found = []
    for i, first in enumerate(kept):
        for second in kept[i + 1 :]:
            joint = effect(named[first], named[second])
            whole = float(np.square(joint).sum())
            left = float(np.square(joint - alone[first] - alone[second]).sum())
            found.append(((first, second), math.sqrt(left / whole) if whole > 0.01 * spread > 0 else 0.0))
    found.sort(key=lambda pair: -pair[1])
    if not found:
        raise ValueError("interactions need at least 2 columns.")
    return Interactions(tuple(pair for pair, _ in found), np.array([value for _, value in found]))


@dataclass(frozen=True)
class Nearest:
    """The landmarks or rows most similar to some rows.

    Attributes
    ----------
    indices : int array of shape (n, count)
        Numbers of the landmarks, or of the rows in ``among``; most similar first.
    similarities : array of shape (n, count)
        ``k(x, z) / √(k(x, x) k(z, z))``, with the kernel of the machine: 1 for equal rows.
    """

    indices: Array
    similarities: Array

    def __repr__(self) -> str:
        return "\n".join(
            " ".join(f"{at}: {value:.3f}" for at, value in zip(*pair, strict=True))
            for pair in zip(self.indices, self.similarities, strict=True)
        )


def nearest(model: Any, X: RowsLike, among: RowsLike = None, *, count: int = 5) -> Nearest:
    """Return the rows that the kernel considers most similar to each row of X; its prediction depends on them most.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted machine, or a pipeline that ends with one.
    X : rows
        Any rows.
    among : rows, optional
        The rows to search, such as the training rows; by default the landmarks (``landmarks_``).
    count : int
        Number of neighbours per row.

    Examples
    --------
    >>> import numpy as np, nystrom
    >>> X = np.arange(10.0)[:, None]
    >>> nearest(nystrom.Nystroem(n_components=5, random_state=0).fit(X), X[:1], X, count=2).indices
    array([[0, 1]])
    """
    rng = make_generator(0)
    opened = open_model(model, X, rng=rng)
    kernel, rows = opened.machine.map_.kernel, opened.X
    if not kernel.has_coordinates:
        raise ValueError("kernel='precomputed' has no rows to compare: its matrix holds the similarities.")
    points = to_dense(opened.machine.landmarks_) if among is None else open_model(model, among, rng=rng).X
    points = np.asarray(points, dtype=rows.dtype)
    sizes = np.sqrt(np.outer(kernel.diag(rows), kernel.diag(points)))
    similar = np.divide(kernel(rows, points), sizes, out=np.zeros_like(sizes), where=sizes > 0)
    order = np.argsort(-similar, axis=1, kind="stable")[:, : check_count(count, "count")]
    return Nearest(order, np.take_along_axis(similar, order, axis=1))


def _shown(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[D]"))
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def make_frame(table: dict[str, Any]) -> Any:
    try:
        return import_module("pandas").DataFrame(table)
    except ImportError as error:
        raise MissingDependencyError("pandas", "dask", "A data frame") from error
