"""Run scikit-learn's own tests against this library's classes, and count passes, expected and unexpected failures.

    python tools/scikit_suites.py            # all classes
    python tools/scikit_suites.py SVC SVR    # some

The tests are those of the installed scikit-learn. Each class is replaced by ours before the test file is
imported; tests that do not mention the class are left out.
``scikit_suites.json`` lists the tests that fail on purpose, by reason. The script ends with an error if any other test
fails, or if one of those passes.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Suite(NamedTuple):
    """The test files of a class, the module that they import it from, and its replacement."""

    tests: str
    package: str
    ours: str


SUITES = {
    "KernelRidge": Suite("sklearn.tests.test_kernel_ridge", "sklearn.kernel_ridge", "KernelRidge"),
    "KernelPCA": Suite("sklearn.decomposition.tests.test_kernel_pca", "sklearn.decomposition", "KernelPCA"),
    "Nystroem": Suite("sklearn.tests.test_kernel_approximation", "sklearn.kernel_approximation", "Nystroem"),
    "GaussianProcessRegressor": Suite(
        "sklearn.gaussian_process.tests.test_gpr", "sklearn.gaussian_process", "GaussianProcessRegressor"
    ),
    "SVC": Suite("sklearn.svm.tests.test_svm", "sklearn.svm", "KernelSVC"),
    "SVR": Suite("sklearn.svm.tests.test_svm", "sklearn.svm", "KernelSVR"),
    "SpectralClustering": Suite("sklearn.cluster.tests.test_spectral", "sklearn.cluster", "SpectralClustering"),
}
REASONS = Path(__file__).with_name("scikit_suites.json")


class Recorder:
    """Keeps the tests that mention a class, and records their outcomes."""

    def __init__(self, name: str, restore: Callable[[], None]) -> None:
        self.word = re.compile(rf"\b{name}\b")
        self.restore = restore
        self.ended: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self._mentions(item)]

    def pytest_collection_finish(self) -> None:
        self.restore()

    def _mentions(self, item: Any) -> bool:
        function = inspect.unwrap(item.function)
        given = getattr(getattr(item, "callspec", None), "params", {})
        return bool(self.word.search(inspect.getsource(function)) or self.word.search(repr(given)))

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.split("::", 1)[1]
        if report.failed:
            self.ended[name] = str(report.longrepr).strip().splitlines()[-1] if report.longrepr else "failed"
        elif report.when == "call" and report.passed:
            self.ended.setdefault(name, "passed")


def run_here(name: str) -> dict[str, str]:
    """Return the outcome of each test of a class, with our class in its place."""
    import nystrom

    suite = SUITES[name]
    package = importlib.import_module(suite.package)
    theirs = getattr(package, name)
    setattr(package, name, getattr(nystrom, suite.ours))
    # Our Gaussian process imports theirs in a fit; its test file has imported ours by then.
    restored = theirs if name == "GaussianProcessRegressor" else getattr(nystrom, suite.ours)
    recorder = Recorder(name, lambda: setattr(package, name, restored))
    options = ["--pyargs", suite.tests, "-c", os.devnull, "-q", "-p", "no:cacheprovider", "--no-header", "-W", "ignore"]
    pytest.main(options, [recorder])
    return recorder.ended


def _is_of(test: str, listed: str) -> bool:
    """Whether a test is listed, by its name or by its name and first parameter."""
    return test.partition("[")[0] == listed or ("[" in listed and test.startswith(listed))


def purposes(name: str) -> dict[str, str]:
    """Return the reason of each test of a class that fails on purpose."""
    stored = json.loads(REASONS.read_text()).get(name, {})
    return {test: reason for reason, tests in stored.items() for test in tests}


def judge(name: str) -> bool:
    """Run the tests of a class in its own process, print the counts, and return whether all results are as expected."""
    command = [sys.executable, __file__, "--here", name]
    done = subprocess.run(command, capture_output=True, text=True)
    ended = json.loads(done.stdout.splitlines()[-1])
    reasons = purposes(name)
    failed = {test: line for test, line in ended.items() if line != "passed"}
    meant = {test: next((each for each in reasons if _is_of(test, each)), None) for test in failed}
    others = {test: line for test, line in failed.items() if meant[test] is None}
    stale = set(reasons) - set(meant.values())
    passed, purpose = len(ended) - len(failed), len(failed) - len(others)
    print(f"{name}: {passed} passed, {purpose} failed on purpose, {len(others)} failed otherwise", flush=True)
    for test, line in others.items():
        print(f"    {test}: {line[:200]}")
    for test in sorted(stale):
        print(f"    {test}: has a reason to fail, and does not")
    return bool(ended) and not others and not stale


def main() -> None:
    """Test the named classes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classes", nargs="*", choices=[[], *SUITES], help="default: all")
    parser.add_argument("--here", choices=SUITES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(run_here(given.here)))
        return
    fine = [judge(name) for name in given.classes or SUITES]
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
