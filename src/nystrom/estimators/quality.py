"""The quality of a fitted map: its error, the best possible error, and the rows that it does not explain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nystrom.checks import RandomState, check_choice, make_generator
from nystrom.engine.passes import Passes
from nystrom.errors import Certificate, ErrorEstimate, measure_error
from nystrom.errors.measure import NORMS, best_error
from nystrom.errors.trace import lost_rows
from nystrom.kernels.custom import PrecomputedRows
from nystrom.landmarks import make_selector
from nystrom.landmarks.base import see
from nystrom.nystroem.factor import NystromMap, spanning_projection
from nystrom.rows import Block, RowBlocks, require_finite
from nystrom.rows.draw import gather
from nystrom.types import Array, TargetLike, to_dense


def approximation_error(
    machine: Any, rows: RowBlocks, norm: str, *, diag: TargetLike, random_state: RandomState, **asked: Any
) -> ErrorEstimate:
    """Return the error of a machine's map on rows; see :meth:`nystrom.Nystroem.approximation_error`."""
    engine = machine._engine(rows, held=8 * rows.shape[0])
    fitted = map_for(machine, rows, diag)
    if fitted.kernel is not machine.map_.kernel and norm != "trace":
        raise ValueError(
            f"norm={norm!r} needs the kernel between all rows, but with kernel='precomputed' new rows hold only their "
            f"kernel values with the training rows. Give the square kernel matrix of the training rows, or "
            f"norm='trace' and diag=<k(x, x) of each row>."
        )
    return measure_error(rows, fitted, engine, norm, rng=make_generator(random_state), **asked)


def best_possible(
    machine: Any, rows: RowBlocks, rank: int, *, norm: str, confidence: float, random_state: RandomState
) -> ErrorEstimate:
    """Return the least error of any map of this rank on rows, for the kernel of a machine."""
    check_choice(norm, "norm", NORMS)
    passes = Passes(rows, machine._engine(rows, held=8 * rows.shape[0]))
    view, rng = see(passes, machine.map_.kernel), make_generator(random_state)
    return best_error(view.passes, view.kernel, rank, make_selector("auto"), rng, norm=norm, confidence=confidence)


def map_for(machine: Any, rows: RowBlocks, diag: TargetLike) -> NystromMap:
    """Return the map for these rows: a precomputed kernel uses ``diag`` as k(x, x), if given."""
    kernel, fitted = machine.map_.kernel, known_map(machine)
    if diag is not None:
        if kernel.has_coordinates:
            raise ValueError(f"diag is for kernel='precomputed' only; {kernel!r} computes k(x, x) from the rows.")
        diag = np.asarray(diag, dtype=np.float64)
        if diag.shape != (rows.shape[0],) or not (diag >= 0).all() or not np.isfinite(diag).all():
            raise ValueError(
                f"diag must hold a finite k(x, x) of at least 0 for each of the {rows.shape[0]} rows; got shape "
                f"{diag.shape}" + (f" with a minimum of {diag.min():.3g}." if diag.size else ".")
            )
    if kernel.has_coordinates or (diag is None and _is_training_matrix(machine, rows)):
        return fitted
    return replace(fitted, kernel=PrecomputedRows(kernel.indices, diag))


def known_map(machine: Any) -> NystromMap:
    """Return the map with its projection, computed now if the machine has no factor or was loaded from a file.

    Computed here once, not in every block. Since every direction is kept, any whitening of the landmarks works.
    """
    fitted: NystromMap = machine.map_
    if isinstance(fitted.projection, np.ndarray) or (machine._cuts_map and machine.n_components is not None):
        return fitted
    return replace(fitted, projection=spanning_projection(fitted.kernel, fitted.landmarks))


def _is_training_matrix(machine: Any, rows: RowBlocks) -> bool:
    """Whether the rows are the kernel matrix of the fit: square, and equal in the rows of the landmarks."""
    n = machine.landmarks_.shape[1]
    if rows.shape != (n, n):
        return False
    here = gather(Passes(rows, machine._engine(rows)), np.asarray(machine.landmark_indices_))
    here, there = (np.asarray(to_dense(A)) for A in (here, machine.landmarks_))
    return np.array_equal(here.astype(there.dtype), there)


def unexplained_rows(machine: Any, rows: RowBlocks) -> Array:
    """Return the numbers of the rows that the landmarks explain to less than a tenth: one pass."""
    fitted, name = known_map(machine), rows.name

    def step(block: Block) -> Array:
        require_finite(block.X, name, block.start)
        residual = fitted.residual(block.X, start=block.start)
        lost = lost_rows(residual, fitted.kernel.diag(block.X, start=block.start))
        return block.start + np.flatnonzero(lost)

    engine = machine._engine(rows)
    return np.concatenate([part for _, part in engine.map(rows, step, label="rows not explained")])


def describe(certificate: Certificate | None) -> str:
    """Return one line on a fit: the explained part, and the rows that are not explained."""
    if certificate is None:
        raise AttributeError(
            "quality_ needs a factor of the kernel matrix, which conjugate gradients do not compute. Ridge machines "
            "compute it with solver='factor'."
        )
    line = f"{1 - certificate.trace.value:.1%} of the kernel explained"
    if certificate.unexplained < certificate.trace.value * (1 - 1e-9):
        line += f" ({1 - certificate.unexplained:.1%} without the cut of the rank)"
    if certificate.n_looked:
        line += f"; {certificate.n_lost:,} of {certificate.n_looked:,} checked rows are lost"
    return "; ".join([line, *certificate.rare])
