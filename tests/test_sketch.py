"""Sketches: what they are made of, what they keep, and that every container gives the same."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import sketch as sketches
from nystrom.sketch import (
    GaussianSketch,
    GeneratedSigns,
    PCASketch,
    SignSketch,
    SketchRecipe,
    SparseSign,
    sketch_dimension,
)

RECIPES = [SignSketch(), SparseSign(), SparseSign(nonzeros=1), GaussianSketch(), PCASketch()]
RANDOM = [SignSketch(), SparseSign(), GaussianSketch()]


def some_rows(n: int = 60, p: int = 37, density: float = 0.3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) * (rng.random((n, p)) < density)


def fitted(recipe: SketchRecipe, X, dim: int, seed: int = 0):
    return recipe.fit(X.shape[1], dim, np.random.default_rng(seed), sample=X)


@pytest.mark.parametrize("dim", [1, 4, 10, 64, 65, 200])
def test_every_sign_is_plus_or_minus_one_over_the_root_of_the_dimension(dim):
    matrix = SignSketch().fit(300, dim, np.random.default_rng(1)).matrix
    assert matrix.shape == (300, dim)
    np.testing.assert_array_equal(np.abs(matrix), 1 / np.sqrt(dim))


def test_signs_are_balanced_and_uncorrelated_between_columns_and_between_outputs():
    signs = GeneratedSigns(40_000, 70, key=5).signs(np.arange(40_000)).astype(float)
    spread = 5 / np.sqrt(40_000)
    assert np.abs(signs.mean(axis=0)).max() < spread
    between_outputs = signs.T @ signs / len(signs) - np.eye(70)
    assert np.abs(between_outputs).max() < spread
    assert np.abs(np.mean(signs[1:] * signs[:-1], axis=0)).max() < spread


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_generated_signs_give_the_sketch_of_stored_signs(make, dtype, monkeypatch):
    X = some_rows(p=100).astype(dtype)
    stored = SignSketch().fit(100, 12, np.random.default_rng(3))
    monkeypatch.setattr(sketches, "_STORED_BYTES", 0)
    monkeypatch.setattr(sketches, "_DENSE_COLUMNS", 32)
    generated = SignSketch().fit(100, 12, np.random.default_rng(3))
    assert isinstance(generated, GeneratedSigns)
    found = generated(make(X))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, stored(X), atol=50 * np.finfo(dtype).eps)


def test_generated_signs_of_a_few_columns_are_those_columns_of_all():
    generated = GeneratedSigns(1000, 20, key=2**62 + 11)
    some = np.array([999, 0, 512, 3])
    np.testing.assert_array_equal(generated.signs(some), generated.signs(np.arange(1000))[some])


def test_a_hundred_million_columns_take_the_memory_of_those_in_use():
    columns = np.array([5, 17, 99_999_999])
    X = sp.csr_matrix((np.ones(3), columns, [0, 2, 3]), shape=(2, 100_000_000))
    sketch = SignSketch().fit(X.shape[1], 8, np.random.default_rng(0))
    entries = sketch.entries(columns, np.dtype(np.float64))
    np.testing.assert_allclose(sketch(X), [entries[0] + entries[1], entries[2]])


@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_csr_rows_have_the_same_sketch_in_their_own_dtype(recipe, dtype):
    X = some_rows().astype(dtype)
    sketch = fitted(recipe, X, 6)
    dense = sketch(X)
    assert dense.dtype == dtype
    assert dense.shape == (60, 6)
    assert sketch.dim == 6
    for container in (sp.csr_matrix, sp.csr_array):
        sparse = sketch(container(X))
        assert isinstance(sparse, np.ndarray)
        assert sparse.dtype == dtype
        np.testing.assert_allclose(sparse, dense, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
def test_a_sketch_survives_pickling(recipe):
    X = some_rows()
    sketch = fitted(recipe, X, 5)
    before = sketch(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(sketch))(X), before)


@pytest.mark.parametrize("recipe", RECIPES, ids=repr)
def test_the_sketch_follows_from_the_seed(recipe):
    X = some_rows()
    np.testing.assert_array_equal(fitted(recipe, X, 5, seed=1)(X), fitted(recipe, X, 5, seed=1)(X))


@pytest.mark.parametrize("recipe", RANDOM, ids=repr)
def test_other_seeds_give_other_sketches(recipe):
    X = some_rows()
    assert not np.allclose(fitted(recipe, X, 5, seed=1)(X), fitted(recipe, X, 5, seed=2)(X))


@pytest.mark.parametrize("recipe", RANDOM, ids=repr)
def test_squared_distances_are_kept_in_expectation(recipe):
    gap = some_rows(n=1, p=50, density=1.0)
    n_draws, dim = 3000, 4
    rng = np.random.default_rng(0)
    ratios = [np.sum(recipe.fit(50, dim, rng)(gap) ** 2) / np.sum(gap**2) for _ in range(n_draws)]
    # A single ratio has variance at most about 2 / dim, so the mean of the draws is this close, five times over.
    assert abs(np.mean(ratios) - 1.0) < 5 * np.sqrt(2 / dim / n_draws)


def test_each_column_of_a_sparse_sketch_reaches_as_many_outputs_as_asked(monkeypatch):
    dense = SparseSign(nonzeros=3).fit(500, 10, np.random.default_rng(0))
    assert set(np.count_nonzero(dense.matrix, axis=1)) == {3}
    np.testing.assert_allclose(np.sum(dense.matrix**2, axis=1), 1.0)
    monkeypatch.setattr(sketches, "_STORED_BYTES", 0)
    sparse = SparseSign(nonzeros=3).fit(500, 10, np.random.default_rng(0))
    assert sp.issparse(sparse.matrix)
    X = some_rows(p=500)
    np.testing.assert_allclose(sparse(X), dense(X), atol=1e-12)
    np.testing.assert_allclose(sparse(sp.csr_matrix(X)), dense(X), atol=1e-12)


def test_a_sparse_sketch_of_few_outputs_has_no_more_entries_than_outputs():
    assert np.count_nonzero(SparseSign(nonzeros=8).fit(20, 3, np.random.default_rng(0)).matrix) == 60


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_principal_directions_keep_the_variance_that_the_svd_keeps(make, offset):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((400, 30)) * 0.7 ** np.arange(30) @ np.linalg.qr(rng.standard_normal((30, 30)))[0]
    X = X + offset
    sketch = PCASketch().fit(30, 5, rng, sample=make(X))
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    assert np.sum(sketch(X) ** 2) == pytest.approx(np.sum(values[:5] ** 2), rel=1e-3)
    np.testing.assert_allclose(sketch(X).mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(sketch.matrix.T @ sketch.matrix, np.eye(5), atol=1e-10)


def test_principal_directions_beyond_the_sample_are_zero_and_lengthen_nothing():
    X = some_rows(n=3, p=20, density=1.0)
    sketch = PCASketch().fit(20, 8, np.random.default_rng(0), sample=X)
    found = sketch(X)
    assert found.shape == (3, 8)
    before = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found[None], axis=2), before, atol=1e-9)


def test_principal_directions_of_equal_rows_are_finite():
    X = np.full((40, 6), 3.0, dtype=np.float32)
    assert np.isfinite(PCASketch().fit(6, 4, np.random.default_rng(0), sample=X)(X)).all()


def test_principal_directions_without_rows_are_refused():
    with pytest.raises(ValueError, match="PCASketch needs sample"):
        PCASketch().fit(10, 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, 10),
        ({"sketch_dim": 7}, 7),
        ({"sketch_dim": 5000}, 784),
        ({"compression": 0.02}, 16),
        ({"compression": 1e-9}, 1),
        ({"compression": 1.0}, 784),
    ],
)
def test_the_dimension_is_as_asked_between_one_and_the_columns(arguments, expected):
    assert sketch_dimension(784, **arguments) == expected


def test_half_columns_round_up():
    assert sketch_dimension(10, compression=0.25) == 3


@pytest.mark.parametrize("compression", [0.0, -0.1, 1.5, float("nan")])
def test_a_compression_outside_its_range_is_refused(compression):
    with pytest.raises(ValueError, match="compression must be above 0"):
        sketch_dimension(10, compression=compression)


@pytest.mark.parametrize("sketch_dim", [0, -3, 2.5, True])
def test_a_sketch_dim_that_is_no_positive_integer_is_refused(sketch_dim):
    with pytest.raises(ValueError, match="sketch_dim must be a whole number of at least 1"):
        sketch_dimension(10, sketch_dim)


def test_dimension_and_compression_together_are_refused():
    with pytest.raises(ValueError, match="give one of them"):
        sketch_dimension(10, 3, 0.5)


def test_a_sparse_sketch_without_entries_is_refused():
    with pytest.raises(ValueError, match="nonzeros must be at least 1"):
        SparseSign(nonzeros=0)


@pytest.mark.parametrize("n", [12, 60])
def test_directions_of_few_sparse_rows_are_those_of_the_svd(n):
    rng = np.random.default_rng(1)
    X = sp.random(n, 200, density=0.2, random_state=2, format="csr")
    X.data += 3
    sketch = PCASketch().fit(200, 5, rng, sample=X)
    _, _, right = np.linalg.svd(X.toarray() - X.toarray().mean(axis=0), full_matrices=False)
    expected = (X.toarray() - X.toarray().mean(axis=0)) @ right[:5].T
    found = sketch(X)
    found = found - found.mean(axis=0)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9 * np.abs(expected).max() ** 2)


def test_directions_beyond_the_rank_of_sparse_rows_are_zero():
    X = sp.csr_matrix(np.vstack([np.ones((3, 50)), np.zeros((3, 50))]))
    assert np.count_nonzero(np.abs(PCASketch().fit(50, 4, np.random.default_rng(0), sample=X)(X)).max(axis=0)) == 1


@pytest.mark.parametrize("n", [3, 40])
def test_a_thin_basis_is_orthonormal_whether_columns_are_independent_or_not(n):
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(n, 3))
    for columns in (Y, Y * [1e-3, 1, 1e4], Y @ np.diag([1, 1, 1e-12]) + Y[:, :1], np.outer(Y[:, 0], np.ones(3))):
        for scale in (1.0, 1e-170, 1e170):
            Q, R = sketches._thin_qr(columns * scale)
            np.testing.assert_allclose(Q.T @ Q, np.eye(3), rtol=0, atol=1e-8)
            np.testing.assert_allclose(Q @ R, columns * scale, rtol=0, atol=1e-12 * np.abs(columns).max() * scale)
