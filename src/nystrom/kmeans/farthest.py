"""The rows farthest from their centres, found in one fold: empty clusters are given these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nystrom.kernels.pairwise import squared_norms
from nystrom.kmeans.assignment import Nearest
from nystrom.rows.base import Block
from nystrom.types import Array, Matrix, SparseMatrix, issparse


@dataclass(frozen=True)
class Farthest:
    """The rows farthest from their centres: distances, labels and row numbers, in falling order of distance."""

    distances: Array
    labels: Array
    numbers: Array
    limit: int

    def merge(self, other: Farthest) -> Farthest:
        return _farthest(
            np.concatenate([self.distances, other.distances]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.numbers, other.numbers]),
            self.limit,
        )


def _farthest(distances: Array, labels: Array, numbers: Array, limit: int) -> Farthest:
    """Keep the ``limit`` largest distances; rows equal in distance and cluster are taken for the same row."""
    order = np.lexsort((numbers, labels, -distances))
    distances, labels, numbers = distances[order], labels[order], numbers[order]
    first = np.ones(order.size, dtype=bool)
    first[1:] = (np.diff(distances) != 0) | (np.diff(labels) != 0)
    kept = np.flatnonzero(first)[:limit]
    return Farthest(distances[kept], labels[kept], numbers[kept], limit)


@dataclass(frozen=True)
class FindFarthest:
    """Find the farthest rows of a block among the clusters that have a row to spare."""

    nearest: Nearest
    centers: Matrix
    spare: Array
    limit: int

    def __call__(self, block: Block) -> Farthest:
        labels = self.nearest(block.X)
        X = self.nearest.centred(block.X)
        squares = squared_norms(X)
        # A mean of equal rows differs from them by rounding; that is no distance.
        if issparse(X):
            own = self.centers[labels]
            products = X.multiply(own).sum(axis=1) if issparse(own) else _products(X, own)
            distances = squares - 2 * np.asarray(products).ravel() + squared_norms(self.centers)[labels]
            noise = 1e-12 * squares
        else:
            distances = squared_norms(X - self.centers[labels])
            noise = (1e-12 if block.X.dtype == np.float32 else 1e-24) * squares
        heavy = True if block.weight is None else np.asarray(block.weight) > 0
        able = np.flatnonzero((distances > noise) & self.spare[labels] & heavy)
        return _farthest(distances[able], labels[able], block.start + able, self.limit)


def _products(X: SparseMatrix, own: Array) -> Array:
    """Return x·c for each CSR row x and its own dense centre c."""
    lengths = np.diff(X.indptr)
    owner = np.repeat(np.arange(X.shape[0]), lengths)
    return np.bincount(owner, X.data * own[owner, X.indices], minlength=X.shape[0])
