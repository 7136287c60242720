"""Scores summed chunk by chunk are those of scikit-learn on all rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

import nystrom
from nystrom.scoring import make_scores

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(900, 3))
NOISY = ROWS[:, 0] + 0.7 * RNG.normal(size=900)


def judged(model, X, y, chunk=170):
    scores = make_scores(model)
    for start in range(0, len(X), chunk):
        scores.judge(model, X[start : start + chunk], y[start : start + chunk])
    return scores


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(n_classes):
    y = np.array(["a", "b", "c"])[np.digitize(NOISY, [-0.5, 0.9][: n_classes - 1])]
    model = nystrom.KernelLogisticRegression(n_landmarks=40, random_state=0).fit(ROWS, y)
    scores = judged(model, ROWS, y)
    found, guess, p = scores.result(), model.predict(ROWS), model.predict_proba(ROWS)
    assert found["rows"] == 900
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, guess))
    assert found["baseline accuracy"] == pytest.approx(np.unique(y, return_counts=True)[1].max() / 900)
    assert found["balanced accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, guess))
    assert found["log-loss"] == pytest.approx(metrics.log_loss(y, p))
    area = metrics.roc_auc_score(y, p[:, 1] if n_classes == 2 else p, multi_class="ovr")
    assert found["AUC"] == pytest.approx(area, abs=2e-4)
    for label, recall in zip(model.classes_, metrics.recall_score(y, guess, average=None), strict=True):
        assert found["classes"][label]["recall"] == pytest.approx(recall)
        said = metrics.precision_score(y == label, guess == label)
        assert found["classes"][label]["precision"] == pytest.approx(said)
    once = judged(model, ROWS, y, 900).result()
    assert {name: value for name, value in once.items() if name != "classes"} == pytest.approx(
        {name: value for name, value in found.items() if name != "classes"}
    )


def test_scores_without_probabilities_give_an_auc_and_no_log_loss():
    y = np.digitize(NOISY, [-0.5, 0.9])
    model = nystrom.KernelRidgeClassifier(n_landmarks=40, random_state=0).fit(ROWS, y)
    found = judged(model, ROWS, y).result()
    areas = [metrics.roc_auc_score(y == k, model.decision_function(ROWS)[:, k]) for k in range(3)]
    assert found["AUC"] == pytest.approx(np.mean(areas), abs=2e-4)
    assert "log-loss" not in found


def test_the_calibration_error_is_that_of_the_bins():
    class Machine:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.column_stack([1 - X[:, 0], X[:, 0]])

        def predict(self, X):
            return (X[:, 0] > 0.5).astype(int)

    # 100 rows at 0.85, of which 60 are right, and 100 at 0.65, of which 70 are.
    X = np.repeat([[0.85], [0.65]], 100, axis=0)
    y = np.r_[np.ones(60), np.zeros(40), np.ones(70), np.zeros(30)].astype(int)
    found = judged(Machine(), X, y).result()
    assert found["calibration error"] == pytest.approx((0.25 + 0.05) / 2)


def test_a_class_that_is_not_known_counts_as_wrong():
    y = np.digitize(NOISY, [0.0])
    model = nystrom.KernelLogisticRegression(n_landmarks=40, random_state=0).fit(ROWS, y)
    other = y.copy()
    other[:90] = 7
    found = judged(model, ROWS, other).result()
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(other, model.predict(ROWS)))
    assert found["classes"][7]["recall"] == 0
    assert found["log-loss"] == pytest.approx(metrics.log_loss(y[90:], model.predict_proba(ROWS[90:])))


def test_numbers():
    model = nystrom.KernelRidge(n_landmarks=40, random_state=0).fit(ROWS, NOISY + 5)
    found = judged(model, ROWS, NOISY + 5).result()
    assert found["R2"] == pytest.approx(model.score(ROWS, NOISY + 5))
    assert found["baseline error"] == pytest.approx(NOISY.std())
    assert found["root mean square error"] == pytest.approx(
        metrics.root_mean_squared_error(NOISY + 5, model.predict(ROWS))
    )
