"""Warnings come from the caller's line, and are silenced for one thread alone."""

import threading
import warnings

import numpy as np
import pytest

import nystrom
from nystrom.engine import LocalEngine, Sums
from nystrom.exceptions import AccuracyWarning, FewerLandmarksWarning, silenced, warn_caller
from nystrom.rows import as_blocks


def test_a_warning_comes_from_the_line_that_called():
    with pytest.warns(AccuracyWarning, match="digits were lost") as caught:
        warn_caller("digits were lost", AccuracyWarning)
    assert [warning.filename for warning in caught] == [__file__]


def test_only_the_named_categories_are_silenced_and_only_meanwhile():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with silenced(AccuracyWarning):
            warn_caller("not said", AccuracyWarning)
            warn_caller("said within", FewerLandmarksWarning)
            with silenced(FewerLandmarksWarning):
                warn_caller("not said either", AccuracyWarning)
                warn_caller("nor this", FewerLandmarksWarning)
        warn_caller("said after", AccuracyWarning)
    assert [str(warning.message) for warning in caught] == ["said within", "said after"]


def test_an_error_ends_the_silence():
    with pytest.raises(ZeroDivisionError, match="division"), silenced(AccuracyWarning):
        1 / 0  # noqa: B018
    with pytest.warns(AccuracyWarning, match="heard"):
        warn_caller("heard", AccuracyWarning)


def test_other_threads_are_not_silenced():
    heard = []

    def elsewhere():
        try:
            warn_caller("from another thread", AccuracyWarning)
        except AccuracyWarning as warning:  # warnings are errors in these tests
            heard.append(str(warning))

    with silenced(AccuracyWarning):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert heard == ["from another thread"]


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize(
    "machine", ["Nystroem", "KernelRidge", "GaussianProcessRegressor", "KernelPCA", "KernelKMeans"]
)
def test_results_do_not_depend_on_what_numpy_does_about_overflow_and_underflow(machine, n_jobs):
    rng = np.random.default_rng(0)
    # Far clusters: their kernel values underflow. Several blocks, so that threads do part of it.
    X = rng.normal(size=(5_000, 3)) * 1e3
    y = X[:, 0]

    def results():
        sizes = {"n_components": 5} if machine in ("Nystroem", "KernelPCA", "KernelKMeans") else {}
        model = getattr(nystrom, machine)(n_landmarks=20, gamma=1e-4, random_state=0, n_jobs=n_jobs, **sizes)
        model.fit(as_blocks(X, block_rows=500), *(() if sizes else (y,)))
        return model.predict(X) if hasattr(model, "predict") else model.transform(X)

    expected = results()
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(results(), expected)


def test_no_warning_of_numpy_leaves_a_thread_of_a_pass():
    heard = []

    def step(block):
        heard.append(np.float64(1e308) * np.float64(1e308))
        return Sums((np.zeros(1),))

    with np.errstate(all="raise"), np.errstate(all="ignore"):
        LocalEngine(2).fold(as_blocks(np.ones((1_000, 2)), block_rows=100), step, label="overflow")
    assert heard == [np.inf] * 10
