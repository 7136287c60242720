"""Losses: their gradients are the slopes of their values, and they say how they bend at 0."""

import numpy as np
import pytest

from nystrom.solvers.losses import Logistic, Multinomial, SquaredEpsilonInsensitive, SquaredHinge

SIGNS = np.where(np.random.default_rng(0).random((40, 3)) < 0.5, 1, -1).astype(np.int8)
CASES = [
    (Logistic(), SIGNS),
    (Multinomial(), np.random.default_rng(1).integers(3, size=40)),
    (SquaredHinge(), SIGNS),
    (SquaredEpsilonInsensitive(0.3), np.random.default_rng(2).normal(size=(40, 3))),
]


@pytest.mark.parametrize(("loss", "y"), CASES)
def test_the_gradient_is_the_slope_of_the_value(loss, y):
    scores = 2 * np.random.default_rng(3).normal(size=(40, 3))
    value, gradient = loss.evaluate(y, scores)
    assert value.shape == (40, 1 if loss.coupled else 3)
    step = 1e-6
    for k in range(3):
        there, back = (loss.evaluate(y, scores + sign * step * np.eye(3)[k])[0].sum(axis=1) for sign in (1, -1))
        np.testing.assert_allclose(gradient[:, k], (there - back) / (2 * step), atol=1e-6)


@pytest.mark.parametrize(("loss", "y"), CASES)
def test_the_curvature_is_that_at_scores_of_zero(loss, y):
    y = y + np.sign(y) if isinstance(loss, SquaredEpsilonInsensitive) else y
    step = 1e-4
    ahead, back = (loss.evaluate(y, sign * step * np.eye(3)[[0] * 40])[1][:, 0] for sign in (1, -1))
    np.testing.assert_allclose((ahead - back) / (2 * step), loss.curvature(3), rtol=1e-6)


@pytest.mark.parametrize(("loss", "y"), CASES)
def test_scores_of_any_size_are_finite(loss, y):
    for size in (1e4, -1e4):
        value, gradient = loss.evaluate(y, np.full((40, 3), size) * [1, -1, 0.5])
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()
