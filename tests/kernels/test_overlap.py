"""The kernel of categories: the Gaussian one of one-hot columns, whatever the codes are."""

import numpy as np
import pytest
from sklearn.preprocessing import OneHotEncoder

from nystrom.engine.passes import block_moments
from nystrom.kernels import Gaussian, InMetric, Linear, Overlap, Precomputed

rng = np.random.default_rng(0)
CODES = rng.integers(-1, 4, (60, 5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_gaussian_kernel_of_one_hot_columns(dtype):
    hot = OneHotEncoder(sparse_output=False).fit_transform(CODES)
    values = Overlap(0.8)(CODES.astype(dtype), CODES[:9])
    np.testing.assert_allclose(values, Gaussian(0.4)(hot, hot[:9]), rtol=20 * np.finfo(dtype).eps)


def test_values_do_not_depend_on_which_codes_stand_for_the_categories():
    other = np.array([1e6, -3.5, 7.0, 0.0, 2.0])[CODES]
    np.testing.assert_array_equal(Overlap(0.8)(other, other[:9]), Overlap(0.8)(CODES, CODES[:9]))


def test_an_unseen_code_is_unlike_all_others():
    X = CODES.astype(float)
    X[:, 2] = [*range(100, 160)]
    expected = np.exp(-0.8) * Overlap(0.8)(np.delete(X, 2, axis=1), np.delete(CODES[:9], 2, axis=1))
    np.testing.assert_allclose(Overlap(0.8)(X, CODES[:9]), expected, rtol=1e-14)


def test_its_bandwidth_depends_on_the_number_of_columns_alone():
    assert not Overlap().needs_moments
    assert Overlap().resolve(block_moments(CODES.astype(float))) == Overlap(0.4)
    assert Overlap(None).resolve(block_moments(CODES.astype(float))) == Overlap(0.2)
    assert Overlap()(CODES[:, :2], CODES[:, :2]).min() == pytest.approx(np.exp(-2))


def test_kernels_say_which_columns_have_means():
    mixed = 2.0 * (Overlap().on([0, 2]) * Gaussian().on([1, 3]) + Linear().on(4))
    np.testing.assert_array_equal(mixed.mean_columns(6), [False, True, False, True, True, True])
    np.testing.assert_array_equal((Overlap().on(1) + Gaussian()).mean_columns(2), [True, False])
    np.testing.assert_array_equal(mixed.on(slice(1, 7)).mean_columns(7), [True, False, True, False, True, True, True])
    assert Gaussian().mean_columns(3).all()
    assert not Overlap().mean_columns(3).any()
    assert not Precomputed().mean_columns(3).any()
    np.testing.assert_array_equal(InMetric(mixed, np.ones(6)).mean_columns(6), mixed.mean_columns(6))
    assert not InMetric(mixed, np.ones((3, 6))).mean_columns(3).any()
    assert InMetric(Gaussian(), np.ones((3, 2))).mean_columns(3).all()
