"""A weight is a number of repetitions: 0 leaves a row out, 2 has it twice, in every statistic and every selector."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_regressor

from nystrom import (
    GaussianProcessRegressor,
    KernelLogisticRegression,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
    open_rows,
)
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes, block_moments
from nystrom.exceptions import AccuracyWarning
from nystrom.kernels import Gaussian
from nystrom.kmeans import kmeans
from nystrom.landmarks import SELECTORS, make_selector
from nystrom.rows import as_blocks
from nystrom.rows.base import Block
from nystrom.rows.draw import draw_rows
from nystrom.tuning.sample import assign_parts, distinct_rows, row_keys

N = 150


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) + 5
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=N) + 10, rng.integers(0, 4, N).astype(float)


def repeated(weight):
    return np.repeat(np.arange(len(weight)), weight.astype(int))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, np.asfortranarray])
@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_weighted_ridge_is_the_ridge_of_repeated_rows(data, selection, intercept, container):
    X, y, w = data
    again = repeated(w)
    model = KernelRidge("auto", selection=selection, fit_intercept=intercept, landmarks=X[:30])
    weighted, plain = (
        model.fit(container(X), y, w),
        KernelRidge(**model.get_params()).fit(container(X[again]), y[again]),
    )
    assert weighted.kernel_.gamma == pytest.approx(plain.kernel_.gamma, rel=1e-13)
    np.testing.assert_allclose(weighted.eigenvalues_, plain.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(weighted.alpha_scores_, plain.alpha_scores_, rtol=1e-8)
    assert weighted.alpha_ == pytest.approx(plain.alpha_)
    assert weighted.certificate_.trace.value == pytest.approx(plain.certificate_.trace.value, rel=1e-9)
    np.testing.assert_allclose(weighted.predict(X), plain.predict(X), atol=1e-8)


def test_rows_of_weight_zero_change_nothing_whatever_they_hold(data):
    X, y, w = data
    wild, wild_y = X.copy(), y.copy()
    wild[w == 0] *= 1e6
    wild_y[w == 0] = 1e9
    model = KernelRidge("auto", selection="gcv", n_landmarks=200, random_state=0)
    one = model.fit(wild, wild_y, w).predict(X)
    kept = w > 0
    two = KernelRidge(**model.get_params()).fit(X[kept], y[kept], w[kept]).predict(X)
    np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("weight", [(0.0, 1.0), (1.0, 2.0), (0.5, 1.0)])
def test_weights_in_proportion_scale_the_regularisation(data, weight):
    X, y, _ = data
    w = np.where(np.arange(N) % 2, *weight)
    double = KernelRidge(2.0, gamma=0.3, landmarks=X[:30]).fit(X, y, 2 * w)
    single = KernelRidge(1.0, gamma=0.3, landmarks=X[:30]).fit(X, y, w)
    np.testing.assert_allclose(double.predict(X), single.predict(X), rtol=1e-9)


@pytest.mark.parametrize("scale", [None, 1e-9, 1e4, 1e8])
@pytest.mark.parametrize("machine", ["regression", "classification", "balanced"])
@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
def test_of_weights_that_are_not_whole_only_the_ratios_choose_the_regularisation(data, selection, machine, scale):
    X, y, _ = data
    w = np.random.default_rng(2).uniform(0.2, 2, N)
    w[::7] = 0
    shared = {"selection": selection, "landmarks": X[:40], "random_state": 0}
    if machine == "regression":
        model, y = KernelRidge(**shared, fit_intercept=True), y + 0.3 * np.sin(7 * y)
    else:
        model, y = KernelRidgeClassifier(**shared, class_weight="balanced" if machine == "balanced" else None), y > 10
    scale = 1 / w.sum() if scale is None else scale
    plain, scaled = clone(model).fit(X, y, w), clone(model).fit(X, y, w * scale)
    assert scaled.alpha_ / scale == pytest.approx(plain.alpha_, rel=1e-6)
    if machine == "regression":
        np.testing.assert_allclose(scaled.predict(X), plain.predict(X), rtol=1e-6)
        np.testing.assert_allclose(scaled.predict_interval(X), plain.predict_interval(X), rtol=1e-5)
    else:
        np.testing.assert_allclose(scaled.decision_function(X), plain.decision_function(X), atol=1e-6)
        np.testing.assert_allclose(scaled.predict_proba(X), plain.predict_proba(X), atol=1e-5)


def test_equal_weights_that_sum_to_1_choose_as_no_weights_do_in_arrays_and_in_blocks(data):
    X, y, _ = data
    share = np.full(N, 1 / N)
    blocks = open_rows(lambda: ((X[i : i + 50], y[i : i + 50], share[i : i + 50]) for i in range(0, N, 50)))
    for selection in ("loo", "gcv", "likelihood"):
        model = KernelRidge(selection=selection, landmarks=X[:40], gamma=0.3)
        expected = clone(model).fit(X, y)
        for found in (clone(model).fit(X, y, share), clone(model).fit(blocks)):
            assert found.alpha_ * N == pytest.approx(expected.alpha_, rel=1e-6)
            np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-6)


@pytest.mark.parametrize("machine", [KernelLogisticRegression, KernelSVC, KernelSVR])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_of_weights_that_are_not_whole_only_the_ratios_choose_C(data, machine, scale):
    X, y, _ = data
    w, y = np.random.default_rng(3).uniform(0.2, 2, N), y if machine is KernelSVR else y > 10
    model = machine(landmarks=X[:40], gamma="auto", tol=1e-8, random_state=0)
    plain, scaled = clone(model).fit(X, y, w), clone(model).fit(X, y, w * scale)
    assert scaled.kernel_.gamma == pytest.approx(plain.kernel_.gamma, rel=1e-12)
    assert scaled.C_ * scale == pytest.approx(plain.C_, rel=1e-6)


@pytest.mark.parametrize("machine", [KernelLogisticRegression, KernelSVC, KernelSVR])
def test_large_whole_weights_choose_a_small_C(data, machine):
    X, y, _ = data
    w, y = np.random.default_rng(4).integers(1, 4, N), y if machine is KernelSVR else y > 10
    model = machine(landmarks=X[:40], gamma=0.3, tol=1e-8, random_state=0)
    plain, scaled = clone(model).fit(X, y, w), clone(model).fit(X, y, w * 10**6)
    assert pytest.approx(plain.C_ / 10**6, rel=1e-6) == scaled.C_


def test_whole_weights_far_above_1_are_repetitions_and_the_choice_warns(data):
    X, y, _ = data
    with pytest.warns(AccuracyWarning, match="count as repetitions"):
        KernelRidge(landmarks=X[:40]).fit(X, y, np.full(N, 1000))
    KernelRidge(alpha=1.0, landmarks=X[:40]).fit(X, y, np.full(N, 1000))


def test_the_classifier_counts_no_row_of_weight_zero(data):
    X, y, _ = data
    w = (np.random.default_rng(1).random(N) < 0.3).astype(float)
    target = y > np.median(y)
    model = KernelRidgeClassifier(gamma=0.4, landmarks=X[:25])
    alpha = model.fit(X, target, w).alpha_
    assert model.fit(X[w > 0], target[w > 0]).alpha_ == pytest.approx(alpha)


CHOICES = [
    KernelRidge("auto", solver="cg", tol=1e-12),
    KernelRidge([0.01, 0.3], solver="cg", tol=1e-12, fit_intercept=True),
    KernelRidge(0.1, solver="cg", early_stopping=True),
    KernelRidge(alpha=1.0, gamma="auto"),
    KernelRidge(alpha=1.0, metric="diagonal"),
    KernelRidge(alpha=1.0, metric="auto", kernel="auto"),
    KernelRidgeClassifier(kernel="auto"),
    KernelRidgeClassifier([0.1, 1.0, 10.0], metric="auto", class_weight="balanced", selection="gcv"),
    KernelLogisticRegression("auto", tol=1e-10),
    KernelLogisticRegression([0.1, 1.0, 10.0], tol=1e-10, class_weight="balanced"),
    KernelSVC("auto", tol=1e-10, metric="full"),
    KernelSVR("auto", tol=1e-10),
    KernelSVR([0.1, 10.0], tol=1e-10, gamma="auto", epsilon=0.05),
]


@pytest.mark.parametrize("machine", CHOICES, ids=repr)
def test_what_held_out_rows_choose_depends_on_weights_as_on_repetitions(data, machine):
    X, y, w = data
    # Sparse rows go the same way, but for their keys.
    container = np.asarray if machine.metric in ("full", "auto") else sp.csr_matrix
    target = y if is_regressor(machine) else np.digitize(y, [9.7, 10.5])
    rng = np.random.default_rng(5)
    again = rng.permutation(repeated(w))
    kept = rng.permutation(np.flatnonzero(w))
    fits = [
        clone(machine).set_params(random_state=0).fit(container(X[rows]), target[rows], sample_weight=weight)
        for rows, weight in ((np.arange(N), w), (again, None), (kept, w[kept]))
    ]
    scores = [getattr(fit, "decision_function", fit.predict)(X) for fit in fits]
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], atol=1e-6 * np.abs(scores[0]).max())


@pytest.mark.parametrize("machine", [KernelRidge(alpha=1.0), KernelRidgeClassifier(1.0), KernelSVR(C=1.0)], ids=repr)
def test_the_score_of_a_number_of_landmarks_counts_weights_as_repetitions(data, machine):
    X, y, w = data
    target = y if is_regressor(machine) else np.digitize(y, [9.7, 10.5])
    wild, wild_target = X.copy(), target.copy()
    wild[w == 0] *= 1e6
    wild_target[w == 0] = target.max()
    machine.set_params(n_landmarks="auto", landmarks=X[:30], gamma=0.3, random_state=0)
    again = repeated(w)
    ((size, score),) = machine.fit(wild, wild_target, w).sizes_tried_
    assert size == 30
    ((_, of_repeated),) = machine.fit(X[again], target[again]).sizes_tried_
    assert of_repeated == pytest.approx(score, rel=1e-8)


def test_equal_rows_have_equal_keys_in_every_form():
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, size=(300, 6)).astype(np.float64)
    X[:150] += rng.normal(size=(150, 6)) * (X[:150] != 0)
    X[5, X[5] == 0] = -0.0
    keys = row_keys(X)
    np.testing.assert_allclose(row_keys(sp.csr_matrix(X)), keys, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(row_keys(np.asfortranarray(X)), keys)
    np.testing.assert_array_equal(row_keys(X[:, ::-1][:, ::-1]), keys)
    np.testing.assert_array_equal(row_keys(X[150:].astype(np.float32)), keys[150:])
    _, of_rows = np.unique(X, axis=0, return_inverse=True)
    _, of_keys = np.unique(keys, return_inverse=True)
    # The same partition of the rows.
    assert len(np.unique(of_rows)) == len(np.unique(of_keys)) == len(set(zip(of_rows.flat, of_keys.flat, strict=True)))


def test_pixels_that_differ_in_one_place_have_other_keys():
    X = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 784)), 785, axis=0).astype(np.float32)
    X[np.arange(784), np.arange(784)] += 1
    assert len(np.unique(row_keys(X))) == 785


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_matrix])
def test_equal_rows_meet_wherever_they_stand_and_keep_their_order_when_all_are_moved(wrap):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 13))
    many = rng.permutation(np.repeat(np.arange(500), 7))
    assert len(np.unique(row_keys(wrap(X[many])))) == 500
    order = np.argsort(row_keys(wrap(X)))
    for moved in (X + 1e6, 3.0 * X, 1e-100 * X):
        np.testing.assert_array_equal(np.argsort(row_keys(wrap(moved))), order)


def test_parts_are_even_and_keep_equal_rows_together():
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(200.0), rng.integers(1, 5, 200))[:, None]
    keys, strata = row_keys(rows), (rows[:, 0] % 3).astype(int)
    parts = assign_parts(keys, None, 4, np.random.default_rng(1), strata=strata)
    whole = {(key, part) for key, part in zip(keys, parts, strict=True)}
    assert len(whole) == 200
    for stratum in range(3):
        _, first = np.unique(keys[strata == stratum], return_index=True)
        counts = np.bincount(parts[strata == stratum][first], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(parts, assign_parts(keys, None, 4, np.random.default_rng(2), strata=strata))


@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_of_several_classes_keep_their_order_under_other_names(weighted):
    rng = np.random.default_rng(0)
    X, label = rng.integers(0, 3, size=(200, 2)).astype(float), rng.integers(0, 3, size=200)
    weight = rng.integers(0, 3, size=200).astype(float) if weighted else None
    one, other = (
        distinct_rows(Block(0, 0, X, np.where(y[:, None] == np.arange(3), 1.0, -1.0), weight))
        for y in (label, np.array([2, 0, 1])[label])
    )
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.y, other.y[:, [2, 0, 1]])
    np.testing.assert_array_equal(one.weight, other.weight)


def test_distinct_rows_carry_the_sum_of_their_weights():
    X, y, w = np.array([[1.0], [2.0], [1.0], [1.0], [3.0]]), np.array([0.0, 0, 0, 1, 0]), np.array([2.0, 1, 3, 1, 0])
    found = distinct_rows(Block(0, 0, X, y, w))
    rows = {(float(x[0]), float(t)): float(v) for x, t, v in zip(found.X, found.y, found.weight, strict=True)}
    assert rows == {(1.0, 0.0): 5.0, (2.0, 0.0): 1.0, (1.0, 1.0): 1.0}


@pytest.mark.parametrize("heavy", [50, 300])
def test_leave_one_out_of_many_rows_judges_those_that_count(heavy):
    # Of 20,000 rows few have a weight; a sample by number would judge a handful of them, or none.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=20_000)
    w = np.zeros(20_000)
    w[rng.choice(20_000, heavy, replace=False)] = 1.0
    kept = w > 0
    model = KernelRidge(np.geomspace(1e-3, 10, 20), gamma=0.5, landmarks=X[kept][:40])
    weighted = model.fit(X, y, w).alpha_scores_
    np.testing.assert_allclose(model.fit(X[kept], y[kept]).alpha_scores_, weighted, rtol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_weighted_moments_are_those_of_repeated_rows(data, offset, sparse):
    X, _, w = data
    X = X + offset
    wrap = sp.csr_matrix if sparse else np.asarray
    halves = [block_moments(wrap(X[part]), w[part]) for part in (slice(0, 70), slice(70, None))]
    weighted, exact = halves[0].merge(halves[1]), X[repeated(w)].astype(np.longdouble)
    assert weighted.count == w.sum()
    np.testing.assert_allclose(weighted.mean, exact.mean(axis=0).astype(float), rtol=1e-14)
    scatter = float(((exact - exact.mean(axis=0)) ** 2).sum())
    assert weighted.scatter == pytest.approx(scatter, rel=1e-12 + 1e-14 * offset)


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
@pytest.mark.parametrize("n_landmarks", [5, 40, 500])
@pytest.mark.parametrize("name", SELECTORS)
def test_no_selector_takes_a_row_of_weight_zero(name, n_landmarks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    w = rng.uniform(0.5, 3, 400) * (rng.random(400) < 0.5)
    # Rows of weight 0 lie far away: one of them in a mean would show.
    X[w == 0] += 1000
    passes = Passes(as_blocks(X, weight=w), LocalEngine())
    found = make_selector(name).select(passes, n_landmarks, Gaussian(0.3), np.random.default_rng(1))
    assert np.abs(found.points).max() < 100
    assert len(found) == min(n_landmarks, np.count_nonzero(w))
    if found.indices is not None:
        assert (w[found.indices] > 0).all()


@pytest.mark.parametrize("name", ["auto", "kmeans", "sketched-kmeans"])
def test_clusters_follow_the_weights(name):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 50])
    w = rng.integers(1, 5, 200).astype(float)
    passes = Passes(as_blocks(X, weight=w), LocalEngine())
    points = make_selector(name).select(passes, 2, Gaussian(1e-3), np.random.default_rng(1)).points
    means = [np.average(X[part], axis=0, weights=w[part]) for part in (slice(0, 100), slice(100, None))]
    np.testing.assert_allclose(np.sort(points, axis=0), np.array(means), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weighted_kmeans_has_the_inertia_of_repeated_rows(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(dtype)
    w = rng.integers(0, 4, 300).astype(float)
    found = kmeans(as_blocks(X), 8, engine=LocalEngine(), rng=rng, weight=w)
    again = repeated(w)
    distances = ((X[again, None].astype(float) - found.centers) ** 2).sum(axis=2)
    assert found.inertia == pytest.approx(distances.min(axis=1).sum(), rel=1e-5)
    assert found.counts.sum() == np.count_nonzero(w)


def test_heavy_rows_are_drawn_for_certain_and_stand_for_themselves():
    w = np.concatenate([np.full(5, 1e6), np.ones(1000), np.zeros(50)])
    numbers, stands = draw_rows(len(w), 100, w, np.random.default_rng(0))
    assert set(range(5)) <= set(numbers)
    assert (w[numbers] > 0).all()
    np.testing.assert_array_equal(stands[:5], 1e6)


def test_weighted_and_unweighted_rows_merge_and_extend(data):
    X, y, w = data
    settings = {"alpha": 0.5, "gamma": 0.3, "landmarks": X[:30]}
    plain = KernelRidge(**settings).fit(X, y)
    whole = KernelRidge(**settings).fit(np.concatenate([X, X]), np.concatenate([y, y]), np.concatenate([w, np.ones(N)]))
    merged = KernelRidge(**settings).fit(X, y, w).merge(plain)
    extended = KernelRidge(**settings).fit(X, y, w).partial_fit(X, y)
    for model in (merged, extended):
        np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-8)


SHIFTS = [1e3, 1e6, 1e8]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
def test_ridge_with_an_intercept_does_not_feel_a_shift_of_the_target(data, selection, shift):
    X, y, w = data
    # A target on a grid that the shifted one has too, so that both hold the same numbers.
    y = np.round(y * 2**20) / 2**20
    for weight in (None, w):
        model = KernelRidge("auto", selection=selection, fit_intercept=True, gamma=0.3, landmarks=X[:40])
        near = model.fit(X, y, weight).predict(X)
        alpha, scores = model.alpha_, model.alpha_scores_
        far = model.fit(X, y + shift, weight).predict(X)
        np.testing.assert_allclose(model.alpha_scores_, scores, rtol=1e-6)
        assert model.alpha_ == pytest.approx(alpha)
        np.testing.assert_allclose(far - shift, near, atol=8 * np.finfo(np.float64).eps * shift + 1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_normalised_process_does_not_feel_a_shift_of_the_target(data, shift):
    X, y, _ = data
    y = np.round(y * 2**20) / 2**20
    models = [GaussianProcessRegressor(normalize_y=True, gamma=0.3, landmarks=X[:40]).fit(X, y + s) for s in (0, shift)]
    (near, std), (far, far_std) = (model.predict(X, return_std=True) for model in models)
    np.testing.assert_allclose(far_std, std, rtol=1e-4)
    np.testing.assert_allclose(far - shift, near, atol=1e-4)
    values = [model.log_marginal_likelihood_value_ for model in models]
    assert values[1] == pytest.approx(values[0], rel=1e-6)


@pytest.mark.parametrize("shift", [*SHIFTS, 1e9])
@pytest.mark.parametrize("C", [10.0, "auto"])
def test_support_vector_regression_does_not_feel_a_shift_of_the_target(data, C, shift):
    X, y, w = data
    y = np.round(y * 2**20) / 2**20
    for weight in (None, w):
        model = KernelSVR(C, epsilon=0.05, gamma=0.3, landmarks=X[:40], random_state=0)
        near = model.fit(X, y, weight).predict(X)
        far = model.fit(X, y + shift, weight).predict(X)
        np.testing.assert_allclose(far - shift, near, atol=16 * np.finfo(np.float64).eps * shift + 1e-7)


@pytest.mark.parametrize(
    "machine",
    [
        KernelRidge("auto", solver="cg", fit_intercept=True),
        KernelRidge("auto", metric="auto", fit_intercept=True),
        KernelSVC("auto"),
        KernelRidge("auto", n_landmarks="auto", fit_intercept=True),
    ],
    ids=repr,
)
def test_the_choice_of_held_out_rows_does_not_feel_a_shift_or_a_unit(data, machine):
    X, y, w = data
    X, y = np.round(X * 2**16) / 2**16, np.round(y * 2**16) / 2**16
    target, far = (y, y + 2.0**20) if is_regressor(machine) else (y > 10, y > 10)

    def chosen(rows, values):
        fitted = machine.set_params(random_state=0).fit(rows, values, w)
        return fitted.C_ if hasattr(fitted, "C_") else fitted.alpha_

    base = chosen(X, target)
    for rows, values in ((X + 2.0**17, target), (X * 4, target), (X, far)):
        assert chosen(rows, values) == pytest.approx(base, rel=1e-5)


def test_a_target_whose_squares_overflow_is_refused_as_such(data):
    X, y, _ = data
    for machine in (KernelRidge(alpha=1.0, landmarks=X[:20]), GaussianProcessRegressor(landmarks=X[:20])):
        with pytest.raises(ValueError, match="whose squares overflow"):
            machine.fit(X, y * 1e200)
