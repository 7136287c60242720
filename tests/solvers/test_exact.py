"""The exact solver: products without the matrix, few steps, the direct answer."""

import warnings

import numpy as np
import pytest

from nystrom import KernelRidge
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.exceptions import ConvergenceWarning
from nystrom.kernels import Gaussian, Linear, Matern, Polynomial
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import optimal
from nystrom.rows import as_blocks
from nystrom.solvers.exact import FactorPreconditioner, KernelProduct, TiledRows, solve_exactly


def problem(n=700, p=3, m=60, kernel=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    rows = as_blocks(X, block_rows=128)
    engine = LocalEngine(2)
    kernel = kernel or Gaussian(0.2)
    chosen = rng.choice(n, m, replace=False)
    fitted = optimal(Passes(rows, engine), kernel, Landmarks(X[chosen], chosen), None)
    return X, rows, engine, kernel, fitted, rng


@pytest.mark.parametrize("block_rows", [64, 100, 512, 1000])
def test_the_product_equals_that_of_the_whole_matrix(block_rows):
    X, rows, engine, kernel, _, rng = problem()
    V = rng.normal(size=(700, 2))
    product = KernelProduct(TiledRows(rows, block_rows), kernel, engine)
    np.testing.assert_allclose(product(V), kernel(X, X) @ V, atol=1e-10)
    np.testing.assert_allclose(product.predict(X[:9], V), kernel(X[:9], X) @ V, atol=1e-10)


def test_the_product_has_the_same_bits_for_any_number_of_threads():
    _, rows, _, kernel, _, rng = problem()
    V = rng.normal(size=(700, 1))
    one, many = (KernelProduct(TiledRows(rows, 100), kernel, LocalEngine(jobs))(V) for jobs in (1, 3))
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("held", [True, False])
def test_the_preconditioner_is_the_inverse_of_factor_plus_alpha(held, monkeypatch):
    if not held:
        monkeypatch.setattr("nystrom.solvers.exact._HELD_BYTES", 0)
    X, rows, engine, _, fitted, rng = problem()
    roots = rng.uniform(0.5, 2.0, size=700)
    V = rng.normal(size=(700, 2))
    DL = roots[:, None] * fitted.features(X)
    expected = np.linalg.solve(DL @ DL.T + 0.1 * np.eye(700), V)
    np.testing.assert_allclose(FactorPreconditioner(fitted, rows, engine, 0.1, roots)(V), expected, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [Gaussian(0.2), Matern(1.5, 0.3)])
def test_the_answer_is_the_direct_one(kernel, weighted):
    X, rows, engine, kernel, fitted, rng = problem(kernel=kernel)
    Y = rng.normal(size=(700, 2))
    weight = rng.uniform(0.5, 2.0, size=700) if weighted else None
    product = KernelProduct(TiledRows(rows), kernel, engine)
    found = solve_exactly(product, Y, 0.05, fitted=fitted, rows=rows, weight=weight, tol=1e-11, max_iter=500)
    noise = 0.05 / (weight if weighted else np.ones(700))
    expected = np.linalg.solve(kernel(X, X) + np.diag(noise), Y)
    assert found.converged
    assert np.linalg.norm(found.coefficients - expected) < 1e-7 * np.linalg.norm(expected)


def test_rows_of_no_weight_have_no_coefficient():
    X, rows, engine, kernel, fitted, _ = problem()
    weight = np.ones(700)
    weight[:50] = 0
    found = solve_exactly(
        KernelProduct(TiledRows(rows), kernel, engine), X[:, :1], 0.1, fitted=fitted, rows=rows, weight=weight
    )
    np.testing.assert_array_equal(found.coefficients[:50], 0.0)


def test_the_factor_saves_two_thirds_of_the_steps():
    X, rows, engine, kernel, fitted, _ = problem(m=200)
    product = KernelProduct(TiledRows(rows), kernel, engine)
    Y = np.sin(X[:, :1]) + 0.1
    with_factor = solve_exactly(product, Y, 0.1, fitted=fitted, rows=rows, max_iter=1000)
    plain = solve_exactly(product, Y, 0.1, fitted=None, rows=rows, max_iter=1000)
    assert 3 * len(with_factor.residuals) <= len(plain.residuals)
    assert with_factor.residuals[-1] <= 1e-8


def test_the_last_residual_is_the_true_one():
    X, rows, engine, kernel, fitted, rng = problem()
    Y = rng.normal(size=(700, 1))
    found = solve_exactly(KernelProduct(TiledRows(rows), kernel, engine), Y, 0.5, fitted=fitted, rows=rows)
    left = Y - (kernel(X, X) + 0.5 * np.eye(700)) @ found.coefficients
    assert np.linalg.norm(left) / np.linalg.norm(Y) == pytest.approx(found.residuals[-1], rel=0.01)


@pytest.mark.parametrize("alpha", [1e-4, 1e-8, 1e-12])
def test_residuals_tell_the_truth_also_where_rounding_ends_the_iteration(alpha):
    X, rows, engine, kernel, fitted, _ = problem(n=300, p=1, m=60)
    Y = np.sin(3 * X) + X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = solve_exactly(
            KernelProduct(TiledRows(rows), kernel, engine), Y, alpha, fitted=fitted, rows=rows, tol=1e-9
        )
    true = np.linalg.norm(Y - kernel(X, X) @ found.coefficients - alpha * found.coefficients) / np.linalg.norm(Y)
    assert found.residuals[-1] == pytest.approx(true, rel=0.2)
    assert found.converged == (found.residuals[-1] <= 1e-9)
    assert bool(caught) == (not found.converged)


def test_stopping_before_the_tolerance_warns():
    _, rows, engine, kernel, fitted, rng = problem()
    product = KernelProduct(TiledRows(rows), kernel, engine)
    with pytest.warns(ConvergenceWarning, match="stopped after 2 steps"):
        solve_exactly(product, rng.normal(size=(700, 1)), 1e-3, fitted=fitted, rows=rows, max_iter=2)


def test_rows_that_can_only_be_read_in_order_are_refused():
    rows = as_blocks(np.zeros((4, 2)))
    rows.random_access = False
    with pytest.raises(ValueError, match="solver='exact' reads rows in pairs"):
        TiledRows(rows)


@pytest.mark.parametrize("room", [0, 3 * 100**2 * 8, 1e9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_held_tiles_do_not_change_the_product(room, dtype):
    X, rows, engine, kernel, _, rng = problem()
    V = rng.normal(size=(700, 2))
    product = KernelProduct(TiledRows(rows, 100), kernel, engine, dtype=dtype, room=room)
    first, second = product(V), product(V)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, kernel(X, X) @ V, atol=50 * np.finfo(dtype).eps * 700)
    assert product.holds_all == (room == 1e9)


def test_values_in_float32_are_refined_to_the_tolerance_in_float64():
    X, rows, engine, kernel, fitted, rng = problem(n=900)
    Y = rng.normal(size=(900, 2))
    product = KernelProduct(TiledRows(rows, 128), kernel, engine)
    found = solve_exactly(product, Y, 0.05, fitted=fitted, rows=rows, tol=1e-11, max_iter=500)
    expected = np.linalg.solve(kernel(X, X) + 0.05 * np.eye(900), Y)
    assert np.linalg.norm(found.coefficients - expected) < 1e-8 * np.linalg.norm(expected)
    true = np.max(np.linalg.norm(Y - (kernel(X, X) @ found.coefficients + 0.05 * found.coefficients), axis=0))
    assert true <= 2e-11 * np.max(np.linalg.norm(Y, axis=0))
    assert len(found.residuals) > 2


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_rows_beyond_float32_keep_to_float64(scale):
    X, _, engine, _, _, _ = problem(n=200)
    kernel = Gaussian(0.2 / scale**2)
    product = KernelProduct(TiledRows(as_blocks(X * scale), 64), kernel, engine)
    cheap = product.in_float32()
    if cheap is not None:
        np.testing.assert_allclose(cheap(np.eye(200)), kernel(X * scale, X * scale), atol=1e-5)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(1, 0.1, 1.0)])
