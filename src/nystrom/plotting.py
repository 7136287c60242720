"""Pictures of fitted estimators and of stored results. Only this file imports matplotlib, on use.

Every function draws into ``ax`` (a new figure's if None) and returns the Axes. Colours are those of Okabe and
Ito, which survive colour blindness; lines differ in marker as well, which survives grey print.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom.disk import replacing
from nystrom.exceptions import MissingDependencyError
from nystrom.rows import as_blocks
from nystrom.types import Array, Matrix, RowsLike, TargetLike, issparse, to_dense

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PICTURE_FORMATS = ("png", "svg", "pdf")
_INK, _GREY, _PALE, _GRID = "#222222", "#6b6b6b", "#d9d9d9", "#ececec"


def plot_spectrum(estimator: Any, *, best: Array | None = None, ax: Axes | None = None) -> Axes:
    """Plot the eigenvalues of the approximate kernel matrix, largest first, on a logarithmic axis.

    Eigenvalues beyond the rank are drawn pale if the fit has kept them.

    Parameters
    ----------
    estimator : fitted estimator
        Anything with ``eigenvalues_``.
    best : array, optional
        The exact eigenvalues of K, or better estimates of them, drawn as a dashed line.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    eigenvalues = _fitted(estimator, "eigenvalues_")
    ax = _axes(ax)
    kept = len(eigenvalues)
    spanned = _spanned_eigenvalues(estimator)
    if best is not None:
        values = np.asarray(best, dtype=np.float64)
        ax.plot(np.arange(1, len(values) + 1), values, color=_INK, linestyle="--", linewidth=1.2, label="best possible")
    if len(spanned) > kept:
        ranks = np.arange(kept + 1, len(spanned) + 1)
        ax.plot(ranks, spanned[kept:], color=_GREY, marker="o", markersize=2, linewidth=0, label="cut")
        ax.axvline(kept + 0.5, color=_PALE, linewidth=1.2, zorder=0)
    ranks = np.arange(1, kept + 1)
    ax.plot(ranks, eigenvalues, color=PALETTE[0], marker="o", markersize=3, linewidth=1.2, label="kept")
    if best is not None or len(spanned) > kept:
        ax.legend(frameon=False)
    ax.set(yscale="log", xlabel="rank", ylabel="eigenvalue of the kernel matrix")
    return _tidy(ax)


def plot_comparison(comparison: Any, *, score: bool = False, ax: Axes | None = None) -> Axes:
    """Plot the errors of a comparison with their intervals against the number of landmarks, one line per selector.

    Parameters
    ----------
    comparison : Comparison
        What :func:`nystrom.compare` returned.
    score : bool, default=False
        Whether to draw the scores with their standard errors instead.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    if score and not comparison.score_name:
        raise ValueError("the comparison has no scores: it was made without a target.")
    ax = _axes(ax)
    groups: dict[str, list[Any]] = {}
    for row in comparison.rows:
        groups.setdefault(row.name, []).append(row)
    for i, (name, rows) in enumerate(groups.items()):
        at = [row.n_landmarks for row in rows]
        value = np.array([row.score if score else row.error.value for row in rows])
        low = np.array([row.score - row.noise if score else row.error.low for row in rows])
        high = np.array([row.score + row.noise if score else row.error.high for row in rows])
        style: dict[str, Any] = {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)]}
        bars = np.maximum([value - low, high - value], 0.0)
        ax.errorbar(at, value, yerr=bars, capsize=3, markersize=5, linewidth=1.6, label=name, **style)
    best = comparison.best
    ring = best.score if score else best.error.value
    hollow: dict[str, Any] = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": _INK, "linewidth": 0}
    ax.plot([best.n_landmarks], [ring], marker="o", label="recommended", **hollow)
    ax.set(xscale="log", yscale="linear" if score else "log", xlabel="number of landmarks")
    ax.set_ylabel(f"{comparison.score_name} on held-out rows" if score else "relative error")
    sizes = sorted({row.n_landmarks for row in comparison.rows})
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.set_xticks([], minor=True)
    if not score:
        # Errors often lie within one power of ten, where only minor ticks appear.
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(lambda at, _: f"{at:g}" if f"{at:e}"[0] in "25" else "")
    ax.legend(frameon=False)
    return _tidy(ax)


def plot_residuals(estimator: Any, X: RowsLike, *, ax: Axes | None = None) -> Axes:
    """Plot the share of each row that the landmarks leave unexplained, largest first: one pass over X.

    Rows above the dotted line are explained to less than a tenth: they are rare, or far from all others.

    Parameters
    ----------
    estimator : fitted estimator
        It has the method :meth:`residual`.
    X : rows
        Any rows.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    _fitted(estimator, "landmarks_")
    left = np.asarray(estimator.residual(X), dtype=np.float64)
    whole = _diagonal(estimator, X)
    share = np.sort(np.divide(left, whole, out=np.zeros_like(left), where=whole > 0))[::-1]
    ax = _axes(ax)
    ax.plot(100 * np.arange(1, len(share) + 1) / len(share), share, color=PALETTE[0], linewidth=1.6)
    ax.axhline(0.9, color=_GREY, linestyle=":", linewidth=1.2)
    lost = int(np.sum(share > 0.9))
    ax.annotate(
        f"{lost:,} of {len(share):,} rows lost", (0.97, 0.92), xycoords="axes fraction", ha="right", va="center"
    )
    ax.set(xlabel="rows, per cent", ylabel="share of k(x, x) not explained", ylim=(0, 1.02), xlim=(0, 100))
    return _tidy(ax)


