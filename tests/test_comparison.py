"""Selectors and sizes compared on the user's rows."""

import json
import shlex

import numpy as np
import pytest

import nystrom
from nystrom import Nystroem, compare, open_rows
from nystrom.commands.main import main
from nystrom.comparison import Compared, ErrorEstimate, recommend
from nystrom.landmarks import SketchedKMeans
from nystrom.plotting import plot_residuals, plot_spectrum


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 4))[rng.integers(12, size=400)] * 2 + rng.normal(size=(400, 4))
    return X, np.sin(X[:, 0])


SMALL = {"selectors": ["auto", "uniform"], "sizes": [20, 60]}


def test_a_fit_with_the_recommendation_confirms_the_figures(rows):
    X, _ = rows
    found = compare(X, **SMALL)
    assert [(row.selector, row.n_landmarks) for row in found.rows] == [
        ("auto", 20),
        ("auto", 60),
        ("uniform", 20),
        ("uniform", 60),
    ]
    best = found.best
    fitted = Nystroem(n_components=None, landmarks=best.selector, n_landmarks=best.n_landmarks, random_state=1).fit(X)
    assert fitted.approximation_error(X).value == pytest.approx(best.error.value, rel=0.25)
    assert f"n_landmarks={best.n_landmarks}" in str(found)
    assert all(cell in str(found) for cell in found.columns)


def test_a_target_is_scored_on_rows_not_seen(rows):
    X, y = rows
    found = compare(X, y, **SMALL)
    assert found.score_name == "R²"
    assert max(row.score for row in found.rows) > 0.8
    noise = np.random.default_rng(0).normal(size=400)
    assert max(row.score for row in compare(X, noise, **SMALL).rows) < 0.2
    classes = compare(X, np.where(y > 0, "up", "down"), **SMALL)
    assert classes.score_name == "accuracy"
    assert 0.7 < classes.best.score <= 1


def test_rows_from_a_file_and_few_of_many_rows(rows, tmp_path):
    X, _ = rows
    np.save(tmp_path / "rows.npy", X)
    found = compare(open_rows(tmp_path / "rows.npy"), most_rows=100, **SMALL)
    assert found.n_rows == 100


def test_the_cheapest_of_those_as_good_as_the_best_is_recommended():
    def row(m, error, seconds, score=None):
        return Compared(
            "auto", m, ErrorEstimate(error, error, error, "fro"), seconds, 1, score, None if score is None else 0.01
        )

    best, reason = recommend([row(50, 0.2, 1.0), row(100, 0.105, 2.0), row(200, 0.1, 4.0)])
    assert best.n_landmarks == 100
    assert "within 10% of the best" in reason
    best, reason = recommend([row(50, 0.2, 1.0, 0.7), row(100, 0.1, 2.0, 0.895), row(200, 0.05, 4.0, 0.9)], "accuracy")
    assert best.n_landmarks == 100
    assert "one standard error" in reason


def test_the_default_wins_ties_and_nothing_that_scores_lower_is_recommended_instead():
    def row(m, error, score, is_default=False):
        return Compared(
            "auto", m, ErrorEstimate(error, error, error, "fro"), 1.0, 1, score, 0.01, is_default=is_default
        )

    default = row(200, 0.05 + 1e-9, 0.9, is_default=True)
    assert recommend([row(200, 0.05, 0.9), default], "accuracy")[0] is default
    assert recommend([row(100, 0.1, 0.895), default], "accuracy")[0] is default
    cheaper = row(100, 0.1, 0.9)
    assert recommend([default, cheaper], "accuracy")[0] is cheaper


@pytest.mark.parametrize(
    ("bad", "match"),
    [({"sizes": []}, "at least one"), ({"sizes": [0]}, "sizes must be"), ({"y": np.ones(3)}, "one entry per row")],
)
def test_wrong_arguments_of_a_comparison_are_named(rows, bad, match):
    with pytest.raises(ValueError, match=match):
        compare(rows[0], **{**SMALL, **bad})


