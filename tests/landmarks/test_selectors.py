"""What every selector keeps, whatever the container, the dtype and the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.exceptions import FewerLandmarksWarning
from nystrom.kernels import Gaussian, Polynomial, make_kernel
from nystrom.landmarks import SELECTORS, Landmarks, select_landmarks
from nystrom.rows import Block, RowBlocks, as_blocks

NAMES = sorted(SELECTORS)
OF_ROWS = ["column-norm", "diagonal", "kmeans++", "leverage", "rpcholesky", "uniform"]
OF_MEANS = ["auto", "kmeans", "rpcholesky+lloyd", "sketched-kmeans"]
READ_COORDINATES = ["kmeans", "kmeans++", "rpcholesky+lloyd", "sketched-kmeans"]
CONTAINERS = ["dense", "fortran", "csr", "memmap", "sequential"]


class Sequential(RowBlocks):
    """Rows that can be read only from their beginning; it counts how often that happens."""

    random_access = False

    def __init__(self, rows: RowBlocks) -> None:
        self.rows = rows
        self.shape, self.dtype, self.is_sparse = rows.shape, rows.dtype, rows.is_sparse
        self.block_rows, self.name = rows.block_rows, rows.name
        self.n_reads = 0

    def block(self, index: int) -> Block:
        raise AssertionError("a sequential source has no block by number")

    def take(self, indices: Any) -> Any:
        raise AssertionError("a sequential source has no rows by number")

    def iterate(self) -> Iterator[Block]:
        self.n_reads += 1
        return self.rows.iterate()


def make_rows(n: int = 700, p: int = 24, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = 3 * rng.standard_normal((9, p))
    X = centers[rng.integers(9, size=n)] + rng.standard_normal((n, p))
    X[rng.random((n, p)) < 0.6] = 0
    return X


def contain(X: np.ndarray, container: str, folder: Path, block_rows: int | None = 128) -> RowBlocks:
    if container == "memmap":
        np.save(folder / "X.npy", X)
        return as_blocks(np.load(folder / "X.npy", mmap_mode="r"), block_rows=block_rows)
    if container == "csr":
        return as_blocks(sp.csr_matrix(X), block_rows=block_rows)
    if container == "fortran":
        return as_blocks(np.asfortranarray(X), block_rows=block_rows)
    rows = as_blocks(X, block_rows=block_rows)
    return Sequential(rows) if container == "sequential" else rows


def choose(
    rows: RowBlocks, name: str, m: int = 12, n_jobs: int = 2, seed: int = 3, kernel: Any = "gaussian"
) -> Landmarks:
    passes = Passes(rows, LocalEngine(n_jobs))
    return SELECTORS[name]().select(passes, m, make_kernel(kernel), np.random.default_rng(seed))


def dense(points: Any) -> np.ndarray:
    return points.toarray() if sp.issparse(points) else np.asarray(points)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", NAMES)
def test_points_have_the_shape_asked_for_and_are_rows_where_they_have_numbers(name, container, dtype, tmp_path):
    X = make_rows().astype(dtype)
    found = choose(contain(X, container, tmp_path), name)
    assert found.points.shape == (12, X.shape[1])
    assert found.points.dtype == dtype
    assert len(found) == 12
    if name in OF_ROWS:
        np.testing.assert_array_equal(dense(found.points), X[found.indices])
        assert len(set(found.indices.tolist())) == 12
    else:
        assert found.indices is None
        low, high = X.min(axis=0), X.max(axis=0)
        slack = 1e-5 * np.abs(X).max()
        assert (dense(found.points) >= low - slack).all()
        assert (dense(found.points) <= high + slack).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(name):
    X = make_rows()
    results = [choose(as_blocks(X, block_rows=64), name, n_jobs=jobs) for jobs in (1, 2, 4)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].points, other.points)


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_other_landmarks(name):
    X = make_rows()
    a, b = (choose(as_blocks(X), name, seed=seed) for seed in (0, 1))
    assert not np.array_equal(a.points, b.points)


@pytest.mark.parametrize("name", NAMES)
def test_containers_agree(name, tmp_path):
    X = make_rows()
    reference = dense(choose(contain(X, "dense", tmp_path), name).points)
    for container in ("fortran", "memmap"):
        np.testing.assert_array_equal(dense(choose(contain(X, container, tmp_path), name).points), reference)
    if name in ("uniform", "diagonal"):
        for container in ("csr", "sequential"):
            np.testing.assert_array_equal(dense(choose(contain(X, container, tmp_path), name).points), reference)


@pytest.mark.parametrize("name", NAMES)
def test_the_choice_leaves_the_generator_of_numpy_and_the_rows_alone(name):
    X = make_rows()
    copy = X.copy()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    choose(as_blocks(X), name)
    np.testing.assert_array_equal(X, copy)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("name", NAMES)
def test_with_fewer_distinct_rows_there_are_fewer_landmarks_and_a_warning(name):
    X = np.repeat(make_rows(n=5), 40, axis=0)
    with pytest.warns(FewerLandmarksWarning, match="Found 5 landmarks where 8 were asked for") as caught:
        found = choose(as_blocks(X, block_rows=64), name, m=8)
    assert len(found) == 5
    assert len(caught) == 1


@pytest.mark.parametrize("name", OF_ROWS)
def test_duplicates_are_never_drawn_twice_where_enough_rows_differ(name):
    X = np.repeat(make_rows(n=30), 4, axis=0)
    found = choose(as_blocks(X), name, m=20)
    assert len(np.unique(found.points, axis=0)) == len(found) == 20


@pytest.mark.parametrize("name", NAMES)
def test_more_landmarks_than_rows_are_all_rows(name):
    X = make_rows(n=10)
    found = choose(as_blocks(X), name, m=50)
    assert len(found) == 10
    np.testing.assert_allclose(np.unique(dense(found.points), axis=0), np.unique(X, axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_one_row_is_its_own_landmark(name):
    X = make_rows(n=1)
    found = choose(as_blocks(X), name, m=1)
    np.testing.assert_allclose(dense(found.points), X, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_raise(name, bad):
    X = make_rows()
    X[600, 3] = bad
    with pytest.raises(ValueError, match=r"contains (NaN|infinity) \(first in row"):
        select_landmarks(X, 6, method=name, random_state=0)


@pytest.mark.parametrize("name", READ_COORDINATES)
def test_a_precomputed_kernel_is_refused_by_selectors_that_read_coordinates(name):
    X = make_rows(n=60)
    K = Gaussian(0.01)(X, X)
    with pytest.raises(ValueError, match=r"precomputed.*rpcholesky"):
        select_landmarks(K, 6, method=name, kernel="precomputed", random_state=0)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(READ_COORDINATES)))
def test_a_precomputed_kernel_gives_the_rows_that_the_kernel_gives(name):
    X = make_rows(n=200)
    kernel = Polynomial(degree=2, gamma=0.1)
    by_matrix = select_landmarks(kernel(X, X), 8, method=name, kernel="precomputed", random_state=0)
    method = "rpcholesky" if name == "auto" else name
    by_rows = select_landmarks(X, 8, method=method, kernel=kernel, random_state=0)
    np.testing.assert_array_equal(by_matrix.indices, by_rows.indices)


@pytest.mark.parametrize("name", NAMES)
def test_landmarks_of_sparse_rows_stay_sparse_while_that_is_smaller(name):
    X = sp.random(400, 3000, density=0.004, format="csr", random_state=0, dtype=np.float64)
    found = choose(as_blocks(X), name, m=20)
    assert sp.issparse(found.points)
    assert found.points.nnz < 0.5 * found.points.shape[0] * found.points.shape[1]
    full = sp.csr_matrix(make_rows() + 1)
    assert isinstance(choose(as_blocks(full), name).points, np.ndarray)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_reached_by_clone_and_set_params(name):
    selector = SELECTORS[name]()
    assert clone(selector).get_params() == selector.get_params()
    for key, value in selector.get_params().items():
        selector.set_params(**{key: value})
    assert type(clone(selector)) is type(selector)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("name", NAMES)
def test_the_choice_does_not_depend_on_the_scale_of_the_rows(name, scale):
    X = make_rows()
    power = 2.0 ** np.round(np.log2(scale))
    np.testing.assert_allclose(
        choose(as_blocks(X * power), name).points,
        choose(as_blocks(X), name).points * power,
        rtol=1e-9,
        atol=1e-9 * power,
    )