def plot_error(
    rows: Iterable[Mapping[str, Any]],
    *,
    x: str = "n_landmarks",
    by: str = "selector",
    best: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot stored errors, one line per method: the mean over repeats, and a band of one standard deviation or interval.

    Parameters
    ----------
    rows : iterable of mappings
        One per run, with the keys ``x``, ``by`` and ``"error"``: a number, or an error with its interval
        (``approximation_error``), in which case the band is between the mean ends. Nothing else is computed.
    x, by : str
        The key of the horizontal axis, and the key that names the method.
    best : float, optional
        The best possible error, drawn as a dashed line.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    groups: dict[str, dict[float, list[Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[by]), {}).setdefault(row[x], []).append(row["error"])
    if not groups:
        raise ValueError("rows must hold at least one result; got none.")
    ax = _axes(ax)
    for i, (name, group) in enumerate(groups.items()):
        at = np.array(sorted(group))
        low, mean, high = np.array([_band(group[value]) for value in at]).T
        colour = PALETTE[i % len(PALETTE)]
        ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        marker = MARKERS[i % len(MARKERS)]
        ax.plot(at, mean, color=colour, marker=marker, markersize=5, linewidth=1.8, label=name)
    if best is not None:
        ax.axhline(best, color=_INK, linestyle="--", linewidth=1.2, label="best possible")
    ax.set(xlabel=x.replace("n_", "number of "), ylabel="relative error")
    ax.legend(frameon=False)
    return _tidy(ax)


def _band(errors: list[Any]) -> Array:
    """Return the lower end of the band, the mean, and the upper end of some errors."""
    # No isinstance check: the command line imports this file on every call, and the type is slow to import.
    if all(hasattr(error, "high") for error in errors):
        return np.mean([(error.low, error.value, error.high) for error in errors], axis=0)
    return np.mean(errors) + np.std(errors) * np.array([-1.0, 0.0, 1.0])


def plot_band(
    estimator: Any,
    X: RowsLike = None,
    y: TargetLike = None,
    *,
    n_std: float = 2.0,
    include_noise: bool = True,
    n_points: int = 300,
    ax: Axes | None = None,
) -> Axes:
    """Plot the mean of a Gaussian process with one input, and a band of ``n_std`` deviations around it.

    Parameters
    ----------
    estimator : fitted GaussianProcessRegressor
        With one column of input and one target.
    X, y : arrays of shape (n, 1) and (n,), optional
        Rows to draw as points; without X the picture spans the landmarks.
    n_std : float, default=2.0
        Half the width of the band, in standard deviations.
    include_noise : bool, default=True
        Whether the band is for new targets, rather than for the function without noise.
    n_points : int, default=300
        Places at which the process is evaluated.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    Z = _fitted(estimator, "landmarks_")
    if Z.shape[1] != 1 or estimator.landmark_coef_.shape[1] != 1:
        raise ValueError(
            f"a band is drawn over one column of input and for one target; this machine has {Z.shape[1]} column(s) and "
            f"{estimator.landmark_coef_.shape[1]} target(s)."
        )
    span = np.asarray(to_dense(Z)).ravel()
    if X is not None:
        span = np.concatenate([span, np.ravel(np.asarray(X, dtype=float))])
    at = np.linspace(span.min(), span.max(), n_points)
    mean, std = (np.ravel(v) for v in estimator.predict(at[:, None], return_std=True, include_noise=include_noise))
    ax = _axes(ax)
    ax.fill_between(at, mean - n_std * std, mean + n_std * std, color=PALETTE[0], alpha=0.2, linewidth=0,
                    label=f"± {n_std:g} deviations" + (" of a new target" if include_noise else ""))  # fmt: skip
    ax.plot(at, mean, color=PALETTE[0], linewidth=1.8, label="mean")
    if X is not None and y is not None:
        ax.plot(
            np.ravel(np.asarray(X)), np.ravel(np.asarray(y)), ".", color=_INK, markersize=3, alpha=0.5, label="rows"
        )
    ax.set(xlabel="x", ylabel="y")
    ax.legend(frameon=False)
    return _tidy(ax)


def plot_alpha_path(estimator: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the score of every regularisation that a ridge tried, and mark the one chosen.

    Parameters
    ----------
    estimator : fitted KernelRidge
        With ``alpha`` a list or "auto", so that it has ``alphas_``, ``alpha_scores_`` and ``alpha_``.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    alphas, scores = _fitted(estimator, "alphas_"), _fitted(estimator, "alpha_scores_")
    chosen = float(np.ravel(_fitted(estimator, "alpha_"))[0])
    order = np.argsort(alphas)
    ax = _axes(ax)
    ax.plot(alphas[order], scores[order], color=PALETTE[0], linewidth=1.8)
    score = float(scores[np.argmin(np.abs(alphas - chosen))])
    ax.plot([chosen], [score], "o", color=PALETTE[1], markersize=7, label=f"chosen: {chosen:.3g}")
    ax.set(xscale="log", xlabel="alpha", ylabel=f"{getattr(estimator, 'selection', 'selection')} score")
    ax.legend(frameon=False)
    return _tidy(ax)


def plot_search(estimator: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the held-out losses in ``search_`` of a fitted machine against time, and the best so far."""
    tried = _fitted(estimator, "search_")
    seconds, scores, errors = (np.array([one[i] for one in tried], dtype=float) for i in (0, 2, 3))
    ax = _axes(ax)
    ax.errorbar(seconds, scores, yerr=errors, fmt="o", color=PALETTE[0], markersize=4, linewidth=0.8, label="tried")
    ax.step(seconds, np.minimum.accumulate(scores), where="post", color=PALETTE[1], linewidth=1.8, label="best so far")
    ax.set(xlabel="seconds", ylabel="held-out loss", yscale="log" if scores.min() > 0 else "linear")
    ax.legend(frameon=False)
    return _tidy(ax)


def plot_metric(
    estimator: Any, *, matrix: bool = False, names: Iterable[str] | None = None, most: int = 20, ax: Axes | None = None
) -> Axes:
    """Plot the importance of each column in a metric, largest first; or the metric's matrix for those columns.

    Parameters
    ----------
    estimator : fitted machine with a metric
        It has ``metric_`` and ``feature_importances_``.
    matrix : bool
        Whether to draw the matrix M, which also shows the columns that are combined.
    names : iterable of str, optional
        Names of all columns; by default those seen in the fit, or numbers.
    most : int
        Columns shown at most.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    importances, metric = _fitted(estimator, "feature_importances_"), np.asarray(_fitted(estimator, "metric_"))
    seen = getattr(estimator, "feature_names_in_", range(len(importances)))
    labels = [str(name) for name in (seen if names is None else names)]
    if len(labels) != len(importances):
        raise ValueError(f"names must have one name for each of the {len(importances)} columns; got {len(labels)}.")
    shown = np.argsort(-importances, kind="stable")[:most]
    ticks = [labels[i] for i in shown]
    ax = _axes(ax)
    if matrix:
        M = np.diag(metric**2) if metric.ndim == 1 else metric
        part = M[np.ix_(shown, shown)]
        largest = float(np.abs(part).max())
        image = ax.imshow(part, cmap="RdBu_r", vmin=-largest, vmax=largest)
        ax.figure.colorbar(image, ax=ax, label="entry of the metric")
        ax.set_xticks(range(len(shown)), ticks, rotation=90)
        ax.set_yticks(range(len(shown)), ticks)
        return ax
    ax.barh(np.arange(len(shown)), importances[shown], color=PALETTE[0])
    ax.set_yticks(range(len(shown)), ticks)
    ax.invert_yaxis()
    ax.set(xlabel="share of the metric", ylabel="column")
    return _tidy(ax)


def plot_importance(importance: Any, *, most: int = 20, ax: Axes | None = None) -> Axes:
    """Plot the loss of score from shuffling each column, with intervals; see :class:`nystrom.explanation.Importance`.

    Parameters
    ----------
    importance : Importance
        Of :func:`nystrom.explanation.permutation_importance`.
    most : int
        Columns shown at most.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax = _axes(ax)
    shown = importance.order[:most]
    value = importance.values[shown]
    bars = np.maximum([value - importance.low[shown], importance.high[shown] - value], 0.0)
    ax.barh(range(len(shown)), value, xerr=bars, color=PALETTE[0], ecolor=_GREY, capsize=2)
    ax.set_yticks(range(len(shown)), [_short(importance.columns[j]) for j in shown])
    ax.invert_yaxis()
    ax.set_xlabel(f"loss of {importance.score_name} when the column is shuffled")
    return _tidy(ax)


def plot_dependence(dependence: Any, *, lines: bool = True, most: int = 50, ax: Axes | None = None) -> Axes:
    """Plot mean predictions against the values of a column; see :class:`nystrom.explanation.Dependence`.

    Parameters
    ----------
    dependence : Dependence
        Of :func:`nystrom.explanation.partial_dependence`.
    lines : bool
        Whether to draw single rows behind the mean, where there is one output: lines, or points for categories.
    most : int
        Single rows shown at most.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax = _axes(ax)
    values, outputs = dependence.values, [_short(name) for name in dependence.outputs]
    column, said = _short(dependence.column), outputs[0] if len(outputs) == 1 else "mean share of each class"
    if dependence.grid.dtype.kind == "U":
        at = np.arange(len(dependence.grid))
        if lines and len(outputs) == 1:
            ax.plot(dependence.lines[:most, :, 0].T, at, ".", color=_PALE, markersize=4)
        for k, name in enumerate(outputs):
            colour = _class_colour(k, len(outputs))
            ax.plot(values[:, k], at, MARKERS[k % len(MARKERS)], color=colour, label=name)
        ax.set_yticks(at, [_short(name) for name in dependence.grid])
        ax.invert_yaxis()
        ax.set(ylabel=column, xlabel=said)
    else:
        if lines and len(outputs) == 1:
            ax.plot(dependence.grid, dependence.lines[:most, :, 0].T, color=_PALE, linewidth=0.6)
        for k, name in enumerate(outputs):
            ax.plot(dependence.grid, values[:, k], color=_class_colour(k, len(outputs)), linewidth=2, label=name)
        ax.set(xlabel=column, ylabel=said)
        if dependence.grid.dtype.kind == "M":
            form = import_module("matplotlib.dates").ConciseDateFormatter(ax.xaxis.get_major_locator())
            ax.xaxis.set_major_formatter(form)
    if len(outputs) > 1:
        ax.legend(frameon=False)
    return _tidy(ax)


def plot_shapley(
    values: Array,
    base: float,
    columns: Sequence[str],
    *,
    row: int | None = None,
    most: int = 15,
    ax: Axes | None = None,
) -> Axes:
    """Plot the mean size of each column's Shapley values, or for one row the steps from the base to its prediction.

    Parameters
    ----------
    values, base, columns
        As in :class:`nystrom.shapley.Explanation`, for one output.
    row : int, optional
        The row to draw.
    most : int
        Columns shown at most; in the picture of a row, the others are drawn as one.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax, sizes = _axes(ax), np.abs(values).mean(axis=0) if row is None else values[row]
    order = np.argsort(-np.abs(sizes), kind="stable")
    steps, names = sizes[order[:most]], [_short(columns[j]) for j in order[:most]]
    if row is None:
        ax.barh(range(len(steps)), steps, color=PALETTE[0])
        ax.set_xlabel("mean size of the Shapley value")
    else:
        if len(order) > most:
            steps, names = np.append(steps, sizes[order[most:]].sum()), [*names, f"{len(order) - most} others"]
        lefts = base + np.concatenate([[0.0], np.cumsum(steps)[:-1]])
        ax.use_sticky_edges = False
        ax.barh(range(len(steps)), steps, left=lefts, color=[PALETTE[int(step < 0)] for step in steps])
        ax.axvline(base, color=_GREY, linestyle=":", linewidth=1.2)
        ax.axvline(base + steps.sum(), color=_INK, linestyle="--", linewidth=1.2)
        ax.set_xlabel(f"from the base value {base:.4g} to the prediction {base + steps.sum():.4g}")
    ax.set_yticks(range(len(steps)), names)
    ax.invert_yaxis()
    return _tidy(ax)


def plot_swarm(
    values: Array, data: Array | None, columns: Sequence[str], *, most: int = 15, ax: Axes | None = None
) -> Axes:
    """Plot a point per row and column at its Shapley value, coloured by the rank of the column's value.

    Parameters
    ----------
    values, columns
        As in :class:`nystrom.shapley.Explanation`, for one output.
    data : array of shape (n, columns) or None
        Values of the columns; NaN is drawn in grey.
    most : int
        Columns shown at most.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax = _axes(ax)
    order = np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:most]
    ax.axvline(0.0, color=_GREY, linewidth=1.0)
    for place, j in enumerate(order):
        column, known = values[:, j], data is not None and np.isfinite(data[:, j]).all()
        # Points in each of 40 bins are spread evenly about the line; the fullest bin has the full width.
        bins = np.digitize(column, np.linspace(column.min(), column.max(), 40))
        rank = np.array([np.count_nonzero(bins[:i] == at) for i, at in enumerate(bins)])
        count = np.bincount(bins)
        heights = place + 0.8 * (rank - (count[bins] - 1) / 2) / max(int(count.max()), 8)
        shade: dict[str, Any] = {"color": _GREY}
        if known and data is not None:
            shade = {"c": np.argsort(np.argsort(data[:, j])), "cmap": "viridis"}
        drawn = ax.scatter(column, heights, s=6, linewidths=0, **shade)
        if known and place == 0:
            ax.figure.colorbar(drawn, ax=ax, ticks=[], label="value of the column, low to high")
    ax.set_yticks(range(len(order)), [_short(columns[j]) for j in order])
    ax.set_xlabel("Shapley value")
    ax.invert_yaxis()
    return _tidy(ax)


def plot_calibration(calibration: Array, *, ax: Axes | None = None) -> Axes:
    """Plot how often predicted classes are right against their predicted probability.

    Parameters
    ----------
    calibration : array of shape (3, bins)
        Rows, sum of probabilities, and correct rows per bin; see :class:`nystrom.scoring.ClassScores`.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax = _axes(ax)
    rows, likely, right = calibration[:, calibration[0] > 0]
    ax.plot([0, 1], [0, 1], color=_GREY, linestyle=":", linewidth=1.2, label="well calibrated")
    ax.plot(likely / rows, right / rows, color=PALETTE[0], marker="o", linewidth=1.8, label="these rows")
    ax.set(xlabel="probability given", ylabel="share that was right", xlim=(0, 1.02), ylim=(0, 1.02))
    ax.legend(frameon=False)
    return _tidy(ax)


def plot_errors(truth: Array, guess: Array, *, ax: Axes | None = None) -> Axes:
    """Plot the residuals, truth − prediction, against the predictions.

    Parameters
    ----------
    truth, guess : arrays of shape (n,)
        Targets and predictions.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax = _axes(ax)
    ax.axhline(0, color=_GREY, linestyle=":", linewidth=1.2)
    ax.scatter(guess, truth - guess, s=8, color=PALETTE[0], alpha=0.4, linewidth=0)
    ax.set(xlabel="prediction", ylabel="truth − prediction")
    return _tidy(ax)


def plot_scores(sizes: Sequence[int], scores: Sequence[float], name: str, *, ax: Axes | None = None) -> Axes:
    """Plot a score against the number of landmarks, on a logarithmic axis.

    Parameters
    ----------
    sizes, scores : sequences of numbers
        Numbers of landmarks, and the score of each.
    name : str
        Name of the score.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    ax = _axes(ax)
    ax.plot(sizes, scores, color=PALETTE[0], marker="o", linewidth=1.8)
    # The axis spans at least 0.05, so that small random changes do not look large.
    middle, half = (max(scores) + min(scores)) / 2, max(0.025, 0.6 * (max(scores) - min(scores)))
    ax.set(xscale="log", xlabel="number of landmarks", ylabel=f"{name} on held-out rows")
    ax.set_ylim(middle - half, middle + half)
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.set_xticks([], minor=True)
    return _tidy(ax)


def plot_landmarks(
    estimator: Any, X: Matrix, y: Array | None = None, *, components: tuple[int, int] = (0, 1), ax: Axes | None = None
) -> Axes:
    """Plot rows and landmarks in the plane.

    Rows with two columns are drawn directly, others by two columns of the estimator's features.

    Parameters
    ----------
    estimator : fitted estimator
        With ``landmarks_``, and ``transform`` unless X has two columns.
    X : array or CSR matrix (n, p)
        The rows to show.
    y : array (n,), optional
        Classes, which give the rows their colours.
    components : pair of int
        The two feature columns to draw, unless X has two columns.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    """
    landmarks = _fitted(estimator, "landmarks_")
    rows_xy, landmarks_xy = (_to_plane(estimator, points, components) for points in (X, landmarks))
    ax = _axes(ax)
    classes = [None] if y is None else list(np.unique(y))
    for i, label in enumerate(classes):
        shown = rows_xy if y is None else rows_xy[np.asarray(y) == label]
        colour = _PALE if y is None else _class_colour(i, len(classes))
        ax.scatter(shown[:, 0], shown[:, 1], s=6, color=colour, linewidth=0, alpha=0.7, label=label, rasterized=True)
    x, y = landmarks_xy[:, 0], landmarks_xy[:, 1]
    ax.scatter(x, y, s=36, marker="X", color=_INK, edgecolor="white", linewidth=0.7, label="landmarks")
    if np.shape(X)[1] != 2:
        ax.set(xlabel=f"feature {components[0] + 1}", ylabel=f"feature {components[1] + 1}")
    return _tidy(ax)


def new_figure(width: float, height: float, n_panels: int = 1, **layout: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure that belongs to no window, and its panels side by side."""
    figure = _matplotlib("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, n_panels, **layout)))


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element for a page whose CSS sets the colours --ink, --grey and --pale.

    ``name`` keeps the identifiers of several pictures on one page distinct.
    """
    stream = io.StringIO()
    with _matplotlib("matplotlib").rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace('id="', f'id="{name}-').replace("url(#", f"url(#{name}-")
    text = text.replace('xlink:href="#', f'xlink:href="#{name}-')
    for colour, variable in ((_INK, "ink"), (_GREY, "grey"), (_PALE, "pale"), (_GRID, "pale"), ("#000000", "ink")):
        text = text.replace(f": {colour}", f": var(--{variable})")
    return text


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 120) -> Path:
    """Write a figure so that ``path`` holds either the complete picture or its previous content."""
    path = check_picture_path(path)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:].lower(), dpi=dpi)
    return path


