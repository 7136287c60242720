"""The rows of a study: loaded, shaped as the paper does, hashed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from nystrom.datasets import info, is_available, load
from nystrom.engine.passes import block_moments
from nystrom.kernels import Gaussian, Kernel, Polynomial
from nystrom.rows import as_blocks
from nystrom.types import Array, Matrix, issparse, to_dense
from reproduction.catalogue import Study


@dataclass(frozen=True)
class Prepared:
    """The data of a study."""

    dataset: str
    stand_in: bool
    X: Matrix
    y: Array | None
    kernel: Kernel
    sha256: str


def available_dataset(study: Study) -> str | None:
    """Return the set available without the network: the paper's, else its stand-in, else None."""
    for name in (study.dataset, study.stand_in):
        if name is not None and is_available(name):
            return name
    return None


def prepare_study(study: Study) -> Prepared | None:
    """Load and shape the rows of a study; None if neither its set nor a stand-in is available."""
    name = available_dataset(study)
    if name is None:
        return None
    X, y = load(name, dtype=np.float32 if study.single else np.float64, download=False)
    if study.first and study.first < X.shape[0]:
        X, y = X[: study.first], None if y is None else y[: study.first]
    if study.shaping == "stack4":
        X, y = np.vstack([to_dense(X)] * 4), None if y is None else np.tile(y, 4)
    elif study.shaping == "columns4":
        X = np.repeat(to_dense(X), 4, axis=1)
    return Prepared(name, info(name).stand_in, X, y, _kernel(study, X), _hash(X, y))


def _kernel(study: Study, X: Matrix) -> Kernel:
    if study.kernel == "quadratic":
        return Polynomial(degree=2, gamma=1.0, coef0=0.0)
    blocks = as_blocks(X)
    moments = None
    for block in blocks.iterate():
        part = block_moments(block.X)
        moments = part if moments is None else moments.merge(part)
    if moments is None:
        raise ValueError(f"the set {study.dataset!r} has no rows.")
    return Gaussian("scale").resolve(moments)


def _hash(X: Matrix, y: Array | None) -> str:
    digest = hashlib.sha256(str(X.shape).encode())
    parts = (X.data, X.indices, X.indptr) if issparse(X) else (X,)
    for part in (*parts, *(() if y is None else (y,))):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
