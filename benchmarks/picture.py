"""The picture of the README: error of features against time, from the stored records of the suite ``features``."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import records

LINES = {
    "nystrom auto": ("nystrom", "tab:blue", "o-"),
    "nystrom sketched-kmeans": ("nystrom, the paper's landmarks", "tab:green", "s-"),
    "scikit-learn uniform": ("scikit-learn Nystroem", "tab:orange", "^--"),
}


def draw(path: Path) -> None:
    """Draw the error of the kernel matrix against seconds, a line per contestant and a point per size."""
    from matplotlib import pyplot as plt

    found = records.newest("features")
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