def check_picture_path(path: str | Path) -> Path:
    """Return ``path`` if a picture can be written there, or raise before any work is done."""
    path = Path(path)
    if path.suffix[1:].lower() not in PICTURE_FORMATS:
        allowed = ", ".join(f".{name}" for name in PICTURE_FORMATS)
        raise ValueError(f"a picture's file name must end in one of {allowed}; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for the picture does not exist: create it first.")
    return path


def _matplotlib(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "plot", "Drawing a picture") from error


def _axes(ax: Axes | None) -> Axes:
    return _matplotlib("matplotlib.pyplot").subplots(layout="constrained")[1] if ax is None else ax


def _fitted(estimator: Any, name: str) -> Any:
    if not hasattr(estimator, name):
        raise ValueError(
            f"{type(estimator).__name__} has no {name}, which this picture is drawn from: fit it first, "
            f"or pass an estimator that has it."
        )
    value = getattr(estimator, name)
    return value if issparse(value) else np.asarray(value)


def _spanned_eigenvalues(estimator: Any) -> Array:
    """Return all eigenvalues that the landmarks span; none if the fit has not kept the required statistics."""
    statistics = getattr(getattr(estimator, "map_", None), "statistics", None)
    gram = getattr(statistics, "gram", None)
    if gram is None or len(gram) <= estimator.n_components_:
        return np.empty(0)
    values = np.linalg.eigvalsh(np.asarray(gram))[::-1]
    return np.asarray(values[values > 4 * np.finfo(np.float64).eps * values[0]])


