"""The notebook shows what a fit found, above scikit-learn's diagram, and reads no data for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn

import nystrom
from nystrom.estimators.parameters import summary

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 3))
MACHINES: list[Any] = [
    nystrom.Nystroem(n_components=10),
    nystrom.KernelPCA(n_components=3),
    nystrom.KernelKMeans(n_clusters=2),
    nystrom.SpectralClustering(n_clusters=2, n_init=1),
    nystrom.KernelRidge(alpha="auto", n_landmarks=30),
    nystrom.KernelRidge(alpha=1.0, solver="cg", n_landmarks=30),
    nystrom.KernelRidgeClassifier(n_landmarks=30),
    nystrom.KernelLogisticRegression(C=1.0, n_landmarks=30),
    nystrom.GaussianProcessRegressor(n_landmarks=30),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_fitted_machine_shows_its_fit(machine: Any) -> None:
    before = machine._repr_html_()
    assert "nystrom-summary" not in before
    machine.set_params(random_state=0).fit(X, (X[:, 0] > 0).astype(int))
    shown = dict(summary(machine))
    assert shown["landmarks"].startswith(f"{len(machine.landmarks_)} of 3 columns")
    assert "Gaussian" in shown["kernel"]
    assert int(shown["passes"]) >= 1
    assert "landmarks" in shown["seconds"]
    assert ("error" in shown) == hasattr(machine, "certificate_")
    text = machine._repr_html_()
    assert text.count("nystrom-summary") == 1
    assert "sk-" in text  # scikit-learn's own is there, too
    bundle = machine._repr_mimebundle_()
    assert bundle["text/html"].count("nystrom-summary") == 1
    assert bundle["text/plain"] == repr(machine)


def test_the_plain_display_stays_plain() -> None:
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=30).fit(X, X[:, 0])
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_showing_a_model_needs_no_data(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    rows = nystrom.open_rows(tmp_path / "X.npy", target=2)
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=30, random_state=0).fit(rows)
    (tmp_path / "X.npy").unlink()
    assert "nystrom-summary" in model._repr_html_()
    model.save(tmp_path / "m")
    loaded = nystrom.load(tmp_path / "m")
    shown = dict(summary(loaded))
    assert shown["landmarks"] == "30 of 2 columns"
    assert "seconds" not in shown


def test_text_in_a_summary_is_no_markup() -> None:
    model = nystrom.KernelRidge(alpha=1.0, kernel=lambda a, b: a @ b.T, n_landmarks=5).fit(X, X[:, 0])
    assert "<lambda>" not in model._repr_html_().partition("</table>")[0]


def test_a_quality_is_shown_where_there_is_one() -> None:
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=30).fit(X, X[:, 0])
    assert dict(summary(model))["quality"] == model.quality_
    assert "of the kernel explained" in model.quality_
