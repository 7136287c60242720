"""What this machine needs for the passes of a fit: timed on a few synthetic blocks of the shape asked for.

The passes themselves are run on some blocks, then on twice as many: the difference is the time per row, the rest does
not grow with the rows.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from nystrom.engine import LocalEngine
from nystrom.engine.survey import Survey
from nystrom.factor import optimal, prepare
from nystrom.kernels import Gaussian
from nystrom.landmarks.auto import Auto, cluster_sample, sample_size, sketch_columns
from nystrom.landmarks.base import Landmarks
from nystrom.linalg import algebra_threads
from nystrom.rows import ArrayRows, array_rows, default_block_rows
from nystrom.rows.stack import stack_rows
from nystrom.solvers.landmark_cg import gram_product
from nystrom.solvers.preconditioner import FalkonPreconditioner
from nystrom.types import Matrix

_CALIBRATION_SECONDS = 0.5
_MAX_CALIBRATION_LANDMARKS = 500
# Order up to which a preconditioner is timed; larger ones take time in proportion to the cube.
_MAX_ORDER = 2000
# For blocks whose size does not depend on the number of rows.
_MANY_ROWS = 10**9


@dataclass(frozen=True)
class Calibration:
    """What was measured here, for one shape of problem.

    Attributes
    ----------
    survey, factor : tuple of float
        Seconds that do not depend on the rows, and seconds per row, of the two passes, with ``n_jobs`` threads. For
        solver "cg", ``factor`` is the pass of one step that computes the kernel values.
    clustering : float
        Seconds of k-means on the sample.
    step_bytes : float
        Peak bytes that one block of the factor's pass takes, its rows included.
    base_bytes : float
        Bytes of a process that has done nothing yet.
    n_rows, n_jobs : int
        Most rows that were timed, and threads.
    held_step, preconditioner, solves : float
        For solver "cg": seconds per row of a step whose kernel values are held, of the preconditioner, and of the four
        triangular solves of a step.
    """

    survey: tuple[float, float]
    factor: tuple[float, float]
    clustering: float
    step_bytes: float
    base_bytes: float
    n_rows: int
    n_jobs: int
    held_step: float = 0.0
    preconditioner: float = 0.0
    solves: float = 0.0


def calibrate(
    n_features: int,
    n_landmarks: int,
    *,
    dtype: DTypeLike = np.float64,
    density: float | None = None,
    block_rows: int | None = None,
    n_jobs: int = 1,
    solver: str = "factor",
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Time the passes of a fit by solver "factor" or "cg" on synthetic rows of this shape: some seconds.

    With ``clock=time.process_time`` the plan is in seconds of processor, whatever else the machine is doing.
    """
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(0)
    if block_rows is None:
        row_bytes = n_features * dtype.itemsize * (1 if density is None else density)
        block_rows = default_block_rows(row_bytes, _MANY_ROWS)
    base_bytes = _resident_bytes()
    block = _make_rows(block_rows, n_features, density, dtype, rng)
    Z = _make_rows(n_landmarks, n_features, density, dtype, rng)
    kernel = Gaussian(1.0)
    engine = LocalEngine(n_jobs)

    @cache
    def stack(n_blocks: int) -> Matrix:
        return stack_rows([block] * n_blocks)

    def survey(n_blocks: int) -> Survey:
        return Survey(array_rows(stack(n_blocks), block_rows=block_rows), engine)

    def moments(n_blocks: int) -> None:
        survey(n_blocks).moments  # noqa: B018 - reading it makes the pass

    def factor(n_blocks: int) -> None:
        optimal(survey(n_blocks), kernel, Landmarks(Z), None)

    def step(n_blocks: int) -> None:
        rows = array_rows(stack(n_blocks), block_rows=block_rows)
        gram_product(rows, engine, prepare(kernel, Landmarks(Z)), v, label="step")

    v = np.ones((n_landmarks, 1))
    work = step if solver == "cg" else factor
    rates_survey, _ = _two_points(moments, block_rows, n_jobs, clock)
    rates_factor, n_timed = _two_points(work, block_rows, n_jobs, clock)
    tracemalloc.start()
    work(1)
    step_bytes = float(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    clustering = _clustering_seconds(n_features, n_landmarks, dtype, rng, engine, clock)
    found = Calibration(rates_survey, rates_factor, clustering, step_bytes, base_bytes, n_timed, n_jobs)
    if solver != "cg":
        return found
    held_step = _held_step_seconds(n_landmarks, dtype, engine, clock)
    preconditioner, solves = _preconditioner_seconds(kernel, Z, clock)
    return replace(found, held_step=held_step, preconditioner=preconditioner, solves=solves)


def _held_step_seconds(m: int, dtype: np.dtype, engine: LocalEngine, clock: Callable[[], float]) -> float:
    """Return the seconds per row of a step whose kernel values are held."""
    n = max(engine.n_jobs * 64, min(8192, 2**27 // m))
    held = ArrayRows(np.ones((n, m), dtype), block_rows=-(-n // (4 * engine.n_jobs)))

    def run(_: int) -> None:
        gram_product(held, engine, None, np.ones((m, 1)), label="step")

    return _best(run, 1, 3, clock) / n


def _preconditioner_seconds(kernel: Gaussian, Z: Matrix, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of the preconditioner for the landmarks Z and of a step's solves, from fewer of them."""
    m = Z.shape[0]
    order = min(m, _MAX_ORDER)
    square = np.ones((order, order))
    made: list[FalkonPreconditioner] = []

    def form(_: int) -> None:
        made[:] = [FalkonPreconditioner(kernel, Landmarks(Z[:order]), Z.dtype)]
        made[0].regularise(1.0, np.ones(order), centred=False)

    def multiply(_: int) -> None:
        square @ square

    def solve(_: int) -> None:
        inner = made[0]
        inner.scale(inner.whiten(inner.unwhiten(inner.unscale(square[:, :1]))))

    with algebra_threads(order):
        # Of three parts, two factors and a product, each takes a sixth of the operations of a full product.
        formed, products = _best(form, 1, 2, clock), 0.5 * _best(multiply, 1, 2, clock)
        solved = _best(solve, 1, 3, clock)
    # What is not products grows with the square: kernel values, copies, and blocks too small for BLAS at full speed.
    scale = m / order
    return products * scale**3 + max(formed - products, 0.0) * scale**2, solved * scale**2


def _two_points(
    run: Callable[[int], None], block_rows: int, n_jobs: int, clock: Callable[[], float]
) -> tuple[tuple[float, float], int]:
    """Return (fixed seconds, seconds per row) from runs with N and 2N blocks, and the rows of the larger run."""
    n_blocks = n_jobs
    seconds = _best(run, n_blocks, 1, clock)
    while seconds < _CALIBRATION_SECONDS and n_blocks * block_rows < 2**19:
        n_blocks *= 2
        seconds = _best(run, n_blocks, 1, clock)
    short, long = _best(run, n_blocks, 2, clock), _best(run, 2 * n_blocks, 2, clock)
    slope = max(long - short, 0.0) / (n_blocks * block_rows)
    return (max(2 * short - long, 0.0), slope), 2 * n_blocks * block_rows


def _best(run: Callable[[int], None], n_blocks: int, repeats: int, clock: Callable[[], float]) -> float:
    times = []
    for _ in range(repeats):
        began = clock()
        run(n_blocks)
        times.append(clock() - began)
    return min(times)


def _clustering_seconds(
    p: int,
    m: int,
    dtype: np.dtype,
    rng: np.random.Generator,
    engine: LocalEngine,
    clock: Callable[[], float],
) -> float:
    """Return the seconds of k-means on the sample of m landmarks, from fewer of both where they are many."""
    few = min(m, _MAX_CALIBRATION_LANDMARKS)
    dim = sketch_columns(p)
    sample = ArrayRows(rng.normal(size=(sample_size(few), dim)).astype(dtype))

    def cluster(n_iter: int) -> None:
        cluster_sample(sample, few, engine, np.random.default_rng(0), n_iter)

    scale = sample_size(m) * m / (sample_size(few) * few)
    return _best(cluster, Auto().n_iter, 2, clock) * scale


def _make_rows(n: int, p: int, density: float | None, dtype: np.dtype, rng: np.random.Generator) -> Matrix:
    if density is None:
        # A falling spectrum, as data have: the kernel is smooth, so the pass pays for whitening as it mostly does.
        return (rng.normal(size=(n, p)) / np.arange(1, p + 1)).astype(dtype)
    return sp.random(n, p, density=density, format="csr", dtype=dtype, random_state=np.random.RandomState(0))


def _resident_bytes() -> float:
    """Return the memory of this process."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 150e6  # what the interpreter, NumPy, SciPy and scikit-learn take on Linux
    return pages * 4096.0