def _diagonal(estimator: Any, X: RowsLike) -> Array:
    """Return k(x, x) of each row."""
    return np.concatenate([estimator.map_.kernel.diag(block.X, start=block.start) for block in as_blocks(X).iterate()])


def _to_plane(estimator: Any, points: Matrix, components: tuple[int, int]) -> Array:
    if np.shape(points)[1] == 2:
        return np.asarray(to_dense(points))
    if not hasattr(estimator, "transform"):
        raise ValueError(
            f"X has {np.shape(points)[1]} columns and {type(estimator).__name__} has no transform to bring "
            f"them to the plane: pass X with two columns, or a Nystroem or KernelPCA."
        )
    features = np.asarray(estimator.transform(points))
    if max(components) >= features.shape[1]:
        raise ValueError(f"components must be below the {features.shape[1]} features there are; got {components!r}.")
    return features[:, list(components)]


def _short(name: object) -> str:
    """Return a name, shortened to leave room for the picture."""
    text = str(name)
    # Matplotlib would read a dollar sign as the start of a formula.
    return (text if len(text) <= 24 else f"{text[:23]}…").replace("$", r"\$")


def _class_colour(index: int, count: int) -> Any:
    if count < len(PALETTE):
        return PALETTE[index]
    # More classes than colours in the palette: a colour map whose order the colour-blind can see,
    # without its lightest end, which is invisible on white paper.
    return _matplotlib("matplotlib").colormaps["viridis"](0.93 * index / (count - 1))


def _tidy(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(_GREY)
    ax.tick_params(colors=_GREY, labelcolor=_INK)
    ax.grid(visible=True, color=_GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    return ax
