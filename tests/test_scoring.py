"""Scores summed chunk by chunk are those of scikit-learn on all rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

import nystrom
from nystrom.scoring import hold_out, judge, make_scores

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
    model = nystrom.KernelLogisticRegression(C=1.0, n_landmarks=40, random_state=0).fit(ROWS, y)
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
    class ScoresAlone:
        def __init__(self, fitted):
            self.classes_, self.predict, self.decision_function = (
                fitted.classes_,
                fitted.predict,
                fitted.decision_function,
            )

    y = np.digitize(NOISY, [-0.5, 0.9])
    model = ScoresAlone(nystrom.KernelRidgeClassifier(n_landmarks=40, random_state=0).fit(ROWS, y))
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
    model = nystrom.KernelLogisticRegression(C=1.0, n_landmarks=40, random_state=0).fit(ROWS, y)
    other = y.copy()
    other[:90] = 7
    found = judged(model, ROWS, other).result()
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(other, model.predict(ROWS)))
    assert found["classes"][7]["recall"] == 0
    assert found["log-loss"] == pytest.approx(metrics.log_loss(y[90:], model.predict_proba(ROWS[90:])))


def test_numbers():
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=40, random_state=0).fit(ROWS, NOISY + 5)
    found = judged(model, ROWS, NOISY + 5).result()
    assert found["R2"] == pytest.approx(model.score(ROWS, NOISY + 5))
    assert found["baseline error"] == pytest.approx(NOISY.std())
    assert found["root mean square error"] == pytest.approx(
        metrics.root_mean_squared_error(NOISY + 5, model.predict(ROWS))
    )


@pytest.mark.parametrize("classes", [False, True])
def test_intervals_of_held_out_scores_cover_the_score_of_many_rows(classes: bool) -> None:
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        truth = rng.normal(size=n)
        guess = 0.8 * truth + 0.5 * rng.normal(size=n)
        return (truth > 1, guess > 1) if classes else (truth, guess)

    expected = judge(*draw(1_000_000), classes=classes).value
    found = [judge(*draw(200), classes=classes) for _ in range(400)]
    inside = np.mean([each.low <= expected <= each.high for each in found])
    assert 0.91 < inside < 0.99
    assert found[0].value == pytest.approx(1 - found[0].losses.mean())


def test_the_score_of_a_constant_is_that_of_scikit_learn() -> None:
    for guess, value in ((np.ones(5), 1.0), (np.zeros(5), 0.0)):
        found = judge(np.ones(5), guess, classes=False)
        assert (found.value, found.low, found.high) == (value, value, value)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_held_out_rows_are_the_same_share_of_each_class_and_never_a_whole_class(share: float) -> None:
    codes = np.random.default_rng(1).permutation(np.repeat([0, 1, 2, 3], [1, 2, 40, 957]))
    held = hold_out(codes, share, np.random.default_rng(2))
    for label in range(4):
        of_class = codes == label
        assert abs(held[of_class].sum() - share * of_class.sum()) < 1
        assert not held[of_class].all()
