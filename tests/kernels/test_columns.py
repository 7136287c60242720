"""Kernels of some columns: names, numbers, slices, masks and callables mean the same, and each has its own width."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from nystrom.engine.local import LocalEngine
from nystrom.engine.passes import Passes, block_moments
from nystrom.kernels import Gaussian, InMetric, Laplacian, Linear, OnColumns, Polynomial, Precomputed
from nystrom.rows.base import array_rows

NAMES = ["x", "y", "town", "year"]
X = np.random.default_rng(0).normal(size=(50, 4)) * [1.0, 5.0, 0.1, 30.0] + [0.0, 9.0, 0.0, 2000.0]


@pytest.mark.parametrize(
    "columns",
    [
        ["y", "town"],
        np.array(["y", "town"]),
        [1, 2],
        np.array([1, 2]),
        [-3, 2],
        slice(1, 3),
        slice("y", "town"),
        slice(1, -1),
        [False, True, True, False],
        np.array([False, True, True, False]),
        lambda table: ["y", "town"],
    ],
)
def test_every_way_to_say_columns_means_the_same(columns):
    kernel = Gaussian(0.5).on(columns).bind(NAMES, 4, table=X)
    assert kernel == OnColumns(Gaussian(0.5), (1, 2))
    np.testing.assert_array_equal(kernel(X, X[:5]), Gaussian(0.5)(X[:, 1:3], X[:5, 1:3]))


def test_a_selector_of_scikit_learn_chooses_from_the_table():
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_selector

    frame = pandas.DataFrame(X, columns=NAMES)
    kernel = Linear().on(make_column_selector(pattern="^[xy]$"))
    assert kernel.bind(NAMES, 4, frame) == Linear().on([0, 1])
    with pytest.raises(ValueError, match="chooses from a table: give a data frame"):
        kernel.bind(NAMES, 4)


def test_columns_inside_columns_are_counted_among_them():
    inner = Gaussian(1.0).on("year") + Linear().on(0)
    bound = inner.on(["town", "year"]).bind(NAMES, 4)
    assert bound == OnColumns(Gaussian(1.0).on(1) + Linear().on(0), (2, 3))
    np.testing.assert_array_equal(bound(X, X), Gaussian(1.0)(X[:, 3:], X[:, 3:]) + Linear()(X[:, [2]], X[:, [2]]))


def test_bind_reaches_every_part_and_leaves_other_kernels_as_they_are():
    kernel = 2.0 * (Gaussian(1.0).on("x") + Linear()) * InMetric(Laplacian(1.0).on("year"), np.arange(1.0, 5.0))
    bound = 2.0 * (Gaussian(1.0).on(0) + Linear()) * InMetric(Laplacian(1.0).on(3), np.arange(1.0, 5.0))
    assert kernel.bind(NAMES, 4) == bound
    assert bound.bind(None, 4) == bound
    plain = Gaussian(1.0)
    assert plain.bind(NAMES, 4) is plain


@pytest.mark.parametrize(
    ("columns", "names", "message"),
    [
        ("z", NAMES, "column 'z', which the rows lack. They have 'x', 'y', 'town', 'year'"),
        (slice("x", "z"), NAMES, "column 'z', which the rows lack"),
        ("x", None, "column 'x', but the rows have no names of columns. Give a data frame"),
        (4, NAMES, r"column 4, but the rows have 4 columns \(the first is 0\)"),
        ([0, -5], NAMES, "column -5, but the rows have 4 columns"),
        ([True, False], NAMES, "2 booleans, but the rows have 4 columns"),
        (["x", 0], NAMES, "columns must be names, numbers, a slice"),
        ([0, -4], NAMES, "chooses a column twice of the 4"),
        (slice(4, None), NAMES, "chooses no column of the 4"),
        ([False] * 4, NAMES, "chooses no column of the 4"),
        ([], NAMES, "columns must be names, numbers.* at least one"),
        (True, NAMES, "columns must be names, numbers"),
        (1.5, NAMES, "columns must be names, numbers"),
        ([0.5], NAMES, "columns must be names, numbers"),
        (slice(0.5, 2), NAMES, "must begin and end with names or numbers"),
    ],
)
def test_columns_that_are_not_there_are_named(columns, names, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Gaussian(1.0).on(columns).bind(names, 4)


def test_names_must_be_bound_before_values():
    with pytest.raises(ValueError, match="no names of columns"):
        Gaussian(1.0).on("x")(X, X)
    with pytest.raises(ValueError, match="has no columns to choose from"):
        Precomputed().on(0)
    with pytest.raises(ValueError, match=r"rows have 3 columns, .* have 4"):
        Linear().on(0).prepare(X)(X[:, :3])


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_part_takes_its_width_from_its_own_columns(container, weighted):
    weight = np.random.default_rng(1).integers(0, 4, 50).astype(float) if weighted else None
    repeated = X if weight is None else np.repeat(X, weight.astype(int), axis=0)
    moments = block_moments(container(X), weight, by_column=True)
    kernel = Gaussian().on([0, 1]) * Laplacian().on(3) + Polynomial(2, None).on(slice(1, None))
    assert kernel.needs_moments
    assert kernel.moments_by_column
    found = kernel.resolve(moments)
    assert found.left.left.kernel.gamma == pytest.approx(1 / repeated[:, :2].var(axis=0).sum())
    assert found.left.right.kernel.gamma == pytest.approx(1 / repeated[:, 3].std())
    assert not found.needs_moments
    assert not found.moments_by_column
    assert not (Gaussian() + Linear().on(0)).moments_by_column
    with pytest.raises(ValueError, match="take them with by_column=True"):
        kernel.resolve(block_moments(X))


def test_moments_by_column_are_taken_along_in_blocks():
    rows = array_rows(X + 1e6, block_rows=7)
    passes = Passes(rows, LocalEngine(1))
    plain = passes.moments
    passes.want_moments(by_column=True)
    passes.fold(lambda block: block_moments(block.X), label="another")
    moments = passes.moments
    assert passes.n_passes == 2
    assert moments.scatter == plain.scatter
    np.testing.assert_allclose(moments.by_column, X.var(axis=0) * 50, rtol=1e-8)
    np.testing.assert_allclose(moments.of([3, 0]).mean, moments.mean[[3, 0]])


def test_representations_read_like_the_expression():
    for kernel in (
        Gaussian(0.5).on(["x", "y"]) * Linear().on("town") + Linear().on(3),
        (2.0 * Linear()).on(slice("x", None)),
        (Gaussian(1.0) + Linear()).on([True, False, True, False]) * Linear().on([True]),
    ):
        assert eval(repr(kernel)) == kernel
        assert hash(eval(repr(kernel))) == hash(kernel)
    assert repr(Gaussian(0.5).on(["x", "y"]) + Linear().on("town")) == (
        "Gaussian(gamma=0.5).on(['x', 'y']) + Linear().on('town')"
    )


def test_parameters_inside_are_reached_by_name_and_the_kernel_stays_as_it_is():
    kernel = Gaussian(0.5).on(["x", "y"]) + 2.0 * Polynomial(2)
    names = kernel.get_params()
    assert names["left__kernel__gamma"] == 0.5
    assert names["left__columns"] == ("x", "y")
    assert names["right__kernel__degree"] == 2
    assert set(kernel.get_params(deep=False)) == {"left", "right"}
    other = kernel.with_params(left__kernel__gamma=3.0, left__columns="town", right__factor=4.0)
    assert other == Gaussian(3.0).on("town") + 4.0 * Polynomial(2)
    assert kernel == Gaussian(0.5).on(["x", "y"]) + 2.0 * Polynomial(2)
    both = kernel.with_params(left__kernel__gamma=3.0, left=Gaussian(1.0).on(0))
    assert both.left == Gaussian(3.0).on(0)
    with pytest.raises(ValueError, match=r"Gaussian\(gamma=0.5\) has no parameter 'width'; it has gamma"):
        kernel.with_params(left__kernel__width=1.0)
    with pytest.raises(ValueError, match="gamma must be"):
        kernel.with_params(left__kernel__gamma=-1.0)


def test_an_estimator_shows_the_parameters_and_its_clones_share_the_kernel():
    class Estimator(BaseEstimator):
        def __init__(self, kernel=None):
            self.kernel = kernel

    estimator = Estimator(InMetric(Gaussian(0.5), np.ones(2)).on([0, 1]))
    assert estimator.get_params()["kernel__kernel__kernel__gamma"] == 0.5
    assert clone(estimator).kernel is estimator.kernel
