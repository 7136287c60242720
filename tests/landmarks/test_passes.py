"""How often each selector reads the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.exceptions import NotFiniteError
from nystrom.kernels import Gaussian
from nystrom.landmarks import Auto, KMeans, KMeansPlusPlus, RPCholesky, Selector, SketchedKMeans, Uniform
from nystrom.rows import Block, RowBlocks, as_blocks


class Counted(RowBlocks):
    """Rows that count how often each block is read, and how many rows are taken by number."""

    def __init__(self, rows: RowBlocks, *, random_access: bool = True) -> None:
        self.rows = rows
        self.shape, self.dtype, self.is_sparse = rows.shape, rows.dtype, rows.is_sparse
        self.block_rows, self.name = rows.block_rows, rows.name
        self.random_access = random_access
        self.reads = np.zeros(rows.n_blocks, dtype=int)
        self.n_taken = 0

    def block(self, index: int) -> Block:
        assert self.random_access
        self.reads[index] += 1
        return self.rows.block(index)

    def iterate(self) -> Iterator[Block]:
        for block in self.rows.iterate():
            self.reads[block.index] += 1
            yield block

    def take(self, indices: Any) -> Any:
        assert self.random_access
        self.n_taken += len(indices)
        return self.rows.take(indices)


def read(selector: Selector, *, n: int = 3000, m: int = 10, random_access: bool = True) -> tuple[Counted, Passes]:
    X = np.random.default_rng(0).standard_normal((n, 40))
    rows = Counted(as_blocks(X, block_rows=256), random_access=random_access)
    passes = Passes(rows, LocalEngine(2))
    selector.select(passes, m, Gaussian(), np.random.default_rng(1))
    assert passes.n_passes == rows.reads.max()
    return rows, passes


@pytest.mark.parametrize("random_access", [True, False])
@pytest.mark.parametrize("n_init", [1, 3])
def test_sketched_kmeans_reads_the_rows_exactly_twice_bandwidth_included(n_init, random_access):
    rows, passes = read(SketchedKMeans(n_init=n_init), random_access=random_access)
    assert (rows.reads == 2).all()
    assert rows.n_taken == 0
    _ = passes.moments
    assert (rows.reads == 2).all()


def test_sketched_kmeans_of_a_sample_reads_all_rows_once():
    rows, passes = read(SketchedKMeans(sample=500))
    assert (rows.reads == 1).all()
    assert rows.n_taken == 500
    _ = passes.moments
    assert (rows.reads == 1).all()


def test_auto_reads_only_its_sample():
    rows, passes = read(Auto(), n=12_000)
    assert rows.reads.max() == 0
    assert rows.n_taken <= 8192
    _ = passes.moments
    assert (rows.reads == 1).all()


def test_auto_reads_a_sequential_source_once_bandwidth_included():
    rows, passes = read(Auto(), random_access=False)
    assert (rows.reads == 1).all()
    _ = passes.moments
    assert (rows.reads == 1).all()


def test_uniform_reads_only_the_rows_it_takes():
    rows, _ = read(Uniform(), m=10)
    assert rows.reads.max() == 0
    assert rows.n_taken == 10
    rows, _ = read(Uniform(), m=10, random_access=False)
    assert (rows.reads == 1).all()


@pytest.mark.parametrize("selector", [SketchedKMeans(), RPCholesky(), Uniform()])
def test_no_pass_takes_moments_that_nobody_asked_for(selector, monkeypatch):
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("moments were taken")

    monkeypatch.setattr("nystrom.engine.passes.block_moments", refuse)
    X = np.random.default_rng(0).standard_normal((3000, 40))
    for random_access in (True, False):
        passes = Passes(Counted(as_blocks(X, block_rows=256), random_access=random_access), LocalEngine(2))
        if random_access or not isinstance(selector, RPCholesky):
            selector.select(passes, 10, Gaussian(0.1), np.random.default_rng(1))
        with pytest.raises(AssertionError, match="moments were taken"):
            _ = passes.moments


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("gamma", ["scale", 0.1])
@pytest.mark.parametrize("selector", [SketchedKMeans(), RPCholesky(), RPCholesky(lloyd=2), KMeans(), KMeansPlusPlus()])
def test_a_first_pass_names_the_first_row_that_is_not_finite(selector, gamma, bad):
    X = np.random.default_rng(0).standard_normal((3000, 40))
    X[[1700, 2900], 7] = bad
    passes = Passes(as_blocks(X, block_rows=256), LocalEngine(2))
    with pytest.raises(NotFiniteError, match=r"first in row 1700"):
        selector.select(passes, 10, Gaussian(gamma), np.random.default_rng(1))
