"""Draw the paper's figures from rows; nothing is computed here. The only file of the experiments with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom.exceptions import MissingDependencyError
from reproduction.catalogue import Experiment, Panel
from reproduction.records import Row
from reproduction.summary import Point, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can distinguish; in grey, markers and lightness differ.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _RED, _PINK, _GREY = "#0072B2", "#D55E00", "#CC79A7", "#7f7f7f"
_STYLES: dict[str, tuple[str, str, str]] = {
    "uniform": (_ORANGE, "s", "-"),
    "column-norm": (_PINK, "^", "-"),
    "clustered": (_GREEN, "D", "-"),
    "standard": (_ORANGE, "s", "-"),
    "optimal": (_BLUE, "o", "-"),
    "written-standard": (_ORANGE, "s", ":"),
    "written-optimal": (_BLUE, "o", ":"),
    "sketched-0.01": (_SKY, "v", "-"),
    "sketched-0.02": (_BLUE, "o", "-"),
    "sketched-0.05": (_RED, "P", "-"),
    "sketched-0.2": (_GREY, "X", "-"),
}
_OURS = (_BLUE, "o", "-")
_ROUND: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "figure.facecolor": "white",
}


def draw(experiment: Experiment, rows: Iterable[Row], *, columns: int = 2) -> Figure | None:
    """Return a matplotlib figure in the paper's layout, or None if there are no rows for it.

    Parameters
    ----------
    experiment : Experiment
        Its panels say what to draw.
    rows : iterable of mappings
        Stored rows, of any experiments.
    columns : int
        Panels side by side: 2 as in the paper, 1 for a narrow screen.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "plot", "drawing figures") from error
    kept = list(rows)
    summaries = {study.name: Summary(kept, experiment.key, study) for study in experiment.studies}
    panels = [panel for panel in experiment.panels if summaries[panel.study]]
    if not panels:
        return None
    labels = {method.key: method.label for study in experiment.studies for method in study.methods}
    lines = -(-len(panels) // columns)
    with matplotlib.rc_context(_ROUND):
        figure = Figure(figsize=(4.3 * columns, 3.2 * lines), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for ax, panel in zip(axes, panels, strict=False):
            _draw_panel(ax, panel, summaries[panel.study], labels)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
    return figure


def save(experiment: Experiment, rows: Iterable[Row], folder: Path) -> dict[str, Path]:
    """Draw and write one figure as PNG and SVG; return the files by format, none if there are no rows."""
    figure = draw(experiment, rows)
    if figure is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = (folder / f"{experiment.key}.{kind}" for kind in ("png", "svg"))
    figure.savefig(png, dpi=110)
    svg.write_text(as_svg(figure, experiment.key), encoding="utf-8")
    return {"png": png, "svg": svg}


def as_svg(figure: Figure, salt: str) -> str:
    """Return a figure as SVG text, the same for the same rows; ``salt`` keeps identifiers of figures distinct."""
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({**_ROUND, "svg.hashsalt": salt}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def _draw_panel(ax: Axes, panel: Panel, summary: Summary, labels: dict[str, str]) -> None:
    if panel.kind in ("rows", "map"):
        _draw_points(ax, panel, summary)
    else:
        _draw_lines(ax, panel, summary, labels)
    mark = f"\nSTAND-IN: {summary.dataset} for {summary.study.dataset}" if summary.stand_in else ""
    ax.set_title(panel.title + mark, color=_RED if mark else _BLACK)


def _draw_lines(ax: Axes, panel: Panel, summary: Summary, labels: dict[str, str]) -> None:
    wanted = panel.methods or tuple(method.key for method in summary.study.methods)
    top = []
    for key in wanted:
        points = summary.points(key)
        if not points:
            continue
        color, marker, style = _STYLES.get(key, _OURS)
        x = [getattr(point, panel.x) for point in points]
        common: dict[str, Any] = {
            "color": color,
            "marker": marker,
            "linestyle": style,
            "label": labels[key],
            "markersize": 4.5,
        }
        if panel.kind == "time":
            y = [point.seconds(panel.stage) for point in points]
            ax.plot(x, y, linewidth=1.3, **common)
        else:
            y = [point.mean for point in points]
            ax.errorbar(x, y, yerr=[point.std for point in points], capsize=2, linewidth=1.3, **common)
        top.append(max(y))
    if panel.kind == "error":
        _draw_best(ax, panel, summary)
        ax.set_ylabel("‖α̂ − α*‖ / ‖α*‖" if summary.study.task == "ridge" else "‖K − LLᵀ‖ / ‖K‖")
    else:
        ax.set(yscale="log", ylabel="processor seconds")
        _draw_equal_time(ax, panel, summary)
    ax.set_xlabel("landmarks m" if panel.x == "m" else "rank r")
    ax.legend(loc="best")


def _draw_best(ax: Axes, panel: Panel, summary: Summary) -> None:
    best = summary.points("svd")
    if not best:
        return
    if panel.x == "r":
        ax.plot([p.r for p in best], [p.mean for p in best], color=_BLACK, linestyle="--", linewidth=1.2, label="SVD")
    else:
        ax.axhline(best[0].mean, color=_BLACK, linestyle="--", linewidth=1.2, label="SVD (best possible)")


def _draw_equal_time(ax: Axes, panel: Panel, summary: Summary) -> None:
    """Draw the paper's dashed line: from one method at some m to the size at which another takes as long."""
    if panel.equal_time is None:
        return
    left, right = (summary.points(key) for key in panel.equal_time)
    found = equal_time(left, right, panel.stage)
    if found is not None:
        at, level, other = found
        ax.plot([at, other], [level, level], color=_GREEN, linestyle="--", linewidth=1.6, label="equal time")


def equal_time(left: list[Point], right: list[Point], stage: Any) -> tuple[float, float, float] | None:
    """Return (m of left, its seconds, m at which right takes as long), for the middle one of left's possible sizes."""
    if len(right) < 2:
        return None
    x = np.array([point.m for point in right], dtype=float)
    t = np.maximum.accumulate([point.seconds(stage) for point in right])
    fits = [point for point in left if t[0] <= point.seconds(stage) <= t[-1]]
    if not fits:
        return None
    middle = fits[len(fits) // 2]
    level = middle.seconds(stage)
    return float(middle.m), level, float(np.interp(level, t, x))


def _draw_points(ax: Axes, panel: Panel, summary: Summary) -> None:
    """Draw a scatter plot of the data, or of its features, from the coordinates stored in a row."""
    wanted = panel.methods or tuple(method.key for method in summary.study.methods)
    kept = [row for row in summary.rows if "map" in row and row["method"] in wanted]
    if not kept:
        ax.text(0.5, 0.5, "no map among the rows", ha="center", transform=ax.transAxes)
        return
    row = kept[-1]
    points = np.array(row["map_rows" if panel.kind == "rows" else "map"])
    classes = np.array(row["map_classes"])
    for value, color, marker in ((0, _ORANGE, "s"), (1, _BLUE, "o")):
        chosen = points[classes == value]
        ax.scatter(chosen[:, 0], chosen[:, 1], s=7, c=color, marker=marker, linewidths=0, alpha=0.8)
    if panel.kind == "map":
        ax.set(xlabel="first column of L", ylabel="second column of L")
        ax.text(0.02, 0.97, f"best line: {row['separability']:.1%} right", transform=ax.transAxes, va="top", fontsize=8)
    else:
        ax.set(xlabel="x₁", ylabel="x₂", aspect="equal")
