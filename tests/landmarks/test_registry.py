"""What ``landmarks=`` may be, and what is refused with which words."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom.landmarks import (
    SELECTORS,
    GivenIndices,
    GivenPoints,
    Leverage,
    RPCholesky,
    SketchedKMeans,
    Uniform,
    make_selector,
    select_landmarks,
)

X = np.random.default_rng(0).standard_normal((50, 4))


def test_every_name_of_the_design_is_registered():
    names = "auto sketched-kmeans kmeans uniform diagonal column-norm leverage kmeans++ rpcholesky rpcholesky+lloyd"
    assert set(SELECTORS) == set(names.split())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'auto', 'sketched-kmeans'.*got 'kmean'"):
        make_selector("kmean")


def test_a_selector_is_returned_as_it_is():
    selector = Uniform()
    assert make_selector(selector) is selector


@pytest.mark.parametrize("wrong", [None, 3, Uniform, {"a": 1}])
def test_other_objects_are_refused_by_type(wrong):
    with pytest.raises(ValueError, match="landmarks must be one of"):
        make_selector(wrong)


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((2, 2, 2)), np.array([True, False]), np.array(["a", "b"])])
def test_arrays_that_are_neither_points_nor_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="landmarks given as an array must be"):
        make_selector(wrong)


@pytest.mark.parametrize("points", [X[:7] + 1, sp.csr_matrix(X[:7] + 1), (X[:7] + 1).tolist()])
def test_given_points_are_used_whatever_the_number_asked_for(points):
    found = select_landmarks(X, 3, method=points)
    np.testing.assert_array_equal(found.points, X[:7] + 1)
    assert found.indices is None


def test_given_points_take_the_dtype_of_the_rows():
    assert select_landmarks(X.astype(np.float32), 3, method=X[:7]).points.dtype == np.float32


@pytest.mark.parametrize("shape", [(3, 5), (0, 4)])
def test_given_points_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"must have shape \(m, 4\)"):
        select_landmarks(X, 3, method=np.zeros(shape))


def test_given_points_must_be_finite():
    with pytest.raises(ValueError, match="landmarks contains NaN"):
        select_landmarks(X, 3, method=np.full((2, 4), np.nan))


def test_given_points_cannot_serve_a_precomputed_kernel():
    with pytest.raises(ValueError, match="precomputed"):
        select_landmarks(X @ X.T, 3, method=np.zeros((2, 50)), kernel="precomputed")


def test_given_numbers_are_rows_in_their_order_and_negative_ones_count_from_the_end():
    found = select_landmarks(X, 3, method=[4, -1, 0])
    np.testing.assert_array_equal(found.indices, [4, 49, 0])
    np.testing.assert_array_equal(found.points, X[[4, 49, 0]])


@pytest.mark.parametrize("outside", [50, -51])
def test_given_numbers_outside_the_rows_are_refused(outside):
    with pytest.raises(ValueError, match=f"row number {outside}, but X has 50 rows"):
        select_landmarks(X, 3, method=np.array([0, outside]))


@pytest.mark.parametrize("indices", [np.zeros((2, 2), int), np.zeros(0, int), np.array([0.5])])
def test_given_numbers_of_a_wrong_kind_are_refused(indices):
    with pytest.raises(ValueError, match="one-dimensional, non-empty integer array"):
        select_landmarks(X, 3, method=GivenIndices(indices))


def test_points_of_integers_are_points():
    assert isinstance(make_selector(np.array([[1, 2], [3, 4]])), GivenPoints)


@pytest.mark.parametrize("m", [0, -2])
def test_too_few_landmarks_are_refused(m):
    with pytest.raises(ValueError, match=f"n_landmarks must be at least 1; got {m}"):
        select_landmarks(X, m)


@pytest.mark.parametrize("m", [2.5, 3.0, "4", True, None])
def test_a_number_of_landmarks_that_is_no_integer_is_refused(m):
    with pytest.raises(TypeError, match="n_landmarks must be an integer"):
        select_landmarks(X, m)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_no_rows_or_no_columns_are_refused(shape):
    with pytest.raises(ValueError, match=r"0 (sample|feature)\(s\)"):
        select_landmarks(np.zeros(shape), 2)


def test_one_dimension_is_refused():
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        select_landmarks(np.zeros(4), 2)


@pytest.mark.parametrize("state", [0, np.int64(0), np.random.default_rng(0)])
def test_seeds_of_any_kind_give_the_same(state):
    found = select_landmarks(X, 5, method="uniform", random_state=state)
    np.testing.assert_array_equal(found.indices, select_landmarks(X, 5, method="uniform", random_state=0).indices)


def test_a_wrong_seed_is_refused():
    with pytest.raises(ValueError, match="random_state must be"):
        select_landmarks(X, 5, random_state="now")


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        (RPCholesky(lloyd=-1), "lloyd"),
        (RPCholesky(block_size=0), "block_size"),
        (Leverage(regularization=0.0), "regularization"),
        (SketchedKMeans(sample=0), "sample"),
        (SketchedKMeans(sketch_dim=0), "sketch_dim"),
        (SketchedKMeans(n_iter=-1), "n_iter"),
    ],
)
def test_parameters_out_of_range_are_named(selector, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        select_landmarks(X, 5, method=selector, random_state=0)