def test_the_command_prints_a_table_a_recommendation_and_a_picture(rows, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    X, y = rows
    path, picture = tmp_path / "rows.csv", tmp_path / "picture.png"
    lines = [",".join(f"{v:.5f}" for v in [*x, t]) for x, t in zip(X, y, strict=True)]
    path.write_text("a,b,c,d,price\n" + "\n".join(lines))
    options = ["--selectors", "auto,uniform", "--sizes", "20,60"]
    assert main(["compare", str(path), "--target", "price", "--picture", str(picture), *options]) == 0
    assert "Use landmarks=" in capsys.readouterr().out
    assert picture.stat().st_size > 1000
    assert main(["compare", str(path), "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == 4
    assert found["best"]["selector"] in ("auto", "uniform")


def test_pictures_show_the_cut_the_best_possible_and_the_lost_rows(rows):
    pytest.importorskip("matplotlib")
    X, y = rows
    fitted = Nystroem(n_components=10, n_landmarks=60, random_state=0).fit(X)
    labels = [line.get_label() for line in plot_spectrum(fitted, best=np.ones(20)).get_lines()]
    assert {"kept", "cut", "best possible"} <= set(labels)
    ax = plot_residuals(fitted, X)
    assert any("of 400 rows lost" in text.get_text() for text in ax.texts)
    found = compare(X, y, **SMALL)
    assert found.plot().get_ylabel() == "relative error"
    assert "R²" in found.plot(score=True).get_ylabel()
    with pytest.raises(ValueError, match="no scores"):
        compare(X, **SMALL).plot(score=True)


@pytest.mark.parametrize("name", ["selectors", "sizes"])
@pytest.mark.parametrize("value", ["auto", 50, None, b"x", np.array(2)], ids=repr)
def test_what_is_no_list_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a list"):
        compare(np.eye(20), **{name: value})


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.where(np.arange(60) == 5, np.nan, 1.0 * np.arange(60)), "no finite value in row 5"),
        (np.array(["a", None] * 30, dtype=object), r"no finite value in row 1 \(None\)"),
        (np.arange(60).astype("datetime64[D]"), "numbers, or classes"),
        (1j * np.arange(60), "numbers, or classes"),
    ],
)
def test_targets_that_cannot_be_scored_are_named(y, match):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match=match):
        compare(X, y, sizes=[5], selectors=["uniform"])


def test_few_rows_a_rare_class_and_a_constant_are_scored_or_refused():
    X = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.raises(ValueError, match="3 rows are too few"):
        compare(X[:3], np.arange(3.0), sizes=[2])
    rare = np.array(["often"] * 59 + ["once"])
    for seed in range(6):
        assert compare(X, rare, sizes=[5], selectors=["uniform"], random_state=seed).best.score == 1.0
    with pytest.raises(ValueError, match=r"y is 0\.3 in every row, which leaves nothing to score"):
        compare(X, np.full(60, 0.3), sizes=[5], selectors=["uniform"])


def test_errors_within_one_power_of_ten_have_labels_on_their_axis(rows):
    ax = compare(rows[0], **SMALL).plot()
    ax.set_ylim(0.04, 0.24)
    ax.figure.canvas.draw()
    shown = {label.get_text() for label in ax.yaxis.get_ticklabels(which="both")}
    assert {"0.05", "0.1", "0.2"} <= shown
    assert [label.get_text() for label in ax.xaxis.get_ticklabels(which="both")] == ["20", "60"]


def test_selector_objects_are_told_apart_and_recommended_as_they_are_written(rows):
    X, _ = rows
    found = compare(X, selectors=[SketchedKMeans(sketch_dim=2), SketchedKMeans(sketch_dim=3)], sizes=[20])
    assert [row.selector for row in found.rows] == ["SketchedKMeans(sketch_dim=2)", "SketchedKMeans(sketch_dim=3)"]
    assert f"Use landmarks={found.best.selector}, n_landmarks=20" in found.advice
    given = compare(X, selectors=[X[:20]], sizes=range(20, 21))
    assert f"Use landmarks=array of shape (20, {X.shape[1]})," in given.advice


