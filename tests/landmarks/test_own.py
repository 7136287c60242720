"""Selectors and kernels of the user's own: chosen by, fitted, saved and loaded."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import nystrom
from nystrom.exceptions import ModelFileError
from nystrom.landmarks import select_landmarks

X = np.random.default_rng(0).normal(size=(300, 3))


def first_rows(rows, m, kernel, rng):
    assert kernel(rows.take(np.arange(2)), rows.take(np.arange(2))).shape == (2, 2)
    return np.arange(m)


@dataclass
class Shifted:
    """Points that are no rows."""

    by: float = 1.0

    def select(self, rows, m, kernel, rng):
        return rows.take(rng.choice(rows.shape[0], m, replace=False)) + self.by


def test_a_function_and_an_object_choose_landmarks(tmp_path: Path) -> None:
    found = select_landmarks(X, 7, method=first_rows)
    np.testing.assert_array_equal(found.indices, np.arange(7))
    np.testing.assert_array_equal(found.points, X[:7])
    model = clone(nystrom.Nystroem(n_components=10, n_landmarks=20, landmarks=Shifted(3.0), random_state=0)).fit(X)
    assert model.landmarks_.shape == (20, 3)
    assert model.landmarks_.mean() > 2
    np.save(tmp_path / "rows.npy", X)
    again = nystrom.Nystroem(n_components=10, n_landmarks=20, landmarks=Shifted(3.0), random_state=0)
    np.testing.assert_array_equal(again.fit(nystrom.open_rows(tmp_path / "rows.npy")).landmarks_, model.landmarks_)


def test_an_own_selector_sees_the_rows_in_the_metric_and_gives_landmarks_outside_of_it() -> None:
    scales = np.array([1.0, 10.0, 0.1])
    model = nystrom.KernelRidge(metric=scales, landmarks=first_rows, n_landmarks=30, alpha=0.1).fit(X, X[:, 0])
    np.testing.assert_allclose(model.landmarks_, X[:30])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rows, m, kernel, rng: np.arange(m + 1),
        lambda rows, m, kernel, rng: np.zeros((m, 2)),
        lambda rows, m, kernel, rng: np.array([]),
        lambda rows, m, kernel, rng: ["a"],
        lambda rows, m, kernel, rng: np.array([10**6]),
    ],
)
def test_what_is_neither_rows_nor_points_is_named(wrong) -> None:
    with pytest.raises(ValueError, match="landmarks"):
        select_landmarks(X, 5, method=wrong)
    with pytest.raises(ValueError, match=r"or a function select\(rows, m, kernel, rng\)"):
        select_landmarks(X, 5, method=3)  # type: ignore[arg-type]


OWN = """
import numpy as np
from dataclasses import dataclass
from nystrom.kernels import Gaussian

@dataclass(frozen=True)
class Twice(Gaussian):
    times: float = 2.0

def kernel(A, B):
    return np.exp(-((A[:, None, :] - B[None]) ** 2).sum(axis=2))

@dataclass
class First:
    start: int = 0
    def select(self, rows, m, kernel, rng):
        return np.arange(self.start, self.start + m)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("own_module")
    sys.modules.pop("own_module", None)


def test_own_kernels_and_selectors_are_saved_by_where_they_are_imported_from(own, tmp_path: Path) -> None:
    path = tmp_path / "model"
    for kernel in (own.kernel, own.Twice(gamma=0.5)):
        model = nystrom.KernelRidge(kernel=kernel, landmarks=own.First(start=5), n_landmarks=20, alpha=0.1)
        model.fit(X, X[:, 0])
        with pytest.raises(TypeError, match="imports=True"):
            nystrom.save(model, path)
        nystrom.save(model, path, imports=True)
        sys.modules.pop("own_module")  # as in a new process
        with pytest.raises(ModelFileError, match="runs the code of that module"):
            nystrom.load(path)
        assert "own_module" not in sys.modules
        with pytest.warns(UserWarning, match=r"imports own_module:\w+: its code runs"):
            loaded = nystrom.load(path, imports=True)
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        assert loaded.landmarks.start == 5
        sys.modules["own_module"] = own


def test_what_cannot_be_imported_is_not_saved(tmp_path: Path) -> None:
    model = nystrom.KernelRidge(kernel=lambda A, B: A @ B.T, n_landmarks=10, alpha=0.1).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="cannot be imported as"):
        nystrom.save(model, tmp_path / "model", imports=True)


def test_a_module_that_is_gone_is_named(own, tmp_path: Path) -> None:
    path = tmp_path / "model"
    nystrom.save(nystrom.Nystroem(n_components=5, n_landmarks=10, kernel=own.kernel).fit(X), path, imports=True)
    sys.modules.pop("own_module")
    (tmp_path / "own_module.py").unlink()
    with (
        pytest.warns(UserWarning, match="its code runs"),
        pytest.raises(ModelFileError, match="own_module:kernel cannot be imported here"),
    ):
        nystrom.load(path, imports=True)
