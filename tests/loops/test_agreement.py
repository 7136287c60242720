"""The compiled loops say what NumPy says, for every instruction set of this machine, in every corner."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loop_tolerance import assert_close

from nystrom import loops

DTYPES = [np.float32, np.float64]
SHAPES = [(1, 1, 1), (5, 3, 2), (6, 8, 16), (7, 9, 17), (97, 20, 8), (200, 33, 31), (13, 1025, 5), (9, 3000, 40)]
SHAPES += [(30, 12, 33), (25, 4, 63), (3, 0, 4), (0, 5, 6), (0, 0, 1)]

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")


def layouts(X):
    """Yield the same rows laid out in other ways: strides, order, alignment, byte order, read only."""
    yield X
    wide = np.zeros((2 * X.shape[0] + 1, 2 * X.shape[1] + 3), X.dtype)
    wide[1::2, 3::2] = X
    yield wide[1::2, 3::2]
    beside = np.zeros((X.shape[0], X.shape[1] + 5), X.dtype)
    beside[:, 2:-3] = X
    yield beside[:, 2:-3]
    yield np.ascontiguousarray(X[::-1])[::-1]
    yield np.ascontiguousarray(X[:, ::-1])[:, ::-1]
    yield np.asfortranarray(X)
    odd = np.zeros(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    odd[:] = X
    yield odd
    # Rows that begin at addresses which are no multiple of the size of a number.
    packed = np.zeros(X.shape[0], np.dtype([("row", X.dtype, (X.shape[1],)), ("tag", "u1")]))
    packed["row"] = X
    yield packed["row"]
    yield X.astype(X.dtype.newbyteorder())
    fixed = X.copy()
    fixed.flags.writeable = False
    yield fixed


NORMS = [(1.0, 1.0), (1.0, 0.3), (1.5, 1.5), (1.7, 0.9), (0.4, 0.4), (2.0, 1.0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "p", "m"), SHAPES)
@pytest.mark.parametrize("norm", NORMS)
def test_kernels_of_norms_are_right_in_every_layout(n, p, m, dtype, norm, both, rng):
    X, Z = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(m, p)).astype(dtype)
    gamma = 1 / max(p, 1) ** (1 / norm[0])
    fast, slow = both(
        lambda: [pickle.loads(pickle.dumps(loops.NormKernel(Z, gamma, *norm)))(rows) for rows in layouts(X)]
    )
    # Powers in np.longdouble are a hundred times slower.
    wider = np.float64 if dtype == np.float32 else np.longdouble
    powers = np.abs(X[:, None].astype(wider) - Z.astype(wider)) ** norm[0]
    exponents = gamma ** norm[1] * powers.sum(axis=2) ** (norm[1] / norm[0])
    for found in fast + slow:
        assert found.dtype == dtype
        assert_close(found, np.exp(-exponents), np.exp(-exponents) * (1 + exponents), dtype, p)
    assert all(np.array_equal(found, fast[0]) for found in fast)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_row_of_a_kernel_of_norms_has_the_same_bits_anywhere(dtype, norm, both, rng):
    X, Z = rng.normal(size=(101, 20)).astype(dtype), rng.normal(size=(30, 20)).astype(dtype)
    kernel = loops.NormKernel(Z, 0.1, *norm)
    fast, _ = both(lambda: (kernel(X), np.concatenate([kernel(X[i : i + 1]) for i in range(len(X))])))
    np.testing.assert_array_equal(*fast)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_kernels_of_norms_keep_what_is_not_finite_and_know_the_ends_of_the_range(dtype, norm, both):
    X = np.array([[np.nan, 1], [np.inf, 1], [-np.inf, 1], [0, 1], [1e35, 1], [1e-35, 1]], dtype)
    for found in both(lambda: loops.NormKernel(np.array([[0.0, 1.0]], dtype), 1.0, *norm)(X)):
        np.testing.assert_allclose(found.ravel(), [np.nan, 0, 0, 1, 0, np.exp(-(1e-35 ** norm[1]))], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "p", "m"), SHAPES)
class TestProduct:
    def test_is_right_in_every_layout(self, n, p, m, dtype, both, rng):
        X, B = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(p, m)).astype(dtype)
        exact = X.astype(np.longdouble) @ B.astype(np.longdouble)
        scale = np.abs(X).astype(np.float64) @ np.abs(B).astype(np.float64)
        fast, slow = both(lambda: [loops.Product(B)(rows) for rows in layouts(X)])
        for found in fast + slow:
            assert found.dtype == dtype
            assert_close(found, exact, scale, dtype, p)
        assert all(np.array_equal(found, fast[0]) for found in fast)

    def test_is_written_to_and_added_to_a_part_of_an_array(self, n, p, m, dtype, both, rng):
        X, B = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(p, m)).astype(dtype)
        before = rng.normal(size=(n, m)).astype(dtype)
        exact = X.astype(np.longdouble) @ B.astype(np.longdouble)
        scale = np.abs(X).astype(np.float64) @ np.abs(B).astype(np.float64)

        def run():
            product, out = loops.Product(B), np.full((n, m + 2), 7, dtype)
            part = out[:, 1 : m + 1]
            assert product(X, part) is part
            written = part.copy()
            part[:] = before
            product.add_to(part, X)
            assert (out[:, [0, -1]] == 7).all()
            return written, part

        for written, added in both(run):
            assert_close(written, exact, scale, dtype, p)
            assert_close(added, exact + before, scale + np.abs(before), dtype, p + 1)

    def test_a_row_has_the_same_bits_anywhere(self, n, p, m, dtype, both, rng):
        product, X = loops.Product(rng.normal(size=(p, m)).astype(dtype)), rng.normal(size=(n, p)).astype(dtype)
        apart = [product(X[i : i + 1]) for i in range(n)]
        assert np.array_equal(product(X), np.concatenate([np.empty((0, m), dtype), *apart]))

    def test_the_gaussian_kernel(self, n, p, m, dtype, both, rng):
        X, Z, gamma = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(m, p)), 0.5 / max(p, 1)
        columns = (2 * gamma * Z.T).astype(dtype)
        norms = (gamma * np.sum(Z**2, axis=1)).astype(dtype)
        for center in (None, np.full(p, 0.25, dtype)):
            kernel = loops.Exponentials(columns, norms, gamma, center)
            for exp in (False, True):
                fast, slow = both(lambda e=exp, k=kernel: [k(rows, exp=e) for rows in layouts(X)])
                for found in fast:
                    assert found.dtype == dtype
                    # The exponents are sums of terms of up to about 4; an error there is one of the exponential.
                    np.testing.assert_allclose(
                        found, slow[0], rtol=0 if not exp else 60 * np.finfo(dtype).eps, atol=60 * np.finfo(dtype).eps
                    )

    def test_the_gaussian_kernel_minus_a_row_and_what_is_seen_of_it(self, n, p, m, dtype, both, rng):
        X, Z, gamma = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(m, p)), 0.5 / max(p, 1)
        columns, norms = (2 * gamma * Z.T).astype(dtype), (gamma * np.sum(Z**2, axis=1)).astype(dtype)
        minus = rng.random(m).astype(dtype)
        eps = float(np.finfo(dtype).eps)

        def run(kernel):
            found = []
            for rows in layouts(X):
                # Parts of wider arrays, which must stay as they are around them.
                out, kept, largest = np.full((n, m + 2), 7, dtype), np.full((n, m + 3), 7, dtype), np.empty(n, dtype)
                squares = kernel.into(out[:, 1 : m + 1], rows, minus, largest, kept[:, 2 : m + 2])
                assert (out[:, [0, -1]] == 7).all()
                assert (kept[:, [0, 1, -1]] == 7).all()
                assert kernel.into(np.empty((n, m), dtype), rows, minus) == pytest.approx(squares, rel=p * eps)
                found.append((out[:, 1 : m + 1], largest, kept[:, 2 : m + 2], squares))
            return found

        for center in (None, np.full(p, 0.25, dtype)):
            kernel = loops.Exponentials(columns, norms, gamma, center)
            whole = both(lambda k=kernel: k(X, exp=True))
            exact = float(np.sum((X.astype(np.float64) - (0 if center is None else 0.25)) ** 2))
            fast, slow = both(lambda k=kernel: run(k))
            assert all(np.array_equal(kept, whole[0]) for _, _, kept, _ in fast)
            for out, largest, kept, squares in fast + slow:
                np.testing.assert_allclose(kept, whole[1], rtol=0, atol=60 * eps)
                assert np.array_equal(out, kept - minus)
                assert np.array_equal(largest, kept.max(axis=1, initial=0))
                assert squares == pytest.approx(exact, rel=(4 + p) * eps)

    def test_the_sum_of_squares_tells_rows_that_are_not_finite(self, n, p, m, dtype, both, rng):
        if n * p == 0:
            return
        kernel = loops.Exponentials(rng.normal(size=(p, m)).astype(dtype), np.zeros(m, dtype), 0.1)
        for bad in (np.nan, np.inf, -np.inf):
            X = rng.normal(size=(n, p)).astype(dtype)
            X[rng.integers(n), rng.integers(p)] = bad
            for squares in both(lambda rows=X: kernel.into(np.empty((n, m), dtype), rows, np.zeros(m, dtype))):
                assert not np.isfinite(squares)


@pytest.mark.parametrize("dtype", DTYPES)
class TestExponential:
    def exponential(self, x):
        """The exponential of min(x, 0): the product of x with 1, minus norms of 0."""
        one, zero = np.ones((1, 1), x.dtype), np.zeros(1, x.dtype)
        return loops.Exponentials(one, zero, 0.0)(x[:, None], exp=True).ravel()

    def test_is_right_to_two_units_in_the_last_place(self, dtype, both):
        x = -np.concatenate(
            [np.linspace(0, 1, 4001), np.logspace(-8, np.log10(700 if dtype == np.float64 else 86), 4001)]
        )
        x = x.astype(dtype)
        exact = np.exp(x.astype(np.longdouble))
        for found in both(lambda: self.exponential(x)):
            assert np.max(np.abs(found - exact) / np.spacing(exact.astype(dtype))) < 2

    def test_the_ends(self, dtype, both):
        tiny = np.finfo(dtype).tiny
        x = np.array([0.0, -0.0, -1e4, -1e15, 3.0, np.nan, tiny, -tiny / 4], dtype)
        for found in both(lambda: self.exponential(x)):
            np.testing.assert_array_equal(found, np.array([1, 1, 0, 0, 1, np.nan, 1, 1], dtype))

    def test_below_the_normal_numbers_it_is_no_more_than_the_smallest(self, dtype, both):
        x = np.linspace(-760, -80, 2000).astype(dtype)
        fast, slow = both(lambda: self.exponential(x))
        normal = slow >= 2 * np.finfo(dtype).tiny
        np.testing.assert_allclose(fast[normal], slow[normal], rtol=4 * np.finfo(dtype).eps)
        assert np.all(np.abs(fast - slow)[~normal] <= 2 * np.finfo(dtype).tiny)

    def test_one_row_of_nan_leaves_the_others_alone(self, dtype, both, rng):
        X = rng.normal(size=(30, 3)).astype(dtype)
        X[7, 1] = np.nan
        columns, norms = (0.2 * X[10:20].T).astype(dtype), (0.1 * np.sum(X[10:20] ** 2, axis=1)).astype(dtype)
        for found in both(lambda: loops.Exponentials(columns, norms, 0.1)(X, exp=True)):
            assert np.isnan(found[7]).all()
            assert np.all(np.delete(found, 7, axis=0) <= 1)

    def test_a_nan_with_a_payload_stays_nan(self, dtype, both):
        bits = np.uint32 if dtype == np.float32 else np.uint64
        quiet = np.array([np.nan], dtype).view(bits)
        x = np.concatenate([(quiet | bits(k)).view(dtype) for k in (1, 255, 1954)])
        assert all(np.isnan(found).all() for found in both(lambda: self.exponential(x)))


@pytest.mark.parametrize("dtype", DTYPES)
class TestNearest:
    @pytest.mark.parametrize(("n", "p", "m"), [(1, 1, 1), (40, 3, 5), (50, 10, 33), (29, 17, 70), (0, 3, 2), (7, 0, 3)])
    def test_small_whole_numbers_agree_exactly(self, n, p, m, dtype, both, rng):
        # Sums of small integers are exact in any order, so ties are ties in both ways.
        X = rng.integers(-3, 4, size=(n, p)).astype(dtype)
        centers = rng.integers(-3, 4, size=(m, p)).astype(dtype)
        nearest = loops.NearestColumn(centers.T, np.sum(centers**2, axis=1) / 2, np.ones(p, dtype))
        fast, slow = both(lambda: [nearest(rows) for rows in layouts(X)])
        distances = np.sum((X[:, None] - 1 - centers) ** 2, axis=2)
        for found in fast + slow:
            assert found.dtype == np.int32
            np.testing.assert_array_equal(found, np.argmin(distances, axis=1))

    def test_the_first_of_equal_centres(self, dtype, both):
        nearest = loops.NearestColumn(np.ones((2, 70), dtype), np.ones(70, dtype), np.zeros(2, dtype))
        for found in both(lambda: nearest(np.zeros((17, 2), dtype))):
            assert np.all(found == 0)

    def test_zeros_of_either_sign_are_equal(self, dtype, both):
        columns = np.zeros((1, 40), dtype)
        columns[:, ::2] = -0.0
        for found in both(lambda: loops.NearestColumn(columns, np.zeros(40), np.zeros(1))(np.ones((3, 1), dtype))):
            assert np.all(found == 0)

    def test_denormals_differ(self, dtype, both):
        columns = np.array([[0.0, 1.0, 2.0]], dtype)
        x = np.array([[np.finfo(dtype).smallest_subnormal]], dtype)
        for found in both(lambda: loops.NearestColumn(columns, np.zeros(3), np.zeros(1))(x)):
            assert found == 2

    @pytest.mark.parametrize("m", [1, 3, 40])
    def test_nan_and_infinity(self, m, dtype, both, rng):
        X = rng.normal(size=(20, 4)).astype(dtype)
        X[3], X[5, 2], X[8, 0], X[11, 1], X[14] = np.nan, np.nan, np.inf, -np.inf, np.inf
        centers = rng.normal(size=(m, 4)).astype(dtype)
        centers[m // 2, 0] = 0
        nearest = loops.NearestColumn(centers.T, np.sum(centers**2, axis=1) / 2, np.zeros(4, dtype))
        fast, slow = both(lambda: nearest(X))
        assert fast[3] == slow[3] == fast[5] == slow[5] == 0
        np.testing.assert_array_equal(fast, slow)

    def test_a_centre_that_is_nan_is_nobodys(self, dtype, both):
        columns, X = np.array([[np.nan, 1.0, 5.0]], dtype), np.array([[0.0], [9.0]], dtype)
        for found in both(lambda: loops.NearestColumn(columns, columns[0] ** 2 / 2, np.zeros(1))(X)):
            assert found.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", DTYPES)
class TestSums:
    @pytest.mark.parametrize(("n", "p", "m"), [(0, 3, 2), (1, 1, 1), (50, 7, 4), (90, 130, 9), (5, 0, 2)])
    def test_by_label(self, n, p, m, dtype, both, rng):
        X, labels, shift = (
            rng.normal(size=(n, p)).astype(dtype),
            rng.integers(0, m, n),
            rng.normal(size=p).astype(dtype),
        )
        eps = np.finfo(np.float64 if p <= 64 else dtype).eps
        for move in (None, shift):
            fast, slow = both(lambda move=move: [loops.sum_by_label(labels, rows, m, move) for rows in layouts(X)])
            for sums, counts, squares in fast + slow:
                assert np.array_equal(counts, np.bincount(labels, minlength=m))
                np.testing.assert_allclose(sums, slow[0][0], atol=40 * n * eps)
                if move is None:
                    assert np.isnan(squares)
                else:
                    assert squares == pytest.approx(slow[0][2], rel=1e-13, abs=0)


@pytest.mark.parametrize("dtype", DTYPES)
class TestSeeds:
    def draw(self, A, m, n_candidates, seed=3):
        rng = np.random.default_rng(seed)
        squares = np.sum(A.astype(np.float64) ** 2, axis=1).astype(A.dtype)
        return loops.draw_seeds(A, squares, int(rng.integers(len(A))), rng.random((m - 1, n_candidates)), m)

    @pytest.mark.parametrize("n_candidates", [1, 2, 6, 13])
    @pytest.mark.parametrize(("n", "p", "m"), [(1, 1, 1), (129, 3, 9), (400, 10, 60), (128, 200, 5), (3, 0, 2)])
    def test_whole_numbers_agree_exactly(self, n, p, m, n_candidates, dtype, both, rng):
        A = rng.integers(-50, 50, size=(n, p)).astype(dtype)
        fast, slow = both(lambda: [self.draw(rows, m, n_candidates) for rows in layouts(A)])
        for found in fast + slow:
            assert np.array_equal(found, slow[0])

    def test_nan_ends_the_draw_inside_the_rows(self, dtype, both):
        A = np.full((200, 2), np.nan, dtype)
        for found in both(lambda: self.draw(A, 5, 3)):
            assert np.all((found >= 0) & (found < 200))

    def test_no_candidates_are_refused(self, dtype, both):
        with pytest.raises(ValueError, match="at least one"):
            self.draw(np.zeros((5, 1), dtype), 3, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "m", "t"), [(0, 5, 1), (9, 1, 1), (50, 37, 1), (23, 64, 3), (11, 20, 9), (4, 0, 2)])
def test_normal_products_are_summed_in_float64(n, m, t, weighted, dtype, both, rng):
    C, V, start = rng.normal(size=(n, m)).astype(dtype), rng.normal(size=(m, t)), rng.normal(size=(m, t))
    weights = rng.random(n) if weighted else None
    exact = C.astype(np.longdouble) @ V
    scale = np.abs(C).astype(np.float64) @ np.abs(V)
    w = np.ones(n) if weights is None else weights
    exact_out, out_scale = start + C.T.astype(np.longdouble) @ (w[:, None] * exact), np.abs(C.T) @ (w[:, None] * scale)

    def run():
        results = []
        for rows in layouts(C):
            out = start.copy()
            results.append((loops.normal_product(rows, V, out, weights), out))
        return results

    for found, out in functools.reduce(operator.iadd, both(run), []):
        assert_close(found, exact, scale, np.float64, m)
        assert_close(out, exact_out, out_scale + np.abs(start), np.float64, n + m)
    if t == 1:
        flat = start[:, 0].copy()
        assert np.array_equal(loops.normal_product(C, V[:, 0], flat, weights), found[:, 0])


@pytest.mark.parametrize(
    ("p", "m", "n_background"), [(1, 1, 1), (2, 5, 3), (5, 37, 2), (6, 64, 1), (3, 0, 2), (4, 9, 0)]
)
def test_coalition_sums_are_those_over_all_subsets(p, m, n_background, both, rng):
    x, background = rng.random((p, m)), rng.random((n_background, p, m))
    weights = rng.random(n_background)
    nodes, parts = np.polynomial.legendre.leggauss((p + 1) // 2)
    exact = np.zeros((p, m))
    for j in range(p):
        others = [i for i in range(p) if i != j]
        for size in range(p):
            for chosen in itertools.combinations(others, size):
                share = math.factorial(size) * math.factorial(p - size - 1) / math.factorial(p)
                for b, weight in zip(background, weights, strict=True):
                    product = np.prod([x[i] if i in chosen else b[i] for i in others], axis=0)
                    exact[j] += share * weight * (x[j] - b[j]) * product
    for found in both(lambda: loops.coalition_sums(x, background, weights, (nodes + 1) / 2, parts / 2)):
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-14)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_slice_of_rows_gives_what_a_copy_gives(data, both):
    seed = data.draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    dtype = data.draw(st.sampled_from(DTYPES))
    whole = rng.normal(size=(30, 40)).astype(dtype)
    steps = st.integers(-4, 4).filter(bool)
    X = whole[data.draw(st.integers(0, 30)) :: data.draw(steps), data.draw(st.integers(0, 40)) :: data.draw(steps)]
    B = rng.normal(size=(X.shape[1], data.draw(st.integers(0, 64)))).astype(dtype)
    product = loops.Product(B)
    assert np.array_equal(product(X), product(X.copy()))
    if B.shape[1]:
        nearest = loops.NearestColumn(B, np.ones(B.shape[1]), np.zeros(X.shape[1]))
        assert np.array_equal(nearest(X), nearest(X.copy()))


def test_what_is_prepared_works_where_other_loops_are(both, use, rng):
    X, sparse = rng.normal(size=(30, 5)), sp.random(30, 5, 0.5, format="csr", random_state=0)
    ready = [
        (loops.Product(X[:4].T), X),
        (loops.NearestColumn(X[:4].T, np.ones(4), np.zeros(5)), X),
        (loops.SparseProduct(sparse[:4], float), sparse),
        (loops.SparseProduct(X[:4], float), sparse),
    ]
    for function, rows in ready:
        fast = function(rows)
        sent = pickle.loads(pickle.dumps(function))
        use(None)
        np.testing.assert_allclose(sent(rows), fast, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("p", [784, 5000])
def test_float32_sums_are_as_good_as_those_of_blas(p, both, rng):
    X = rng.random((60, p)).astype(np.float32)
    gamma = 30 / p
    columns, norms = (2 * gamma * X.T).astype(np.float32), gamma * np.sum(X.astype(float) ** 2, axis=1)
    exact = np.exp(np.minimum(X.astype(float) @ columns.astype(float) - norms[:, None] - norms, 0))

    def error():
        return np.abs(loops.Exponentials(columns, norms, gamma)(X, exp=True) - exact).max()

    fast, slow = both(error)
    assert fast <= 1.5 * slow
