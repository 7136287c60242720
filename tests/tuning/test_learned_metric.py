"""The learned metric: gradients that are slopes, outer products over blocks, and steps that held-out rows pick."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import KernelLogisticRegression, KernelRidge, KernelRidgeClassifier, KernelSVC
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian, Laplacian, Matern, Polynomial
from nystrom.rows import as_blocks
from nystrom.tuning import search
from nystrom.tuning.gradients import sum_outer_products
from nystrom.tuning.judge import HeldOutLosses, Judge, Reach, Sample, _judge, cut
from nystrom.tuning.metric import check_learnable, kinds_of, metric_root, plain_kernels
from nystrom.tuning.search import Space, learn_kernel

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(60, 3)), RNG.normal(size=(8, 3))
COEFFICIENTS = RNG.normal(size=(8, 2))


def slopes_of(kernel, step=1e-6):
    slopes = [(kernel(X + step * e, Z) - kernel(X - step * e, Z)) @ COEFFICIENTS / (2 * step) for e in np.eye(3)]
    return np.stack(slopes, axis=2)


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(0.5, 0.4), Matern(1.5, 0.4), Matern(2.5, 0.4)])
def test_outer_products_are_those_of_finite_differences(kernel):
    gradients = slopes_of(kernel)
    expected = np.einsum("nti,ntj->ij", gradients, gradients)
    found = sum_outer_products(kernel, Z, COEFFICIENTS, X, None, "full")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    diagonal = sum_outer_products(kernel, Z, COEFFICIENTS, X, None, "diagonal")
    np.testing.assert_allclose(diagonal, np.diag(expected), rtol=1e-6)


@pytest.mark.parametrize(
    "kernel", [Laplacian(0.4), Laplacian(0.4, 1, 0.6), Laplacian(0.4, 1.7, 1.7), Laplacian(0.4, 2, 1)]
)
def test_the_laplacian_kernel_has_the_diagonal_of_finite_differences(kernel):
    expected = np.square(slopes_of(kernel)).sum(axis=(0, 1))
    found = sum_outer_products(kernel, Z, COEFFICIENTS, X, None, "diagonal")
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_outer_products_of_weighted_rows_are_those_of_repeated_ones():
    times = RNG.integers(0, 3, size=60)
    found = sum_outer_products(Gaussian(0.4), Z, COEFFICIENTS, X, times.astype(float), "full")
    repeated = sum_outer_products(Gaussian(0.4), Z, COEFFICIENTS, np.repeat(X, times, 0), None, "full")
    np.testing.assert_allclose(found, repeated, rtol=1e-10)


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.4), Laplacian(0.4)])
def test_columns_without_entries_cost_nothing_and_change_nothing(kernel):
    rows = sp.random(50, 400, 0.01, format="csr", random_state=0)
    points, weight = rows[:8], RNG.random(50)
    found = sum_outer_products(kernel, points, COEFFICIENTS, rows, weight, "diagonal")
    expected = sum_outer_products(kernel, points.toarray(), COEFFICIENTS, rows.toarray(), weight, "diagonal")
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    wide = 10**7
    rows.resize(50, wide), points.resize(8, wide)
    tracemalloc.start()
    widened = sum_outer_products(kernel, points, COEFFICIENTS, rows, weight, "diagonal")
    assert tracemalloc.get_traced_memory()[1] < 2 * 8 * wide
    tracemalloc.stop()
    np.testing.assert_array_equal(widened[:400], found)


def learn_metric(passes, kernels, kinds, *, rng, **options):
    return learn_kernel(passes, Space(kernels, kinds, **options), rng)


def passes_of(n, p, function, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p))
    y = function(rows) + 0.1 * rng.normal(size=n)
    return Passes(as_blocks(rows).with_target(y[:, None], None), LocalEngine())


def test_a_direction_that_matters_is_found():
    direction = np.array([3.0, 4.0, 0, 0, 0, 0, 0, 0]) / 5
    passes = passes_of(900, 8, lambda rows: np.sin(2 * rows @ direction))
    found = learn_metric(
        passes,
        [Gaussian("scale")],
        ("full",),
        fit_intercept=True,
        classes=False,
        rng=np.random.default_rng(1),
    )
    M = found.root @ found.root.T
    values, vectors = np.linalg.eigh(M)
    assert abs(vectors[:, -1] @ direction) > 0.99
    assert values[-1] > 5 * values[-2]
    losses = found.losses["full"]
    assert losses.min() < 0.5 * losses[0]
    # The spread of the rows is kept, so that a bandwidth means the same.
    rows = passes.rows.block(0).X
    np.testing.assert_allclose(np.var(rows @ found.root, axis=0).sum(), np.var(rows, axis=0).sum(), rtol=1e-3)


def test_noise_keeps_the_plain_metric():
    passes = passes_of(800, 5, lambda rows: 5 * np.random.default_rng(3).normal(size=len(rows)))
    found = learn_metric(
        passes,
        [Gaussian("scale")],
        ("diagonal", "full"),
        fit_intercept=True,
        classes=False,
        rng=np.random.default_rng(1),
    )
    assert found.root is None


def test_all_columns_alike_keep_the_plain_metric():
    passes = passes_of(1000, 4, lambda rows: np.exp(-np.square(rows).sum(axis=1) / 4))
    found = learn_metric(
        passes,
        [Gaussian("scale")],
        ("diagonal",),
        fit_intercept=True,
        classes=False,
        rng=np.random.default_rng(1),
    )
    assert found.root is None or found.root.max() < 1.5 * found.root.min()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_width_that_gains_little_by_itself_leaves_the_plain_kernel(seed):
    def distance_waves(rows):
        return np.cos(3 * np.linalg.norm(rows, axis=1))

    passes = passes_of(1500, 5, distance_waves, seed=seed)
    found = learn_metric(
        passes,
        [Matern(0.5, "scale")],
        ("diagonal", "full"),
        fit_intercept=True,
        classes=False,
        rng=np.random.default_rng(1),
    )
    assert found.root is None
    assert found.kernel.gamma == "scale"


def test_a_width_that_gains_much_by_itself_is_taken():
    passes = passes_of(1200, 2, lambda rows: np.sin(6 * rows).sum(axis=1))
    found = learn_metric(
        passes, [Gaussian("scale")], ("diagonal",), fit_intercept=True, classes=False, rng=np.random.default_rng(1)
    )
    assert found.kernel.gamma > 2 / np.square(passes.rows.block(0).X).sum(axis=1).mean()


def test_of_many_rows_a_metric_is_taken_only_if_it_gains_with_more_landmarks_too(monkeypatch):
    monkeypatch.setattr(search, "_MANY_ROWS", 1500)
    monkeypatch.setattr(search, "_TRIALS", ((1000, 1000), (3000, 100)))

    def learned():
        passes = passes_of(2000, 8, lambda rows: np.sin(2 * rows[:, 0]))
        rng = np.random.default_rng(1)
        return learn_metric(passes, [Gaussian("scale")], ("full",), fit_intercept=True, classes=False, rng=rng)

    assert learned().root is not None
    with_landmarks = Judge.with_landmarks

    def plain_alone(self, sizes, kernel, roots, *, like):
        return with_landmarks(self, sizes, kernel, None, like=like)

    monkeypatch.setattr(Judge, "with_landmarks", plain_alone)
    assert learned().root is None


def test_the_width_of_a_kernel_far_behind_is_not_searched_to_its_end(monkeypatch):
    passes = passes_of(600, 3, lambda rows: np.sin(rows).sum(axis=1))
    kernels = plain_kernels(Gaussian("scale"), 3, several=True, sparse=False)
    tried = []
    run = Judge.run

    def counted(self, kernel, roots, **options):
        tried.append(type(kernel))
        return run(self, kernel, roots, **options)

    monkeypatch.setattr(Judge, "run", counted)
    monkeypatch.setattr(search, "_NEAR", np.inf)
    learn_metric(passes, kernels, ("diagonal",), fit_intercept=True, classes=False, rng=np.random.default_rng(1))
    assert tried.count(Matern) <= 3


def test_the_kernel_is_chosen_by_the_rows_held_out():
    smooth = passes_of(800, 2, lambda rows: np.sin(rows).sum(axis=1))
    kernels = plain_kernels(Gaussian("scale"), 2, several=True, sparse=False)
    found = learn_metric(smooth, kernels, (), fit_intercept=True, classes=False, rng=np.random.default_rng(1))
    assert isinstance(found.kernel, Gaussian)
    rough = passes_of(800, 2, lambda rows: np.sign(rows[:, 0] * rows[:, 1]))
    found = learn_metric(rough, kernels, (), fit_intercept=True, classes=False, rng=np.random.default_rng(1))
    assert isinstance(found.kernel, (Matern, Laplacian))
    assert found.root is None


def test_sparse_rows_learn_scales():
    rng = np.random.default_rng(0)
    S = sp.random(900, 30, 0.3, format="csr", random_state=0, data_rvs=rng.standard_normal)
    y = np.sin(3 * S[:, [0]].toarray())
    passes = Passes(as_blocks(S).with_target(y, None), LocalEngine())
    found = learn_metric(passes, [Gaussian("scale")], ("diagonal",), fit_intercept=True, classes=False, rng=rng)
    assert found.root.argmax() == 0
    assert found.root[0] > 2 * np.sort(found.root)[-2]


def test_the_word_auto_stands_for_what_the_rows_allow():
    assert kinds_of("auto", 20, sparse=False) == kinds_of("full", 5000, sparse=False) == ("diagonal", "full")
    assert kinds_of("auto", 5000, sparse=False) == ("diagonal",)
    assert kinds_of("auto", 20, sparse=True) == ("diagonal",)
    with pytest.raises(ValueError, match="needs dense rows"):
        kinds_of("full", 20, sparse=True)


def test_arrays_are_checked():
    np.testing.assert_array_equal(metric_root([1, 2], 2), [1.0, 2.0])
    M = np.array([[2.0, 1.0], [1.0, 2.0]])
    np.testing.assert_allclose(metric_root(M, 2) @ metric_root(M, 2).T, M)
    for wrong in ([1.0], [1.0, np.nan], np.eye(3), ["a", "b"]):
        with pytest.raises(ValueError, match="metric must be one of"):
            metric_root(wrong, 2)
    for negative in ([1.0, -1.0], [0.0, 0.0]):
        with pytest.raises(ValueError, match="metric as scales"):
            metric_root(negative, 2)
    with pytest.raises(ValueError, match="must be positive semidefinite; its least eigenvalue is -1"):
        metric_root([[1.0, 2.0], [2.0, 1.0]], 2)
    with pytest.raises(ValueError, match=r"must be symmetric; metric\[0, 1\] is 3 and metric\[1, 0\] is 0"):
        metric_root([[1, 3], [0, 1]], 2)
    for nothing in (-np.eye(2), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="must have a positive eigenvalue"):
            metric_root(nothing, 2)
    with pytest.raises(ValueError, match=r"metric must be one of .*got \[\[1, 2\], \[3\]\]"):
        metric_root([[1, 2], [3]], 2)


def test_kernels_without_a_known_gradient_are_refused():
    with pytest.raises(ValueError, match="a metric is learned for the kernels 'gaussian', 'matern' and 'laplacian'"):
        check_learnable(Polynomial(), "diagonal")
    with pytest.raises(ValueError, match="use metric='diagonal'"):
        check_learnable(Laplacian(1.0), "full")


def test_the_laplacian_kernel_is_left_out_where_it_is_slow_or_a_width_is_given():
    def kinds(gamma, columns, sparse=False):
        found = plain_kernels(Gaussian(gamma), columns, several=True, sparse=sparse)
        return [type(kernel) for kernel in found]

    assert kinds("scale", 10) == [Gaussian, Matern, Laplacian]
    assert kinds("scale", 1000) == kinds(0.3, 10) == kinds("scale", 10, sparse=True) == [Gaussian, Matern]


def learned_from(rows, y, weight=None):
    passes = Passes(as_blocks(rows).with_target(y[:, None], weight), LocalEngine())
    kernels = plain_kernels(Gaussian("scale"), rows.shape[1], several=True, sparse=False)
    rng = np.random.default_rng(5)
    return learn_metric(passes, kernels, ("diagonal", "full"), fit_intercept=True, classes=False, rng=rng)


def test_what_is_learned_depends_neither_on_the_order_of_rows_nor_on_how_repetitions_are_written():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(300, 4))
    y = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=300)
    weight = rng.integers(0, 4, size=300).astype(float)
    weighted = learned_from(rows, y, weight)
    times = np.repeat(np.arange(300), weight.astype(int))
    for order in (times, rng.permutation(times)):
        repeated = learned_from(rows[order], y[order])
        assert repeated.kernel == weighted.kernel
        np.testing.assert_allclose(repeated.root, weighted.root, rtol=1e-9)
        for kind, losses in weighted.losses.items():
            np.testing.assert_allclose(repeated.losses[kind], losses, rtol=1e-9)


def test_rough_targets_ask_for_more_landmarks_than_smooth_ones():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(2500, 2))
    noise = 0.1 * rng.normal(size=2500)
    sizes = []
    for y, kernel in (
        (rows[:, 0] + noise, Gaussian("scale")),
        (np.sign(np.sin(5 * rows)).prod(axis=1) + noise, Matern(0.5, "scale")),
    ):
        passes = Passes(as_blocks(rows).with_target(y[:, None], None), LocalEngine())
        found = learn_metric(passes, [kernel], (), fit_intercept=True, classes=False, rng=np.random.default_rng(0))
        sizes.append(found.n_landmarks)
    assert sizes == [500, 1000]


def judge_of(n, *, learn_rows, n_landmarks, weight=None, reach=None):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 3))
    y = np.sin(2 * rows[:, :1]) + 0.1 * rng.normal(size=(n, 1))
    weight = np.ones(n) if weight is None else weight
    sample = Sample(rows, y, weight, False, float(weight.sum()))
    return Judge(sample, cut(sample, np.random.default_rng(1)), reach or Reach(), True, learn_rows, n_landmarks)


@pytest.mark.parametrize("weight", [None, np.random.default_rng(2).integers(1, 4, size=400).astype(float)])
def test_a_trial_on_landmarks_that_span_all_rows_is_the_exact_one(weight, monkeypatch):
    monkeypatch.setattr("nystrom.tuning.judge._JITTER", 0.0)
    # The last row to learn from is also the last but one: with every landmark but it, the span is the same.
    judge = judge_of(400, learn_rows=300, n_landmarks=300, weight=weight)
    judge = replace(judge, splits=[(np.append(learn[:299], learn[298]), held) for learn, held in judge.splits])
    exact = judge.run(Matern(0.5, 0.3), None)
    fewer = replace(judge, n_landmarks=299).run(Matern(0.5, 0.3), None)
    assert fewer.regularisations == exact.regularisations
    np.testing.assert_allclose(fewer.losses, exact.losses, atol=1e-8)


def test_trials_on_landmarks_are_those_of_the_first_of_more_landmarks():
    judge = judge_of(400, learn_rows=300, n_landmarks=50)
    alone = judge.run(Gaussian(0.3), None)
    few, many = judge.with_landmarks((50, 100), Gaussian(0.3), None, like=alone)
    np.testing.assert_allclose(few.losses, alone.losses, rtol=1e-6, atol=1e-12)
    assert many.mean < few.mean


@pytest.mark.parametrize(("n", "count"), [(50, 6), (300, 6), (1000, 4), (2000, 2), (3990, 1), (4000, 1)])
def test_parts_are_held_out_until_they_hold_a_thousand_rows(n, count):
    judge = judge_of(n, learn_rows=100, n_landmarks=100)
    assert len(judge.splits) == count
    for learn, held in judge.splits:
        assert len(np.union1d(learn, held)) == n


def test_rows_held_out_several_times_make_no_more_evidence():
    one = HeldOutLosses(np.arange(100.0), np.zeros(100, bool), np.ones(100))
    thrice = HeldOutLosses.join([one] * 3, 3.0)
    assert thrice.error == pytest.approx(one.error)


def test_candidates_are_judged_under_the_regularisation_that_the_machine_can_take():
    free = judge_of(400, learn_rows=300, n_landmarks=300)
    heavy = judge_of(400, learn_rows=300, n_landmarks=300, reach=Reach(np.array([1e4])))
    bounded = judge_of(400, learn_rows=300, n_landmarks=300, reach=Reach(None, 1e4, 1e6))
    losses = [judge.run(Gaussian(0.3), None).mean for judge in (free, heavy, bounded)]
    assert losses[0] < 0.1 < 0.4 < losses[1]
    assert losses[2] == pytest.approx(losses[1], rel=1e-2)


def test_the_same_smoothing_on_fewer_rows_takes_less_regularisation():
    np.testing.assert_allclose(Reach(np.array([2.0, 1.0])).on(0.25, 10.0), [0.25, 0.5])
    found = Reach(None, 1.0, 100.0).on(0.5, 1e3)
    assert found.min() == 0.5
    assert found.max() == 50.0


@pytest.mark.parametrize(("targets", "most"), [(1, 700), (7, 1000)])
def test_many_rows_get_fewer_landmarks_and_several_targets_get_more(targets, most, monkeypatch):
    monkeypatch.setattr(search, "_MANY_ROWS", 2000)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(2500, 2))
    y = np.sign(np.sin(5 * rows)).prod(axis=1)[:, None] + 0.1 * rng.normal(size=(2500, targets))
    passes = Passes(as_blocks(rows).with_target(y, None), LocalEngine())
    kernels = [Matern(0.5, "scale")]
    found = learn_metric(passes, kernels, (), fit_intercept=True, classes=False, rng=np.random.default_rng(0))
    assert found.n_landmarks == most


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_class_is_wrong_where_another_one_scores_higher(n_classes):
    rng = np.random.default_rng(0)
    label = rng.integers(n_classes, size=200)
    y = np.where(label[:, None] == np.arange(n_classes), 1.0, -1.0)
    scores = 0.5 * y + rng.normal(size=y.shape)
    if n_classes == 2:
        y, scores = y[:, 1:], scores[:, 1:]
    judged = _judge(scores, Sample(np.zeros((200, 1)), y, np.ones(200), True, 200.0))
    found = scores.argmax(axis=1) if n_classes > 2 else (scores[:, 0] > 0).astype(int)
    np.testing.assert_array_equal(judged.wrong, found != label)
    assert 0 < judged.wrong.sum() < 200


def test_scales_are_found_where_a_whole_matrix_is_not():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 40))
    y = np.sin(3 * rows[:, 0]) + rows[:, 1] * rows[:, 2]
    for metric in ("diagonal", "full"):
        model = KernelRidge(metric=metric, random_state=0).fit(rows[:300], y[:300])
        assert model.score(rows[300:], y[300:]) > 0.5
        assert model.metric_.ndim == (1 if metric == "diagonal" else 2)


# Wide kernels fit the first target best, and see only its line; of the second the plain metric learns nothing.
@pytest.mark.parametrize(("draw", "seed", "p"), [("uniform", 0, 8), ("standard_normal", 1, 6)])
def test_the_column_of_a_wave_is_found_among_others(draw, seed, p):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-2, 2, (800, p)) if draw == "uniform" else rng.standard_normal((800, p))
    y = np.sin(3 * rows[:, 0])
    model = KernelRidge(metric="diagonal", n_landmarks=100, random_state=0).fit(rows[:500], y[:500])
    assert model.score(rows[500:], y[500:]) > 0.9


@pytest.mark.parametrize("machine", [KernelRidgeClassifier, KernelLogisticRegression, KernelSVC])
def test_other_names_for_the_classes_change_nothing(machine):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4))
    label = np.digitize(rows[:, 0] + rows[:, 1] ** 2 + 0.5 * rng.normal(size=400), [0.3, 1.5])
    named = np.array([2, 0, 1])[label]
    options = {"metric": "auto", "kernel": "auto", "n_landmarks": 60, "random_state": 0}
    one, other = (machine(**options).fit(rows, y).decision_function(rows) for y in (label, named))
    np.testing.assert_allclose(other[:, [2, 0, 1]], one, atol=1e-2)


def test_a_target_nearly_linear_gets_a_linear_part():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1500, 6))
    y = rows @ np.arange(6) + 0.1 * np.sin(5 * rows[:, 0])
    model = KernelRidge(kernel="auto", n_landmarks=100, fit_intercept=True, random_state=0).fit(rows[:1000], y[:1000])
    plain = KernelRidge(n_landmarks=100, fit_intercept=True, random_state=0).fit(rows[:1000], y[:1000])
    assert "Linear()" in repr(model.kernel_)
    assert 1 - model.score(rows[1000:], y[1000:]) < 0.5 * (1 - plain.score(rows[1000:], y[1000:]))


def test_a_gain_in_probabilities_is_not_taken_for_more_wrong_classes():
    losses, rows = np.random.default_rng(0).uniform(0.5, 1.0, size=400), np.arange(400)
    weight = np.where(rows < 200, 2.0, 1.0)
    plain = HeldOutLosses(losses, rows < 100, weight)
    for wrong, better in ((rows < 99, True), (rows < 100, True), (rows < 101, False), (rows >= 199, False)):
        assert search._is_better(HeldOutLosses(0.9 * losses, wrong, weight), plain, 1.5) == better
    assert not search._is_better(HeldOutLosses(losses, rows < 50, weight), plain, 1.5)


def test_a_metric_is_taken_only_if_it_gains_with_all_rows_of_the_sample_too(monkeypatch):
    def learned(n):
        passes = passes_of(n, 8, lambda rows: np.sin(2 * rows[:, 0]))
        rng = np.random.default_rng(1)
        return learn_metric(passes, [Gaussian("scale")], ("full",), fit_intercept=True, classes=False, rng=rng)

    assert learned(2000).root is not None
    with_landmarks = Judge.with_landmarks

    def plain_alone(self, sizes, kernel, roots, *, like):
        return with_landmarks(self, sizes, kernel, None, like=like)

    monkeypatch.setattr(Judge, "with_landmarks", plain_alone)
    assert learned(2000).root is None
    # Of fewer rows the trials have learned from all.
    assert learned(800).root is not None
