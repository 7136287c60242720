"""Nothing that Python can pass makes a loop read or write outside its arrays: it is refused, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import loops
from nystrom.loops import extension
from nystrom.loops.clusters import sum_by_label
from nystrom.loops.sparse import SparseProduct


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return np.dtype(request.param)


@pytest.fixture
def native(both):
    """The loops of one instruction set; ``both`` has put them in use."""
    return extension.native


class TestNative:
    """The extension itself, called with arrays that the functions around it would never pass."""

    def test_product(self, native, dtype):
        X, out = np.ones((4, 3), dtype), np.empty((4, 5), dtype)
        panels, norms = native.pack(np.ones((3, 5), dtype)), np.zeros(5, dtype)
        native.product(X, panels, out, 0.5, norms, True)
        with pytest.raises(ValueError, match=r"out must have shape \(4, 5\); got \(3, 5\)"):
            native.product(X, panels, out[:3])
        with pytest.raises(ValueError, match="panels must be those of 2 rows and 5 columns"):
            native.product(X[:, :2], panels, out)
        with pytest.raises(ValueError, match="panels must be those of 3 rows and 100 columns"):
            native.product(X, panels, np.empty((4, 100), dtype))
        with pytest.raises(ValueError, match="norms must have size 5; got 4"):
            native.product(X, panels, out, 0.5, norms[:4], True)
        with pytest.raises(ValueError, match="X must have contiguous rows"):
            native.product(np.asfortranarray(X), panels, out)
        with pytest.raises(ValueError, match="out must have contiguous rows"):
            native.product(X, panels, np.asfortranarray(out))
        with pytest.raises(ValueError, match="plain products alone are added"):
            native.product(X, panels, out, 0.5, norms, True, add=True)
        minus, largest, kept = np.zeros(5, dtype), np.empty(4, dtype), np.empty((4, 5), dtype)
        native.product(X, panels, out, 0.5, norms, True, minus, largest, kept)
        with pytest.raises(ValueError, match="minus must have size 5; got 4"):
            native.product(X, panels, out, 0.5, norms, True, minus[:4])
        with pytest.raises(ValueError, match="minus is taken from exponentials alone"):
            native.product(X, panels, out, 0.5, norms, False, minus)
        with pytest.raises(ValueError, match="largest must have size 4; got 3"):
            native.product(X, panels, out, 0.5, norms, True, minus, largest[:3])
        with pytest.raises(ValueError, match="largest and kept are found where minus is taken"):
            native.product(X, panels, out, 0.5, norms, True, None, largest)
        with pytest.raises(ValueError, match=r"kept must have shape \(4, 5\); got \(3, 5\)"):
            native.product(X, panels, out, 0.5, norms, True, minus, largest, kept[:3])

    def test_norm_kernel(self, native, dtype):
        X, out, panels = np.ones((4, 3), dtype), np.empty((4, 5), dtype), native.pack(np.ones((3, 5), dtype))
        native.norm_kernel(X, panels, out, 1.0, 1.0, 1.0)
        with pytest.raises(ValueError, match=r"out must have shape \(4, 5\); got \(3, 5\)"):
            native.norm_kernel(X, panels, out[:3], 1.0, 1.0, 1.0)
        with pytest.raises(ValueError, match="panels must be those of 2 rows and 5 columns"):
            native.norm_kernel(X[:, :2], panels, out, 1.0, 1.0, 1.0)
        with pytest.raises(ValueError, match="X must have contiguous rows"):
            native.norm_kernel(np.asfortranarray(X), panels, out, 1.0, 1.0, 1.0)
        with pytest.raises(ValueError, match="out must have contiguous rows"):
            native.norm_kernel(X, panels, np.asfortranarray(out), 1.0, 1.0, 1.0)
        for p, q in ((2.5, 1.0), (1.0, 1.5), (1.0, 0.0), (1.0, float("nan"))):
            with pytest.raises(ValueError, match="0 < q <= p <= 2 must hold"):
                native.norm_kernel(X, panels, out, 1.0, p, q)

    def test_arrays_of_another_kind(self, native, dtype):
        other = np.dtype("float64" if dtype == np.float32 else "float32")
        X, out, panels = np.ones((4, 3), dtype), np.empty((4, 5), dtype), native.pack(np.ones((3, 5), dtype))
        fixed = out.copy()
        fixed.flags.writeable = False
        wrong = [
            (X.astype(other), panels, out),
            (X, native.pack(np.ones((3, 5), other)), out),
            (X, panels, out.astype(other)),
            (X.astype(dtype.newbyteorder()), panels, out),
            (X, panels, fixed),
            (X[0], panels, out),
            (X, panels[:, :, ::2], out),
            (None, panels, out),
            (X.tolist(), panels, out),
        ]
        for arguments in wrong:
            with pytest.raises(TypeError, match="incompatible function arguments"):
                native.product(*arguments)

    def test_misaligned(self, native, dtype):
        X = np.zeros(4 * 3 * dtype.itemsize + 1, np.uint8)[1:].view(dtype).reshape(4, 3)
        with pytest.raises(ValueError, match="X must be aligned"):
            native.product(X, native.pack(np.ones((3, 5), dtype)), np.empty((4, 5), dtype))

    @pytest.mark.parametrize("index", [np.int32, np.int64])
    def test_sparse(self, native, dtype, index):
        X = sp.random(6, 8, 0.5, format="csr", dtype=dtype, random_state=0)
        ends, indices, data = X.indptr.astype(index), X.indices.astype(index), X.data
        columns, out = native.dense_columns(np.ones((5, 8), dtype)), np.empty((6, 5), dtype)
        labels, allowed = np.zeros(6, np.int32), np.zeros(2)

        def changed(values, place, value):
            values = values.copy()
            values[place] = value
            return values

        def run(ends, indices, data):
            native.sparse_product(ends, indices, data, columns, out)

        def sums(ends, indices, data):
            native.column_sums(ends, indices, data, np.zeros(8))

        def heavy(ends, indices, data):
            native.heavy_sums(ends, indices, data, 8, labels, None, allowed)

        for call in (run, sums, heavy):
            call(ends, indices, data)
            for wrong in (changed(ends, 6, len(data) + 1), changed(ends, 0, -1), changed(ends, 2, ends[3] + 1)):
                with pytest.raises(ValueError, match=r"X\.indptr must rise"):
                    call(wrong, indices, data)
            for value in (-1, 8, np.iinfo(index).max, np.iinfo(index).min):
                with pytest.raises(ValueError, match=r"X\.indices must be from 0 to 7"):
                    call(ends, changed(indices, 3, value), data)
            with pytest.raises(ValueError, match="same size"):
                call(ends, indices[:-1], data)
            with pytest.raises(ValueError, match=r"X\.indptr must not be empty"):
                call(ends[:0], indices, data)
        with pytest.raises(ValueError, match=r"Z\.indices must be from 0 to 3"):
            native.sparse_columns(ends, indices, data, 4)
        with pytest.raises(ValueError, match="norms must have size 5; got 6"):
            native.sparse_product(ends, indices, data, columns, out, 1.0, np.zeros(6, dtype))
        with pytest.raises(ValueError, match="out must have contiguous rows"):
            native.sparse_product(ends, indices, data, columns, np.empty((6, 5), dtype, order="F"))
        with pytest.raises(ValueError, match="labels must be one number from 0 to 1 per row"):
            native.heavy_sums(ends, indices, data, 8, labels + 2, None, allowed)
        with pytest.raises(ValueError, match="weights must have size 6; got 5"):
            native.heavy_sums(ends, indices, data, 8, labels, np.ones(5), allowed)

    def test_nearest(self, native, dtype):
        X, panels, labels = np.ones((4, 3), dtype), native.pack(np.ones((3, 5), dtype)), np.empty(4, np.int32)
        half, shift = np.zeros(5, dtype), np.zeros(3, dtype)
        native.nearest(X, panels, half, shift, labels)
        with pytest.raises(ValueError, match="labels must have size 4; got 3"):
            native.nearest(X, panels, half, shift, labels[:3])
        with pytest.raises(ValueError, match="shift must have size 3; got 2"):
            native.nearest(X, panels, half, shift[:2], labels)
        with pytest.raises(ValueError, match="there must be a centre"):
            native.nearest(X, native.pack(np.ones((3, 0), dtype)), half[:0], shift, labels)

    def test_cluster_sums(self, native, dtype):
        X, sums, counts = np.ones((4, 3), dtype), np.zeros((2, 3)), np.zeros(2, np.int64)
        native.cluster_sums(X, np.zeros(4, np.int32), None, sums, counts)
        for bad in (-1, 2, 2**31 - 1, -(2**31)):
            with pytest.raises(ValueError, match="labels must be one number from 0 to 1"):
                native.cluster_sums(X, np.array([0, 1, bad, 0], np.int32), None, sums, counts)
        with pytest.raises(ValueError, match="labels must have size 4; got 3"):
            native.cluster_sums(X, np.zeros(3, np.int32), None, sums, counts)
        with pytest.raises(ValueError, match=r"sums must have shape \(2, 3\)"):
            native.cluster_sums(X, np.zeros(4, np.int32), None, sums[:, :2], counts)
        with pytest.raises(ValueError, match="shift must have size 3"):
            native.cluster_sums(X, np.zeros(4, np.int32), np.zeros(4, dtype), sums, counts)

    def test_seed(self, native, dtype):
        A, squares, uniform, chosen = (
            np.ones((9, 2), dtype),
            np.ones(9, dtype),
            np.full((3, 2), 0.5),
            np.zeros(4, np.int64),
        )
        native.seed(A, squares, uniform, chosen)
        for first in (-1, 9, 2**40):
            with pytest.raises(ValueError, match="number of a row"):
                native.seed(A, squares, uniform, np.array([first, 0, 0, 0]))
        with pytest.raises(ValueError, match="at least one; got 0"):
            native.seed(A, squares, uniform[:, :0], chosen)
        with pytest.raises(ValueError, match="a row per seed but the first"):
            native.seed(A, squares, uniform[:2], chosen)
        with pytest.raises(ValueError, match="squares must have size 9"):
            native.seed(A, squares[:5], uniform, chosen)
        with pytest.raises(ValueError, match="there must be a row"):
            native.seed(A[:0], squares[:0], uniform, chosen)
        with pytest.raises(ValueError, match="n_threads must be at least 1"):
            native.seed(A, squares, uniform, chosen, 0)

    @pytest.mark.parametrize("n_threads", [2, 3, 40])
    def test_seeds_are_the_same_for_any_number_of_threads(self, native, dtype, n_threads, rng):
        A = rng.normal(size=(1000, 3)).astype(dtype)
        squares, uniform = np.sum(A**2, axis=1), rng.random((99, 3))
        alone, together = np.zeros(100, np.int64), np.zeros(100, np.int64)
        assert native.seed(A, squares, uniform, alone) == 100
        assert native.seed(A, squares, uniform, together, n_threads) == 100
        assert np.array_equal(alone, together)

    @pytest.mark.parametrize("draw", [-1e300, -1.0, 1.0, 1e300, np.inf, -np.inf, np.nan])
    def test_draws_outside_0_to_1_still_name_rows(self, native, dtype, draw, rng):
        A = rng.normal(size=(130, 2)).astype(dtype)
        chosen = np.zeros(5, np.int64)
        found = native.seed(A, np.sum(A**2, axis=1), np.full((4, 3), draw), chosen)
        assert np.all((chosen[:found] >= 0) & (chosen[:found] < 130))

    def test_normal_product(self, native, dtype):
        C, V, U, out = np.ones((4, 3), dtype), np.ones((3, 2)), np.empty((4, 2)), np.zeros((3, 2))
        native.normal_product(C, V, None, U, out)
        with pytest.raises(ValueError, match="V must have size 3; got 2"):
            native.normal_product(C, V[:2], None, U, out)
        with pytest.raises(ValueError, match=r"U must have shape \(4, 2\)"):
            native.normal_product(C, V, None, U[:3], out)
        with pytest.raises(ValueError, match="weights must have size 4"):
            native.normal_product(C, V, np.ones(3), U, out)

    def test_coalitions(self, native):
        x, background, out = np.ones((2, 3)), np.ones((4, 2, 3)), np.zeros((2, 3))
        weights, nodes = np.ones(4), np.ones(2)
        native.coalitions(x, background, weights, nodes, nodes, out)
        with pytest.raises(ValueError, match="a matrix of the shape of x per weight"):
            native.coalitions(x, background, weights[:3], nodes, nodes, out)
        with pytest.raises(ValueError, match="a matrix of the shape of x per weight"):
            native.coalitions(x, np.ones((4, 3, 2)), weights, nodes, nodes, out)
        with pytest.raises(ValueError, match="parts must have size 2; got 1"):
            native.coalitions(x, background, weights, nodes, nodes[:1], out)
        with pytest.raises(ValueError, match="out must have shape"):
            native.coalitions(x, background, weights, nodes, nodes, out[:1])
        with pytest.raises(ValueError, match="x must be contiguous"):
            native.coalitions(np.ones((2, 6))[:, :3], background, weights, nodes, nodes, out)


class TestFunctions:
    """The same through the functions that the library calls, with the loops and without."""

    @pytest.fixture(params=["loops", "NumPy"], autouse=True)
    def way(self, request, use):
        if request.param == "NumPy":
            use(None)

    @pytest.mark.parametrize("labels", [[0, -1], [0, 2], [0, 2**32], [0], [[0, 1]]])
    def test_labels(self, labels):
        with pytest.raises(ValueError, match="labels must be one number from 0 to 1"):
            loops.sum_by_label(np.array(labels), np.ones((2, 3)), 2)

    def test_columns(self):
        Z = np.ones((7, 2))
        for function, X in (
            (loops.Product(Z), np.ones((4, 9))),
            (loops.NearestColumn(Z, np.ones(2), np.ones(7)), np.ones((4, 9))),
            (loops.SparseProduct(Z.T, float), sp.csr_matrix(np.ones((4, 9)))),
            (loops.SparseProduct(sp.csr_matrix(Z.T), float), sp.csr_matrix(np.ones((4, 9)))),
        ):
            with pytest.raises(ValueError, match=r"7 columns; got shape \(4, 9\)"):
                function(X)

    def test_normal_product(self):
        C = np.ones((4, 3))
        with pytest.raises(ValueError, match=r"V must have a row per column of C, of shape \(4, 3\); got shape \(2,\)"):
            loops.normal_product(C, np.ones(2), np.zeros(2))
        with pytest.raises(ValueError, match="out must be a writeable, contiguous float64 array"):
            loops.normal_product(C, np.ones(3), np.zeros(3, np.float32))
        with pytest.raises(ValueError, match=r"weights must have shape \(4,\); got \(3,\)"):
            loops.normal_product(C, np.ones(3), np.zeros(3), np.ones(3))

    def test_whole_numbers(self):
        whole = np.arange(60).reshape(20, 3)
        sums, counts, _ = loops.sum_by_label(np.zeros(20, int), whole, 1)
        assert np.array_equal(sums[0], whole.sum(axis=0))
        assert counts.tolist() == [20]


def test_arrays_that_are_not_aligned_are_taken() -> None:
    def shifted(values: Any) -> Any:
        """Return the same numbers one byte off, as they may come over a network."""
        raw = np.empty(values.nbytes + 1, np.uint8)[1:]
        moved = raw.view(values.dtype).reshape(values.shape)
        moved[...] = values
        assert not moved.flags.aligned
        return moved

    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(50, 3)), np.arange(50) % 4
    found = sum_by_label(shifted(labels), shifted(X), 4, shifted(X[0]))
    for value, expected in zip(found, sum_by_label(labels, X, 4, X[0]), strict=True):
        np.testing.assert_array_equal(value, expected)
    Z = sp.random(20, 30, density=0.3, format="csr", random_state=0)
    rows = sp.random(40, 30, density=0.3, format="csr", random_state=1)
    moved = rows.copy()
    moved.data, moved.indices, moved.indptr = map(shifted, (rows.data, rows.indices, rows.indptr))
    product = SparseProduct(Z, np.dtype(np.float64))
    np.testing.assert_array_equal(product(moved), product(rows))
