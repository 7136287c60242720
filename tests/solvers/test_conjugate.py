"""Conjugate gradients: the true residual, the best iterate, a warm start."""

import numpy as np
import pytest

from nystrom.solvers.conjugate import conjugate_gradients


def test_a_zero_target_needs_no_step():
    found = conjugate_gradients(lambda V, label: V, np.zeros((5, 1)))
    assert found.converged
    np.testing.assert_array_equal(found.coefficients, 0.0)


def test_too_few_steps_are_reported():
    A = np.diag(np.geomspace(1, 1e6, 50))
    found = conjugate_gradients(lambda V, label: A @ V, np.ones((50, 1)), max_iter=3)
    assert not found.converged
    assert len(found.residuals) == 4


def test_the_last_residual_is_the_true_one_for_products_with_rounding():
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(80, 80)))
    A = (Q * np.geomspace(1e-3, 1e3, 80)) @ Q.T

    def product(V, label):
        return (A @ V).astype(np.float32).astype(np.float64)

    Y = rng.normal(size=(80, 2))
    found = conjugate_gradients(product, Y, tol=1e-12, max_iter=500)
    true = np.max(np.linalg.norm(Y - product(found.coefficients, ""), axis=0) / np.linalg.norm(Y, axis=0))
    assert found.residuals[-1] == pytest.approx(true, rel=1e-6)
    assert not found.converged


def test_an_indefinite_matrix_gives_back_the_best_iterate():
    rng = np.random.default_rng(1)
    A = np.diag(np.concatenate([np.geomspace(1, 100, 30), [-1e-3]]))
    Y = rng.normal(size=(31, 1))
    found = conjugate_gradients(lambda V, label: A @ V, Y, tol=1e-10, max_iter=200)
    assert found.residuals[-1] <= found.residuals[0] * (1 + 1e-12)


def test_starting_at_the_solution_takes_no_step():
    A = np.diag(np.arange(1.0, 9.0))
    X = np.ones((8, 2))
    found = conjugate_gradients(lambda V, label: A @ V, A @ X, start=X)
    assert len(found.residuals) == 1
    np.testing.assert_array_equal(found.coefficients, X)


def test_watching_can_end_the_iteration():
    A = np.diag(np.geomspace(1, 1e4, 40))
    seen = []

    def watch(X):
        seen.append(X.copy())
        return len(seen) == 3

    found = conjugate_gradients(lambda V, label: A @ V, np.ones((40, 1)), watch=watch)
    assert found.stopped_early
    np.testing.assert_array_equal(found.coefficients, seen[-1])


def test_residuals_may_rise_by_the_root_of_the_condition_before_they_fall():
    A = np.diag([1.0, 1e9, 1e4])
    Y = np.array([[1.0], [1e-4], [1e-2]])
    found = conjugate_gradients(lambda V, label: A @ V, Y, tol=1e-6)
    assert found.converged
    assert found.residuals.max() > 1e3
    np.testing.assert_allclose(A @ found.coefficients, Y, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_unit_of_the_right_hand_side_does_not_matter(unit):
    A = np.diag(np.geomspace(1, 100, 20))
    Y = np.column_stack([np.ones(20), unit * np.arange(1.0, 21.0)])
    found = conjugate_gradients(lambda V, label: A @ V, Y, tol=1e-12)
    assert found.converged
    np.testing.assert_allclose(A @ found.coefficients / [1, unit], Y / [1, unit], rtol=1e-9)
