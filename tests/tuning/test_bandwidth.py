"""The search for a bandwidth ends at one that is best among its neighbours, and never worse than where it began."""

from __future__ import annotations

import numpy as np
import pytest

from nystrom import (
    GaussianProcessRegressor,
    KernelLogisticRegression,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
)
from nystrom.engine import Resources
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import optimal
from nystrom.rows import as_blocks
from nystrom.tuning import bandwidth
from nystrom.tuning.bandwidth import search_gamma

rng = np.random.default_rng(0)
X = rng.normal(size=(2100, 2))


def _search(wanted, *, n_landmarks=20):
    """Search with a criterion that asks for the exponent ``wanted(rows, landmarks)``."""
    rows = as_blocks(X)

    def criterion(fitted, rows):
        asked = wanted(rows.shape[0], len(fitted.landmarks))
        return abs(np.log2(fitted.kernel.gamma) - asked)

    def factorise(passes, kernel, landmarks):
        return optimal(passes, kernel, landmarks, None)

    passes = Passes(rows, Resources(n_jobs=1).engine(rows))
    landmarks = Landmarks(X[:n_landmarks])
    found = search_gamma(passes, Gaussian(gamma=1.0), landmarks, factorise, criterion, np.random.default_rng(0))
    return np.log2(found.gamma)


@pytest.mark.parametrize("wrong", [-10, -4, 6, 10])
def test_a_coarse_stage_that_errs_cannot_keep_the_search_from_where_it_began(wrong):
    assert _search(lambda n, m: wrong if n <= 2000 else 0) == 0


@pytest.mark.parametrize("wanted", [-13, -3, 1, 5, 14])
def test_the_search_goes_on_until_its_optimum_is_interior(wanted):
    assert _search(lambda n, m: wanted) == wanted


def test_the_winner_is_compared_with_the_start_on_all_landmarks(monkeypatch):
    monkeypatch.setattr(bandwidth, "_FINE", (20_000, 10))
    assert _search(lambda n, m: 0 if m == 20 else 4) == 0
    assert _search(lambda n, m: 4) == 4


def test_a_score_that_is_no_number_is_never_the_best():
    assert _search(lambda n, m: np.nan) == 0


@pytest.mark.parametrize("more", [{}, {"n_components": 15}, {"n_landmarks": 300}, {"alpha": 0.3}])
@pytest.mark.parametrize("frequency", [1.0, 9.0])
def test_a_searched_width_is_not_worse_than_the_default_on_new_rows(more, frequency):
    Y = np.sin(frequency * X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=2100)
    settings = {"n_landmarks": 60, "random_state": 0} | more
    models = [KernelRidge(gamma=gamma, **settings).fit(X[:600], Y[:600]) for gamma in ("auto", "scale")]
    auto, scale = (model.score(X[600:], Y[600:]) for model in models)
    assert auto > scale - 0.01
    if frequency > 1 and settings["n_landmarks"] == 300:
        assert auto > scale + 0.5


@pytest.mark.parametrize("machine", [KernelRidgeClassifier, KernelLogisticRegression, KernelSVC])
def test_ties_among_widths_go_to_a_kernel_that_the_machine_can_use(machine):
    # Columns of 0 and 1 and classes without noise: narrow kernels interpolate, and very wide ones need an alpha that
    # no C reaches.
    rng = np.random.default_rng(1)
    rows = (rng.random((800, 15)) < 0.3).astype(float)
    y = (rows[:, 0] != rows[:, 1]).astype(int)
    scale, auto = (machine(gamma=gamma, random_state=0).fit(rows[:533], y[:533]) for gamma in ("scale", "auto"))
    assert auto.score(rows[533:], y[533:]) >= scale.score(rows[533:], y[533:])
    if machine is KernelLogisticRegression:
        losses = [-model.predict_log_proba(rows[533:])[np.arange(267), y[533:]].mean() for model in (auto, scale)]
        assert losses[0] < losses[1]


def test_few_landmarks_get_a_width_that_they_can_use():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 12))
    y = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=3000)
    model = KernelRidge(gamma="auto", n_landmarks=100, random_state=0).fit(rows[:2000], y[:2000])
    plain = KernelRidge(n_landmarks=100, random_state=0).fit(rows[:2000], y[:2000])
    assert model.score(rows[2000:], y[2000:]) >= plain.score(rows[2000:], y[2000:])
    # Not the corner of a grid.
    assert 1e-3 < model.kernel_.gamma / plain.kernel_.gamma < 1e3


def test_the_likelihood_with_auto_gamma_is_never_below_that_of_scale(monkeypatch):
    monkeypatch.setattr(bandwidth, "_COARSE", (40, 4))
    Y = np.sin(3 * X[:600, 0])
    bounds = [
        GaussianProcessRegressor(gamma=gamma, n_landmarks=60, random_state=0).fit(X[:600], Y).likelihood_bound_
        for gamma in ("auto", "scale")
    ]
    assert bounds[0] >= bounds[1]
