"""How time and memory grow with n, m and p: a doubling run, fitted exponents and a log-log figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks import inputs
from benchmarks.measure import contest
from nystrom import Nystroem


def _seconds(n: int, p: int, m: int, X: np.ndarray, repeat: int) -> tuple[float, float]:
    result = contest(
        f"n={n} p={p} m={m}",
        {"fit": lambda: Nystroem(n_components=max(1, m // 2), n_landmarks=m, random_state=0).fit(X[:n])},
        repeat=repeat,
    )[0]
    return result.seconds, result.added_mb


def measure(repeat: int = 3, largest_n: int = 4_000_000) -> list[dict[str, float | str]]:
    """Return rows (axis, n, p, m, seconds, added_mb), doubling one axis while the others are fixed."""
    rows: list[dict[str, float | str]] = []

    def add(axis: str, n: int, p: int, m: int, X: np.ndarray) -> None:
        seconds, added = _seconds(n, p, m, X, repeat)
        rows.append({"axis": axis, "n": n, "p": p, "m": m, "seconds": seconds, "added_mb": added})
        print(f"{axis}: n={n:,} p={p:,} m={m:,}  {seconds:.3f} s  {added:.0f} MB", flush=True)

    X = inputs.image_like(largest_n, 50)
    n = 31_250
    while n <= largest_n:
        add("n", n, 50, 200, X)
        n *= 2
    for m in (64, 128, 256, 512, 1024, 2048, 4096):
        add("m", 50_000, 50, m, X)
    del X
    for p in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
        add("p", 20_000, p, 200, inputs.image_like(20_000, p))
    return rows


def exponent(rows: list[dict[str, float | str]], axis: str) -> float:
    """Return the slope of log seconds against log size over the upper half of the sizes, where overheads are small."""
    points = [(float(row[axis]), float(row["seconds"])) for row in rows if row["axis"] == axis]
    upper = np.log(points[len(points) // 2 :])
    return float(np.polyfit(upper[:, 0], upper[:, 1], 1)[0])


def figure(rows: list[dict[str, float | str]], path: Path) -> None:
    """Draw seconds against n, m and p."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fixed = {"n": "p = 50, m = 200", "m": "n = 50,000, p = 50", "p": "n = 20,000, m = 200"}
    fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for ax, (axis, others) in zip(axes, fixed.items(), strict=True):
        x, y = zip(*[(row[axis], row["seconds"]) for row in rows if row["axis"] == axis], strict=True)
        ax.loglog(x, y, "o-", color="#0072B2")
        ax.set_xlabel(f"{axis}   ({others})")
        ax.set_title(f"seconds ∝ {axis}^{exponent(rows, axis):.2f}")
        ax.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("seconds of fit")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def main(repeat: int, output: Path) -> list[dict[str, float | str]]:
    output.mkdir(parents=True, exist_ok=True)
    rows = measure(repeat)
    (output / "scaling.json").write_text(json.dumps(rows, indent=1) + "\n")
    figure(rows, output / "scaling.png")
    for axis in ("n", "m", "p"):
        print(f"exponent in {axis}: {exponent(rows, axis):.2f}")
    return rows
