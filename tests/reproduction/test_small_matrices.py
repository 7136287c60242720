"""What the paper says of small matrices, and what is wrong with it."""

import numpy as np
import pytest

from reproduction.paper_algorithms import optimal_as_written, standard_as_written
from reproduction.small_matrices import (
    COUNTEREXAMPLE,
    TOY_KERNEL,
    compare,
    dual_gap,
    toy_rows,
    trace_norm_never_breached,
)


def test_the_toy_example_has_the_papers_errors():
    pair = compare(TOY_KERNEL, [0, 1], 1)["fro"]
    assert pair.standard == pytest.approx(101 / np.linalg.norm(TOY_KERNEL))
    assert pair.optimal == pytest.approx(1.01 / np.linalg.norm(TOY_KERNEL))
    assert pair.optimal == pytest.approx(pair.svd)


@pytest.mark.parametrize("norm", ["fro", "spectral"])
def test_always_is_false_in_frobenius_and_spectral_norm(norm):
    pair = compare(COUNTEREXAMPLE @ COUNTEREXAMPLE.T, [0, 1], 1)[norm]
    assert pair.optimal > 1.1 * pair.standard > pair.svd


def test_the_counterexample_by_hand():
    # K - G keeps (3,0,5)'s 25; the standard method also loses the second axis, Algorithm 2 the first.
    K = COUNTEREXAMPLE @ COUNTEREXAMPLE.T
    C, W = K[:, :2], K[:2, :2]
    standard, optimal = (f(C, W, 1) for f in (standard_as_written, optimal_as_written))
    assert np.linalg.norm(K - standard @ standard.T) ** 2 == pytest.approx(25**2 + 17**2)
    assert np.linalg.norm(K - optimal @ optimal.T) ** 2 == pytest.approx(16 + 2 * 36 + 34**2)


def test_in_trace_norm_it_holds():
    assert trace_norm_never_breached()
    pair = compare(COUNTEREXAMPLE @ COUNTEREXAMPLE.T, [0, 1], 1)["trace"]
    assert pair.optimal < pair.standard


def test_the_printed_dual_is_a_matrix_and_right_once_y_is_put_in():
    shape, gap = dual_gap(80)
    assert shape == (80, 80)
    assert gap < 1e-10


def test_the_rows_cover_three_methods_two_matrices_three_norms():
    assert len(toy_rows()) == 18
