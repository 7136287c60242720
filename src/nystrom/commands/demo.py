"""``nystrom demo``: landmarks on scikit-learn's digits, their errors, and one picture."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom import plotting
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers
from nystrom.commands.terminal import print_table
from nystrom.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SELECTORS = ("uniform", "rpcholesky", "sketched-kmeans", "kmeans", "auto")
RANK = 20
SIZES = (20, 30, 40, 60, 80, 120)
TABLE_SIZE = 2 * RANK
TRIALS = 3


@dataclass(frozen=True)
class Run:
    """One fit: its settings, its error ‖K − L Lᵀ‖ in Frobenius norm, and its time."""

    selector: str
    n_landmarks: int
    rank: int
    error: float
    seconds: float


def add_parser(subparsers: Subparsers) -> None:
    """Add ``nystrom demo``."""
    parser = subparsers.add_parser(
        "demo",
        help="compare ways to choose landmarks on the digits data, with one picture",
        description="Approximate the kernel matrix of scikit-learn's digits from a few landmarks, chosen in "
        "several ways; print their errors beside the best possible one, and write one picture.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("nystrom-demo.png"),
        metavar="FILE",
        help="the picture to write: .png, .svg or .pdf (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the table, write the picture."""
    from sklearn.datasets import load_digits

    from nystrom import Nystroem

    output = plotting.check_picture_path(args.output)
    drawable = find_spec("matplotlib") is not None
    if not drawable:
        print("no picture: it needs matplotlib (pip install matplotlib); the table follows", file=sys.stderr)
    X, y = load_digits(return_X_y=True)
    model = Nystroem(n_components=RANK, n_landmarks=TABLE_SIZE, random_state=0).fit(X)
    K = model.kernel_(X, X)
    best = best_error(K, RANK)
    runs = list(compare(X, K))
    if drawable:
        plotting.save_figure(draw(runs, best, model, X, y), output)
    if args.json:
        print_json({"runs": [asdict(r) for r in runs], "best_possible": best, "picture": output if drawable else None})
        return
    print_table(
        ["selector", "landmarks", "rank", "error", "best possible", "seconds"],
        [table_row(name, [r for r in runs if r.selector == name], best) for name in SELECTORS],
        title=f"Kernel matrix of {X.shape[0]:,} digits from {TABLE_SIZE} landmarks "
        f"(relative Frobenius error, mean of {TRIALS} seeds)",
    )
    if drawable:
        print(f"\nPicture: {output}")


def best_error(K: Array, rank: int) -> float:
    """Return the least relative Frobenius error of any matrix of the given rank."""
    squares = np.linalg.eigvalsh(K) ** 2
    return float(np.sqrt(squares[:-rank].sum() / squares.sum()))


def compare(X: Array, K: Array) -> Iterator[Run]:
    """Fit every selector at every number of landmarks, with several seeds."""
    from nystrom import Nystroem

    for selector in SELECTORS:
        for n_landmarks in SIZES:
            for seed in range(TRIALS):
                model = Nystroem(n_components=RANK, n_landmarks=n_landmarks, landmarks=selector, random_state=seed)
                began = time.perf_counter()
                L = model.fit_transform(X)
                seconds = time.perf_counter() - began
                yield Run(selector, n_landmarks, model.n_components_, relative_error(K, L), seconds)


def relative_error(K: Array, L: Array) -> float:
    """Return ‖K − L Lᵀ‖ / ‖K‖ in Frobenius norm from ‖K‖² − 2 tr(Lᵀ K L) + ‖Lᵀ L‖².

    This form needs no second n × n matrix; after cancellation eight digits remain, and the table shows four.
    """
    total = np.vdot(K, K)
    residual = total - 2 * np.vdot(K @ L, L) + np.linalg.norm(L.T @ L) ** 2
    return float(np.sqrt(max(residual, 0.0) / total))


def table_row(selector: str, runs: list[Run], best: float) -> list[str]:
    """Return one line of the table: the mean over the seeds."""
    chosen = [r for r in runs if r.n_landmarks == TABLE_SIZE]
    error = np.mean([r.error for r in chosen])
    seconds = np.mean([r.seconds for r in chosen])
    return [selector, str(TABLE_SIZE), str(chosen[0].rank), f"{error:.4f}", f"{best:.4f}", f"{seconds:.3f}"]


def draw(runs: list[Run], best: float, model: Any, X: Array, y: Array) -> Figure:
    """Return the picture: errors on the left; on the right the digits as features, with their landmarks."""
    figure, (errors, plane) = plotting.new_figure(11, 4.6, 2, width_ratios=[1, 1.15])
    plotting.plot_error(map(asdict, runs), best=best, ax=errors)
    errors.set_title(f"The kernel matrix of {len(X):,} digits at rank {RANK}", loc="left", fontsize=11)
    errors.set(ylabel="relative error (Frobenius)", xticks=SIZES)
    # The first feature is nearly constant; the next two separate the digits.
    plotting.plot_landmarks(model, X, y, components=(1, 2), ax=plane)
    plane.set_title(f"Two of the {RANK} features, and the {len(model.landmarks_)} landmarks", loc="left", fontsize=11)
    plane.grid(visible=False)
    plane.tick_params(length=0, labelbottom=False, labelleft=False)
    figure.draw_without_rendering()  # fixes the shape of the panels, which square tiles depend on
    draw_tiles(plane, model.transform(model.landmarks_)[:, 1:3], model.landmarks_.reshape(-1, 8, 8))
    return figure


def draw_tiles(ax: Axes, positions: Array, images: Array) -> None:
    """Draw each landmark as a small framed image at its position in the plane."""
    left, right, bottom, top = ax.axis()
    box = ax.get_window_extent()
    half_width = 0.026 * (right - left)
    half_height = half_width * (top - bottom) / (right - left) * box.width / box.height
    for (x, y), image in zip(positions, images, strict=True):
        framed = np.pad(np.pad(image, 1), 1, constant_values=0.35 * images.max())
        extent = (x - half_width, x + half_width, y - half_height, y + half_height)
        ax.imshow(framed, extent=extent, cmap="gray_r", aspect="auto", zorder=5)
    ax.axis((left, right, bottom, top))
