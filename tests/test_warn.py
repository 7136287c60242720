"""Warnings come from the caller's line, and are silenced for one thread alone."""

import threading
import warnings

import pytest

from nystrom.exceptions import AccuracyWarning, FewerLandmarksWarning
from nystrom.warn import silenced, warn_caller


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