def test_a_kernel_matrix_is_scored_on_rows_that_are_left_out_of_its_columns_too():
    X = np.random.default_rng(7).normal(size=(120, 2))
    y = X[:, 0]
    gamma = 0.3
    K = np.exp(-gamma * np.square(X[:, None] - X).sum(axis=2))
    by_matrix = compare(K, y, kernel="precomputed", selectors=["rpcholesky"], sizes=[30])
    by_rows = compare(X, y, gamma=gamma, selectors=["rpcholesky"], sizes=[30])
    assert by_matrix.best.score == pytest.approx(by_rows.best.score, abs=0.02)
    assert by_matrix.best.score > 0.9
    assert compare(K, y, kernel="precomputed", selectors=["uniform"], sizes=[30], most_rows=80).n_rows == 80


def test_small_errors_keep_their_digits_and_all_rows_are_the_most_landmarks():
    X = np.random.default_rng(8).normal(size=(40, 2))
    found = compare(X, gamma=0.01, selectors=["uniform"], sizes=[12])
    assert 0 < found.best.error.value < 1e-3
    assert f"error of {found.best.error.value:.1e}" in found.advice
    assert "more than were tried" not in compare(X, X[:, 0], selectors=["uniform"], sizes=[40]).advice


@pytest.mark.parametrize("target", ["numbers", "classes"])
def test_the_recommended_command_and_line_give_the_score_that_was_shown(target, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 4))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=500)
    shown = y if target == "numbers" else np.where(y > 0.2, "up", "down")
    path, out = tmp_path / "rows.csv", tmp_path / "model"
    lines = [",".join([*(f"{v:.5f}" for v in x), str(t)]) for x, t in zip(X, shown, strict=True)]
    path.write_text("a,b,c,d,y\n" + "\n".join(lines))
    options = ["--selectors", "auto,uniform", "--sizes", "10,40", "--drop", "d", "--json"]
    assert main(["compare", str(path), "--target", "y", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [(row["metric"], row["is_default"]) for row in found["rows"]]
    assert names[0] == ("auto", True)
    assert {metric for metric, _ in names} == {None, "auto", "diagonal", "full"}
    best = found["best"]
    assert best["score"] == pytest.approx(max(row["score"] for row in found["rows"]), abs=0.05)
    words = shlex.split(found["command"])
    assert words[:2] == ["nystrom", "fit"]
    words[words.index("MODEL")] = str(out)
    assert main([*words[1:], "--json", "--quiet"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["score"]["value"] == pytest.approx(best["score"], abs=1e-9)
    line = eval(found["python"], {name: getattr(nystrom, name) for name in ("KernelRidge", "KernelRidgeClassifier")})
    saved = nystrom.load(out)[1]
    assert (line.metric, line.landmarks, line.alpha) == (saved.metric, saved.landmarks, saved.alpha)


def test_larger_sizes_are_tried_while_they_help_and_the_default_is_never_beaten_by_what_is_recommended():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(1500, 2))
    found = compare(X, np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1]), gamma=8.0, selectors=["auto"], sizes=[20, 40])
    sizes = [row.n_landmarks for row in found.rows if not row.is_default]
    assert sizes[:3] == [20, 40, 80]
    assert max(sizes) > 150
    default = next(row for row in found.rows if row.is_default)
    assert found.best.score >= default.score - default.noise


def test_a_target_that_never_changes_is_named():
    with pytest.raises(ValueError, match=r"y is 1\.0 in every row, which leaves nothing to score"):
        compare(np.random.default_rng(0).normal(size=(60, 2)), np.full(60, 1.0))


def test_after_its_time_no_fit_begins_and_the_reason_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystrom.engine.progress._LEAST_SECONDS", 0.0)
    X = np.random.default_rng(0).normal(size=(300, 2))
    found = compare(X, X[:, 0] ** 2, max_time=1e-9, verbose=1)
    assert [row.is_default for row in found.rows] == [True, False]
    assert "fits were left out to end in time" in found.reason
    assert "auto, metric diagonal: 240 of 240 rows" in capsys.readouterr().err
