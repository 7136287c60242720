"""Callbacks of scikit-learn: told of the stages of a fit, and of its result."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nystrom

callback = pytest.importorskip("sklearn.callback")

X = np.random.default_rng(0).normal(size=(300, 3))
Y = X[:, 0] + X[:, 1] ** 2


class Listed:
    """Lists what it is told."""

    max_propagation_depth = 1

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def setup(self, estimator, context):
        self.said.append(("setup", context.task_name))

    def teardown(self, estimator, context):
        self.said.append(("teardown", context.task_name))

    def on_fit_task_begin(self, estimator, context):
        self.said.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.said.append(("end", context.task_name))


@pytest.mark.parametrize("name", ["KernelRidge", "KernelSVR", "GaussianProcessRegressor", "Nystroem", "KernelPCA"])
def test_a_fit_tells_of_its_stages(name):
    listed = Listed()
    machine = getattr(nystrom, name)(n_landmarks=30, random_state=0)
    plain = clone(machine).fit(X, Y)
    machine.set_callbacks(listed)
    machine.fit(X, Y)
    assert listed.said[:2] == [("setup", "fit"), ("begin", "fit")]
    assert listed.said[-2:] == [("end", "fit"), ("teardown", "fit")]
    stages = listed.said[2:-2]
    assert ("begin", "landmarks") in stages
    assert [stage for what, stage in stages if what == "begin"] == [stage for what, stage in stages if what == "end"]
    assert np.array_equal(machine.landmarks_, plain.landmarks_)


def test_a_scoring_monitor_has_the_score_of_the_fit():
    monitor = callback.ScoringMonitor(scoring="r2")
    machine = nystrom.KernelRidge(n_landmarks=30, random_state=0).set_callbacks(monitor).fit(X, Y)
    (entry,) = monitor.get_logs().data
    assert entry["r2"] == pytest.approx(machine.score(X, Y))


def test_callbacks_of_a_pipeline_reach_its_machine():
    listed = Listed()
    make_pipeline(StandardScaler(), nystrom.KernelRidge(n_landmarks=30)).set_callbacks(listed).fit(X, Y)
    assert ("begin", "landmarks") in listed.said


def test_a_progress_bar_ends_with_the_fit_even_if_it_fails(capsys):
    pytest.importorskip("rich")
    bar = callback.ProgressBar()
    machine = nystrom.KernelRidge(n_landmarks=30, random_state=0).set_callbacks(bar).fit(X, Y)
    assert "fit" in capsys.readouterr().out
    with pytest.raises(ValueError, match="NaN"):
        machine.fit(np.full((20, 2), np.nan), np.ones(20))
    assert not hasattr(machine, "_callback_fit_ctx")


def test_a_machine_with_callbacks_is_saved_without_them(tmp_path):
    machine = nystrom.KernelRidge(n_landmarks=30, random_state=0).set_callbacks(Listed()).fit(X, Y)
    nystrom.save(machine, tmp_path / "m.nystrom")
    assert np.array_equal(nystrom.load(tmp_path / "m.nystrom").predict(X), machine.predict(X))
