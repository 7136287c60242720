"""The compiled loops of sparse rows say what SciPy says, for every instruction set of this machine."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from loop_tolerance import assert_close

from nystrom import loops

DTYPES = [np.float32, np.float64]

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")


@pytest.mark.parametrize("dtype", DTYPES)
class TestSparse:
    def matrices(self, dtype, n=45, p=200, m=21):
        X = sp.random(n, p, 0.1, format="csr", random_state=1, dtype=dtype)
        Z = sp.random(m, p, 0.3, format="csr", random_state=2, dtype=np.float64)
        X.data[X.indptr[min(3, n - 1)] : X.indptr[min(4, n)]] = 0
        X.eliminate_zeros()
        return X, Z

    @pytest.mark.parametrize("m", [1, 8, 9, 16, 17, 33, 70])
    def test_product(self, m, dtype, both):
        X, Z = self.matrices(dtype, m=m)
        rounded = Z.astype(dtype).astype(np.float64).toarray()
        exact = X.astype(np.float64) @ rounded.T
        wide = X.copy()
        wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        for other in (Z, Z.toarray(), np.asfortranarray(Z.toarray())):
            fast, slow = both(lambda other=other: [loops.SparseProduct(other, dtype)(rows) for rows in (X, wide)])
            for found in fast + slow:
                assert found.dtype == dtype
                assert_close(found, exact, np.abs(X) @ np.abs(rounded.T), dtype, 200)

    @pytest.mark.parametrize("dense", [False, True])
    def test_exponentials(self, dense, dtype, both):
        X, Z = self.matrices(dtype)
        Z = Z.toarray() if dense else Z
        norms = np.linspace(0, 2, 21).astype(dtype)
        for exp in (False, True):
            fast, slow = both(lambda exp=exp: loops.SparseExponentials(Z, norms, 0.3)(X, exp=exp))
            np.testing.assert_allclose(fast, slow, rtol=60 * np.finfo(dtype).eps, atol=60 * np.finfo(dtype).eps)
            assert fast.max() <= (1 if exp else 0)

    @pytest.mark.parametrize("m", [1, 8, 21, 40])
    @pytest.mark.parametrize("dense", [False, True])
    def test_exponentials_minus_a_row_and_what_is_seen_of_them(self, dense, m, dtype, both, rng):
        X, Z = self.matrices(dtype, m=m)
        kernel = loops.SparseExponentials(Z.toarray() if dense else Z, np.linspace(1, 3, m).astype(dtype), 0.3)
        minus, eps = rng.random(m).astype(dtype), np.finfo(dtype).eps

        def run():
            out, largest = np.empty((X.shape[0], m), dtype), np.empty(X.shape[0], dtype)
            kept = np.full((X.shape[0], m + 3), 7, dtype)
            squares = kernel.into(out, X, minus, largest, kept[:, 2 : m + 2])
            assert (kept[:, [0, 1, -1]] == 7).all()
            return kernel(X, exp=True), out, largest, kept[:, 2 : m + 2], squares

        for whole, out, largest, kept, squares in both(run):
            assert np.array_equal(kept, whole)
            assert np.array_equal(out, kept - minus)
            assert np.array_equal(largest, kept.max(axis=1))
            np.testing.assert_allclose(squares, np.sum(X.data.astype(np.float64) ** 2), rtol=1e-13)
            assert kept.max() <= 1 + eps

    def test_the_sum_of_squares_tells_sparse_rows_that_are_not_finite(self, dtype, both):
        X, Z = self.matrices(dtype)
        X.data[5] = np.nan
        kernel = loops.SparseExponentials(Z, np.ones(21, dtype), 0.3)
        for squares in both(lambda: kernel.into(np.empty((45, 21), dtype), X, np.zeros(21, dtype))):
            assert not np.isfinite(squares)

    def test_entries_that_stand_twice_are_added(self, dtype, both):
        X, _ = self.matrices(dtype)
        twice = sp.csr_matrix((np.ones(2, dtype), [4, 4], [0, 2]), shape=(1, 200))
        for found in both(lambda: loops.SparseProduct(twice, dtype)(X)):
            np.testing.assert_allclose(found[:, 0], 2 * X[:, [4]].toarray()[:, 0], rtol=2 * np.finfo(dtype).eps)

    @pytest.mark.parametrize(("n", "p", "m"), [(0, 5, 3), (4, 0, 3), (4, 5, 0)])
    def test_nothing(self, n, p, m, dtype, both):
        for Z in (sp.csr_matrix((m, p), dtype=dtype), np.ones((m, p), dtype)):
            for found in both(lambda Z=Z: loops.SparseProduct(Z, dtype)(sp.csr_matrix((n, p), dtype=dtype))):
                np.testing.assert_array_equal(found, np.zeros((n, m), dtype))

    def test_nan(self, dtype, both):
        X, Z = self.matrices(dtype)
        X.data[::7] = np.nan
        fast, slow = both(lambda: loops.SparseProduct(Z.toarray(), dtype)(X))
        np.testing.assert_array_equal(np.isnan(fast), np.isnan(slow))

    @pytest.mark.parametrize("m", [3, 70, 700])
    @pytest.mark.parametrize("density", [0.001, 0.02, 0.4])
    def test_full_columns_and_lists(self, m, density, dtype, both):
        X, _ = self.matrices(dtype, n=60, p=400)
        Z = sp.random(m, 400, density, format="lil", random_state=3, dtype=np.float64)
        # Columns that all have, that none has, and rows longer than the entries taken at once.
        Z[:, 7], Z[:, 8] = 1.5, 0
        X = sp.vstack([X, sp.csr_matrix(np.ones((2, 400), dtype))], format="csr")
        Z = Z.tocsr().astype(dtype)
        exact, size = X.astype(np.float64) @ Z.astype(np.float64).T, np.abs(X) @ np.abs(Z).T
        for found in both(lambda: loops.SparseProduct(Z, dtype)(X)):
            assert_close(found, exact.toarray(), size.toarray(), dtype, 400)

    def test_very_many_columns_go_to_scipy(self, dtype, both, monkeypatch):
        from nystrom.loops import sparse

        X, Z = self.matrices(dtype)
        exact = loops.SparseProduct(Z, dtype)(X)
        monkeypatch.setattr(sparse, "_MOST_COLUMNS", 100)
        product = loops.SparseProduct(Z, dtype)
        np.testing.assert_allclose(product(X), exact, rtol=30 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)
        assert not product._columns

    def test_column_sums(self, dtype, both):
        X, _ = self.matrices(dtype)
        for sums, squares in both(lambda: loops.column_sums(X)):
            np.testing.assert_allclose(sums, X.astype(np.float64).sum(axis=0).A1, rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(squares, np.sum(X.data.astype(np.float64) ** 2), rtol=1e-13)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_heavy_sums(self, weighted, dtype, both):
        rng = np.random.default_rng(0)
        X, _ = self.matrices(dtype, n=300)
        X.data = (X.data * rng.choice([-1, 1], X.nnz)).astype(dtype)
        labels = rng.integers(6, size=300)
        labels[labels == 4] = 5
        weight = rng.random(300) if weighted else None
        w = np.ones(300) if weight is None else weight
        exact = np.zeros((6, 200))
        np.add.at(exact, labels, w[:, None] * X.toarray().astype(np.float64))
        for share in (0.0, 0.01, 0.3):
            allowed = share * (exact**2).sum(axis=1)
            fast, slow = both(lambda allowed=allowed: loops.heavy_sums(labels, X, allowed, weight))
            for found in (fast, slow):
                assert found.has_canonical_format
                kept = found.toarray()
                lost = np.where(kept == 0, exact, 0)
                np.testing.assert_allclose(kept + lost, exact, rtol=1e-9, atol=1e-12)
                assert np.all((lost**2).sum(axis=1) <= allowed + 1e-12)
                # What is left out is lighter than what stays, up to the step in which they are told apart.
                smallest = np.where(kept == 0, np.inf, np.abs(kept)).min(axis=1)
                assert np.all(np.abs(lost).max(axis=1) <= smallest)
            np.testing.assert_array_equal(fast.toarray() != 0, slow.toarray() != 0)
            assert share < 0.1 or fast.nnz < 0.8 * np.count_nonzero(exact)

    def test_canonical(self, dtype):
        X, _ = self.matrices(dtype)

        def looked(indices=X.indices, indptr=X.indptr, shape=X.shape):
            return loops.is_canonical(X.data, indices, indptr, shape)

        assert looked() == (loops.instruction_set() is not None)
        falls, outside, negative = X.indices.copy(), X.indices.copy(), X.indices.copy()
        falls[:2] = falls[1::-1]
        outside[X.indptr[1] - 1], negative[0] = 200, -1
        for wrong in (falls, outside, negative, np.sort(X.indices)[::-1].copy()):
            assert not looked(wrong)
        assert not looked(indptr=X.indptr[:-1])
        assert not looked(indptr=X.indptr + 1)
        assert not looked(shape=(X.shape[0], 3))
