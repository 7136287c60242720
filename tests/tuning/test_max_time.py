"""A fit within a time: what is searched, what stays as given, and that it ends."""

from __future__ import annotations

import time

import numpy as np
import pytest

import nystrom
from nystrom import KernelLogisticRegression, KernelRidge
from nystrom.checks import check_seconds
from nystrom.kernels import Gaussian, InMetric, Polynomial
from nystrom.solvers.ridge import fit_operations
from nystrom.tuning import search
from nystrom.tuning.judge import HeldOutLosses
from nystrom.tuning.search import OutOfTimeError, TimeLimit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 6))
Y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=1500)
MACHINES = [
    nystrom.KernelRidge,
    nystrom.KernelRidgeClassifier,
    nystrom.KernelLogisticRegression,
    nystrom.KernelSVC,
    nystrom.KernelSVR,
    nystrom.GaussianProcessRegressor,
]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_with_a_target_takes_a_time(machine):
    y = Y > 0 if "class_weight" in machine().get_params() else Y
    model = machine(max_time="20s", random_state=0).fit(X[:400], y[:400])
    plain = machine(random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > plain.score(X[400:], y[400:])
    assert all(len(tried) == 4 for tried in model.search_)
    assert np.all(np.diff([tried.seconds for tried in model.search_]) >= 0)


def test_what_is_given_stays():
    model = KernelRidge(kernel="matern", n_landmarks=70, alpha=0.5, max_time=20, random_state=0).fit(X, Y)
    kernel = model.kernel_.kernel if isinstance(model.kernel_, InMetric) else model.kernel_
    assert type(kernel).__name__ == "Matern"
    assert kernel.nu == 1.5
    assert (len(model.landmarks_), model.alpha_) == (70, 0.5)
    for kernel in (Gaussian(0.3), Polynomial(2, 1.0)):
        model = KernelRidge(kernel=kernel, metric=np.ones(6), max_time=20, random_state=0).fit(X[:300], Y[:300])
        assert repr(model.kernel_.kernel) == repr(kernel)


def test_a_time_too_short_for_any_search_still_gives_a_machine():
    model = KernelRidge(max_time=1e-3, random_state=0).fit(X, Y)
    assert len(model.search_) == 1
    assert len(model.landmarks_) <= 125
    assert model.score(X, Y) > 0.1


@pytest.mark.parametrize("wrong", [0, -1, "soon", "5 days", float("inf"), float("nan"), True, [3]])
def test_a_time_is_a_positive_number_or_a_text(wrong):
    with pytest.raises(ValueError, match="max_time must be a positive number of seconds"):
        KernelRidge(max_time=wrong).fit(X, Y)
    assert [check_seconds(text, "max_time") for text in ("30s", "1.5 min", "2h", 7, None)] == [30, 90, 7200, 7, None]


def limit_of(seconds, began=None):
    began = time.perf_counter() if began is None else began
    return TimeLimit(seconds, lambda m: fit_operations(10_000, 5, m), 4000, lambda line: None, began)


def test_landmarks_grow_with_the_time_that_is_left(monkeypatch):
    monkeypatch.setattr(search, "_speed", lambda: 1e10)
    sizes = [limit_of(seconds).affordable() for seconds in (1e-3, 1.0, 10.0, 1e5)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3] == 4000
    for seconds, size in zip((1.0, 10.0), sizes[1:3], strict=True):
        assert fit_operations(10_000, 5, size) < 1e10 * seconds


def test_the_search_ends_with_its_share_of_the_time():
    limit_of(100.0).check()
    with pytest.raises(OutOfTimeError):
        limit_of(100.0, time.perf_counter() - 100 * search._SEARCH_SHARE - 1).check()


def test_when_the_time_is_spent_the_best_so_far_is_fitted(monkeypatch):
    checks = iter([None] * 6)

    def check(self):
        if next(checks, "spent") == "spent":
            raise OutOfTimeError

    monkeypatch.setattr(TimeLimit, "check", check)
    model = KernelLogisticRegression(max_time=60, random_state=0).fit(X, Y > 0)
    assert len(model.search_) == 7
    assert model.score(X, Y > 0) > 0.8


def test_a_process_that_chooses_its_kernel_keeps_a_width_for_the_likelihood():
    y = X[:, 0] + 0.1 * Y
    model = nystrom.GaussianProcessRegressor(kernel="auto", n_landmarks=50, random_state=0).fit(X[:600], y[:600])
    assert "Linear" not in repr(model.kernel_)
    assert model.score(X[600:], y[600:]) > 0.9


def test_a_linear_part_is_added_beside_a_searched_width():
    y = np.sin(3 * X[:, 0]) + X @ np.arange(1.0, 7.0)
    model = KernelRidge(kernel="auto", gamma="auto", fit_intercept=True, n_landmarks=100, random_state=0).fit(X, y)
    assert "Linear" in repr(model.kernel_)


def test_a_saved_model_has_the_same_bytes_after_the_same_fit(tmp_path):
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        KernelRidge(kernel="auto", n_landmarks=20, random_state=0).fit(X[:200], Y[:200]).save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_gain_within_a_tie_is_none_though_no_chance():
    losses, none, weight = np.linspace(0.5, 1.5, 400), np.zeros(400, bool), np.ones(400)
    plain = HeldOutLosses(losses, none, weight)
    assert not search._gains(HeldOutLosses(losses - 1e-5, none, weight), plain, 1.5)
    assert search._gains(HeldOutLosses(losses - 1e-2, none, weight), plain, 1.5)


def test_verbose_tells_of_each_new_best(capsys):
    KernelRidge(max_time=10, verbose=1, random_state=0).fit(X[:300], Y[:300])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("search, ")]
    losses = [float(line.split("held-out loss ")[1].split()[0]) for line in lines]
    assert len(losses) > 1
    assert losses == sorted(losses, reverse=True)
