"""Whitening, eigenvalues and orthonormal columns."""

import numpy as np
import pytest

from nystrom import Nystroem, linalg
from nystrom.exceptions import NotPositiveSemidefiniteError
from nystrom.linalg import (
    add_thin_cross,
    cholesky,
    cholesky_in_place,
    column_signs,
    correct_orthonormal,
    gram,
    psd_eigh,
    thin_product,
    whiten,
    whiten_quickly,
)
from nystrom.nystroem import factor


def random_psd(rng, m, condition):
    Q = np.linalg.qr(rng.normal(size=(m, m)))[0]
    return (Q * np.geomspace(1, 1 / condition, m)) @ Q.T


def test_eigenvalues_descend_and_rebuild_the_matrix():
    A = random_psd(np.random.default_rng(0), 12, 1e3)
    values, vectors = psd_eigh(A)
    assert (np.diff(values) <= 0).all()
    np.testing.assert_allclose((vectors * values) @ vectors.T, A, atol=1e-14)
    assert (column_signs(vectors) == 1).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1.0, 1e8, 1e200])
def test_eigenvalues_scale_with_the_matrix(scale):
    A = random_psd(np.random.default_rng(1), 6, 10)
    np.testing.assert_allclose(psd_eigh(A * scale).values, psd_eigh(A).values * scale, rtol=1e-12)


def test_whitening_makes_the_kernel_the_identity():
    W = random_psd(np.random.default_rng(2), 20, 1e4)
    T = whiten(W).T
    np.testing.assert_allclose(T.T @ W @ T, np.eye(20), atol=1e-9)


def test_directions_below_the_cutoff_are_dropped_not_clamped():
    W = np.diag([1.0, 1e-3, 1e-17, 0.0])
    found = whiten(W)
    assert found.T.shape == (4, 2)
    assert (np.abs(found.T) < 100).all()


def test_float32_blocks_raise_the_cutoff():
    W = np.diag([1.0, 1e-3, 1e-9])
    assert whiten(W).T.shape[1] == 3
    assert whiten(W, block_dtype=np.float32).T.shape[1] == 2


def test_caution_raises_the_cutoff():
    assert whiten(np.eye(3), caution=10.0).cutoff == pytest.approx(10 * whiten(np.eye(3)).cutoff)


def test_an_indefinite_kernel_is_named_as_such():
    with pytest.raises(NotPositiveSemidefiniteError, match=r"not positive semidefinite.*eigenvalue -1"):
        whiten(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_a_kernel_that_overflows_is_explained():
    with pytest.raises(ValueError, match=r"overflow.*Scale the rows"):
        whiten(np.array([[np.inf]]))


def test_one_cholesky_step_makes_columns_orthonormal():
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.normal(size=(200, 8)))[0] + 1e-6 * rng.normal(size=(200, 8))
    V = correct_orthonormal(U, U.T @ U)
    assert np.abs(V.T @ V - np.eye(8)).max() < 1e-14
    assert np.abs(V - U).max() < 1e-4


class TestWhitenQuickly:
    def quickly(self, W, dtype=np.float64, most=1e8):
        return whiten_quickly(W, block_dtype=dtype, caution=1.0, most=most)

    def kernel(self, n, spread, seed=0):
        x = np.random.default_rng(seed).normal(size=(n, 4)) * spread
        return np.exp(-((x[:, None] - x) ** 2).sum(axis=2))

    @pytest.mark.parametrize("n", [1, 2, 3, 50])
    def test_whitens_what_is_well_conditioned(self, n):
        W = self.kernel(n, 2.0)
        T, condition, norm = self.quickly(W)
        np.testing.assert_allclose(T.T @ W @ T, np.eye(n), atol=1e-9)
        values = np.linalg.eigvalsh(W)
        assert values[-1] / values[0] <= condition <= 10 * max(values[-1] / values[0], 1)
        assert norm == pytest.approx(1 / values[0], rel=0.01)

    @pytest.mark.parametrize(
        "W",
        [
            np.ones((3, 3)),
            np.diag([1.0, -1.0, 2.0]),
            np.diag([1.0, 1e-9, 1.0, 1.0]),
            np.array([[np.nan, 0.0], [0.0, 1.0]]),
            np.zeros((4, 4)),
        ],
    )
    def test_leaves_the_rest_to_the_careful_way(self, W):
        assert self.quickly(W) is None

    def test_the_dtype_of_the_blocks_decides(self):
        W = np.diag([1.0] * 5 + [3e-6])
        assert self.quickly(W) is not None
        assert self.quickly(W, np.float32) is None

    def test_a_fit_is_the_same_either_way(self, monkeypatch):
        X = np.random.default_rng(1).normal(size=(400, 5))
        quick = Nystroem(n_components=15, n_landmarks=40, random_state=0).fit(X)
        monkeypatch.setattr(factor, "whiten_quickly", lambda *_, **__: None)
        careful = Nystroem(n_components=15, n_landmarks=40, random_state=0).fit(X)
        np.testing.assert_allclose(quick.eigenvalues_, careful.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(quick.transform(X), careful.transform(X), atol=1e-7)


@pytest.mark.parametrize("block", [7, 64, 1000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cholesky_in_place_leaves_the_other_triangle_alone(block, order):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(150, 200))
    S = B @ B.T
    A = np.array(S, order=order)
    below = np.tril_indices(150, -1)
    A[below] = rng.normal(size=len(below[0]))
    kept = A[below].copy()
    assert cholesky_in_place(A, block)
    R = np.triu(A)
    np.testing.assert_allclose(R.T @ R, S, atol=1e-10 * np.abs(S).max())
    np.testing.assert_array_equal(A[below], kept)
    assert not cholesky_in_place(S - 1e6 * np.eye(150), block)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_symmetric_matrices_are_made_of_blocks(dtype, monkeypatch):
    F = np.random.default_rng(0).normal(size=(90, 50)).astype(dtype)
    expected = F.T @ F
    monkeypatch.setattr(linalg, "_LARGE_ORDER", 20)
    monkeypatch.setattr(linalg, "_PANEL", 7)
    found = gram(F)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=1000 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(found, found.T)
    R = cholesky(expected.astype(np.float64))
    np.testing.assert_allclose(R, np.linalg.cholesky(expected.astype(np.float64)).T, atol=1e-12)
    values, vectors = psd_eigh(expected)
    np.testing.assert_allclose((vectors * values) @ vectors.T, expected, atol=1e-4)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(-np.eye(30))


@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 5, 1), (700, 300, 1), (701, 300, 7), (33, 900, 90), (50, 2000, 400)])
def test_products_with_few_columns_are_products(shape):
    n, m, t = shape
    rng = np.random.default_rng(3)
    A, B, G = rng.normal(size=(n, m)), rng.normal(size=(m, t)), rng.normal(size=(n, t))
    np.testing.assert_allclose(thin_product(A, B), A @ B, rtol=1e-10, atol=1e-10)
    total = np.ones((m, t))
    add_thin_cross(total, A, G)
    np.testing.assert_allclose(total, 1 + A.T @ G, rtol=1e-10, atol=1e-10)


def test_products_with_few_columns_are_small_ones_that_cover_every_row_once():
    slices = linalg._small_products(1001, 1000, 10)
    assert np.concatenate([np.arange(1001)[some] for some in slices]).tolist() == list(range(1001))
    assert max(some.stop - some.start for some in slices) * 1000 * 10 <= linalg._SMALL_PRODUCT
    assert len(linalg._small_products(1001, 1000, 1)) == len(linalg._small_products(1001, 5000, 90)) == 1
