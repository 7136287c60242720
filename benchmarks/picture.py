"""The pictures of the README and of the pages of evidence, from stored records alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks import records

LINES = {
    "nystrom auto": ("nystrom", "tab:blue", "o-"),
    "nystrom sketched-kmeans": ("nystrom, the paper's landmarks", "tab:green", "s-"),
    "scikit-learn uniform": ("scikit-learn Nystroem", "tab:orange", "^--"),
}


def draw_features(path: Path) -> None:
    """Draw the error of the kernel matrix against seconds, a line per contestant and a point per size."""
    from matplotlib import pyplot as plt

    found = [r for r in records.newest("features") if r["case"].startswith("mnist,")]
    figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for contestant, (label, colour, style) in LINES.items():
        points = [r for r in found if r["contestant"] == contestant and r["error"]]
        ax.loglog([r["seconds"] for r in points], [r["error"] for r in points], style, color=colour, label=label)
        for record in points if contestant != "nystrom sketched-kmeans" else ():
            m = re.search(r"m=(\d+)", record["case"])
            ours = contestant == "nystrom auto"
            ax.annotate(
                f"{m[1]} landmarks" if m else "",
                (record["seconds"], record["error"]),
                xytext=(-6, -4) if ours else (7, 3),
                textcoords="offset points",
                ha="right" if ours else "left",
                va="top" if ours else "bottom",
                fontsize=8,
                color=colour,
            )
    ax.set(xlabel="seconds, fit and features of 60,000 × 784 rows", ylabel="relative error of the kernel matrix")
    ax.set_title(f"mnist: error against time, two cores, version {found[0]['version']}", fontsize=10)
    ax.margins(x=0.3, y=0.15)
    ax.set_xticks(ticks := [0.05, 0.1, 0.2, 0.5, 1.0], list(map(str, ticks)))
    ax.set_yticks(ticks := [0.03, 0.05, 0.1, 0.2, 0.3], list(map(str, ticks)))
    ax.minorticks_off()
    ax.grid(True, alpha=0.25)
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_intervals(path: Path) -> None:
    """Draw how often the interval of the error held, and the landmarks that a tolerance took, per kind of rows."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
    coverage = records.newest("coverage")
    held = [[float(number) for number in record["held"].split(" of ")] for record in coverage]
    _dots(left, [r["case"] for r in coverage], [100 * inside / fits for inside, fits in held], 95)
    left.set(xlabel="95 % intervals that contain the error, %", xlim=(90, 100))
    tolerance = records.newest("tolerance")
    kinds = list(dict.fromkeys(record["case"].split(",")[0] for record in tolerance))
    for target, marker in (("0.1", "o"), ("0.05", "s"), ("0.02", "^")):
        found = {r["case"]: float(r["landmarks ÷ smallest: median, largest"].split(",")[0]) for r in tolerance}
        _dots(right, kinds, [found[f"{kind}, tol={target}"] for kind in kinds], 1, marker, f"tol={target}")
    right.set(xlabel="landmarks ÷ smallest sufficient number, median", xlim=(0.9, 1.5))
    right.legend(frameon=False, fontsize=9, loc="upper right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _dots(ax: Any, names: list[str], values: list[float], goal: float, marker: str = "o", label: str = "") -> None:
    ax.plot(values, range(len(names)), marker, label=label)
    ax.axvline(goal, color="0.4", linewidth=1, linestyle="--")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(True, axis="x", alpha=0.25)


def draw_damaged_files(path: Path) -> None:
    """Draw what became of the damaged files of each format."""
    from matplotlib import pyplot as plt

    found = records.newest("damaged_files")
    figure, ax = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    names, start = [record["format"] for record in found], [0] * len(found)
    outcomes = {
        "refused by name": "tab:blue",
        "read": "tab:green",
        "no memory, by name": "tab:orange",
        "failures": "tab:red",
    }
    for outcome, colour in outcomes.items():
        counts = [record[outcome] for record in found]
        ax.barh(names, counts, left=start, color=colour, label=f"{outcome}: {sum(counts):,}")
        start = [before + count for before, count in zip(start, counts, strict=True)]
    ax.invert_yaxis()
    ax.set(xlabel="damaged files", xlim=(0, max(start)))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


PICTURES = {
    "error-against-time.png": draw_features,
    "intervals-and-tolerances.png": draw_intervals,
    "damaged-files.png": draw_damaged_files,
}