def test_little_regularisation_of_a_kernel_of_few_directions_is_solved(kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    y = np.sin(X[:, 0]) + 2
    model = KernelRidge(1e-5, kernel=kernel, fit_intercept=True, solver="exact", landmarks=X[:8], max_iter=500).fit(
        X, y
    )
    A = np.block([[kernel(X, X) + 1e-5 * np.eye(200), np.ones((200, 1))], [np.ones((1, 200)), np.zeros((1, 1))]])
    expected = np.linalg.solve(A, np.append(y, 0.0))
    np.testing.assert_allclose(model.intercept_, expected[-1], atol=1e-5)
    np.testing.assert_allclose(model.predict(X), kernel(X, X) @ expected[:-1] + expected[-1], atol=1e-5)


def test_with_an_intercept_the_mean_of_the_target_does_not_matter():
    X, _, _, kernel, _, _ = problem(n=300)
    y = np.sin(X[:, 0])
    models = [
        KernelRidge(0.01, kernel=kernel, fit_intercept=True, solver="exact", landmarks=X[:40]).fit(X, y + mean)
        for mean in (0.0, 1e6)
    ]
    np.testing.assert_allclose(models[1].predict(X) - 1e6, models[0].predict(X), atol=1e-7)


@pytest.mark.parametrize("n", [400, 700])
@pytest.mark.parametrize("kernel", [Gaussian(0.5), Gaussian(50.0), Matern(0.5, 0.3)])
def test_a_few_hundred_rows_are_solved_whatever_the_landmarks(n, kernel):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 4))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=n)
    weight = rng.integers(1, 5, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten landmarks explain little of the kernel
        warnings.simplefilter("error", ConvergenceWarning)
        model = KernelRidge(1e-5, solver="exact", kernel=kernel, n_landmarks=10, random_state=0)
        model.fit(X, y, sample_weight=weight)
    dense = np.linalg.solve(kernel(X, X) + np.diag(1e-5 / weight), y)
    np.testing.assert_allclose(model.predict(X), kernel(X, X) @ dense, atol=1e-7)
