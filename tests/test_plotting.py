"""Pictures: what they show, what they refuse, and that a file is written whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import plotting
from nystrom.errors import ErrorEstimate
from nystrom.exceptions import MissingDependencyError

pytest.importorskip("matplotlib")


@pytest.fixture
def ax() -> Any:
    return plotting.new_figure(4, 3)[1][0]


@pytest.fixture
def ridge() -> SimpleNamespace:
    return SimpleNamespace(
        alphas_=np.array([1.0, 0.01, 0.1]),
        alpha_scores_=np.array([3.0, 2.0, 1.0]),
        alpha_=0.1,
        selection="gcv",
    )


def lines(ax: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()}


def test_spectrum_shows_the_eigenvalues_on_a_logarithmic_axis(ax: Any) -> None:
    estimator = SimpleNamespace(eigenvalues_=np.array([9.0, 3.0, 1e-8]))
    assert plotting.plot_spectrum(estimator, ax=ax) is ax
    (curve,) = ax.get_lines()
    assert list(curve.get_xdata()) == [1, 2, 3]
    assert list(curve.get_ydata()) == [9.0, 3.0, 1e-8]
    assert ax.get_yscale() == "log"


def test_errors_are_one_line_a_method_at_the_mean_of_its_repeats(ax: Any) -> None:
    rows = [
        {"selector": name, "n_landmarks": m, "error": error}
        for name, m, error in [("auto", 20, 0.2), ("auto", 10, 0.5), ("auto", 10, 0.3), ("uniform", 10, 0.9)]
    ]
    plotting.plot_error(rows, best=0.1, ax=ax)
    shown = lines(ax)
    assert shown["auto"] == ([10, 20], pytest.approx([0.4, 0.2]))
    assert shown["uniform"] == ([10], [0.9])
    assert shown["best possible"][1] == [0.1, 0.1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["auto", "uniform", "best possible"]
    assert ax.get_xlabel() == "number of landmarks"


def test_methods_differ_in_colour_and_in_marker(ax: Any) -> None:
    rows = [{"selector": str(i), "n_landmarks": 10, "error": 0.1 * i} for i in range(5)]
    plotting.plot_error(rows, ax=ax)
    drawn = ax.get_lines()
    assert len({line.get_color() for line in drawn}) == 5
    assert len({line.get_marker() for line in drawn}) == 5


def test_no_rows_are_refused(ax: Any) -> None:
    with pytest.raises(ValueError, match="rows must hold at least one result"):
        plotting.plot_error([], ax=ax)


def test_alpha_path_is_sorted_and_marks_the_alpha_taken(ax: Any, ridge: SimpleNamespace) -> None:
    plotting.plot_alpha_path(ridge, ax=ax)
    path, chosen = ax.get_lines()
    assert list(path.get_xdata()) == [0.01, 0.1, 1.0]
    assert list(path.get_ydata()) == [2.0, 1.0, 3.0]
    assert (list(chosen.get_xdata()), list(chosen.get_ydata())) == ([0.1], [1.0])
    assert ax.get_ylabel() == "gcv score"


def test_a_search_shows_what_was_tried_and_the_best_so_far(ax: Any) -> None:
    tried = [(0.1, "a", 1.0, 0.1), (0.2, "b", 2.0, 0.1), (0.4, "c", 0.5, 0.1)]
    plotting.plot_search(SimpleNamespace(search_=tried), ax=ax)
    points, best = ax.get_lines()[0], ax.get_lines()[-1]
    assert list(points.get_ydata()) == [1.0, 2.0, 0.5]
    assert list(best.get_ydata()) == [1.0, 1.0, 0.5]


METRIC = SimpleNamespace(
    feature_importances_=np.array([0.1, 0.7, 0.2]),
    metric_=np.array([[1.0, 0.5, 0.0], [0.5, 7.0, -1.0], [0.0, -1.0, 2.0]]),
)


def test_importances_are_bars_with_the_largest_first(ax: Any) -> None:
    plotting.plot_metric(METRIC, names=["a", "b", "c"], most=2, ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [0.7, 0.2]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "c"]


def test_the_metric_is_drawn_as_a_matrix_of_the_same_columns(ax: Any) -> None:
    plotting.plot_metric(METRIC, matrix=True, most=2, ax=ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), [[7.0, -1.0], [-1.0, 2.0]])
    scales = SimpleNamespace(feature_importances_=np.array([0.2, 0.8]), metric_=np.array([1.0, 2.0]))
    figure, (other,) = plotting.new_figure(2, 2)
    plotting.plot_metric(scales, matrix=True, ax=other)
    np.testing.assert_array_equal(other.images[0].get_array(), [[4.0, 0.0], [0.0, 1.0]])
    assert len(figure.axes) == 2
    with pytest.raises(ValueError, match="names must have one name for each of the 3 columns"):
        plotting.plot_metric(METRIC, names=["a"], ax=ax)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_rows_and_landmarks_of_two_columns_are_drawn_as_they_are(container: Any, ax: Any) -> None:
    X, Z = np.arange(8.0).reshape(4, 2), np.array([[1.0, 2.0]])
    plotting.plot_landmarks(SimpleNamespace(landmarks_=container(Z)), container(X), ax=ax)
    rows, landmarks = ax.collections
    np.testing.assert_array_equal(rows.get_offsets(), X)
    np.testing.assert_array_equal(landmarks.get_offsets(), Z)


def test_rows_of_more_columns_are_drawn_by_two_features(ax: Any) -> None:
    X = np.arange(12.0).reshape(4, 3)
    estimator = SimpleNamespace(landmarks_=X[:2], transform=lambda rows: 10 * rows)
    plotting.plot_landmarks(estimator, X, components=(2, 0), ax=ax)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), 10 * X[:, [2, 0]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 3", "feature 1")


@pytest.mark.parametrize("n_classes", [2, 10])
def test_every_class_has_its_colour(n_classes: int, ax: Any) -> None:
    y = np.arange(40) % n_classes
    X = np.random.default_rng(0).standard_normal((40, 2))
    plotting.plot_landmarks(SimpleNamespace(landmarks_=X[:3]), X, y, ax=ax)
    *classes, _ = ax.collections
    assert len({tuple(points.get_facecolor()[0]) for points in classes}) == n_classes
    assert sum(len(points.get_offsets()) for points in classes) == 40


def test_rows_that_cannot_be_brought_to_the_plane_are_refused(ax: Any) -> None:
    X = np.ones((4, 3))
    with pytest.raises(ValueError, match="X has 3 columns and SimpleNamespace has no transform"):
        plotting.plot_landmarks(SimpleNamespace(landmarks_=X), X, ax=ax)
    with pytest.raises(ValueError, match="components must be below the 3 features"):
        plotting.plot_landmarks(SimpleNamespace(landmarks_=X, transform=lambda rows: rows), X, components=(0, 3), ax=ax)


@pytest.mark.parametrize("draw", [plotting.plot_spectrum, plotting.plot_alpha_path, plotting.plot_metric])
def test_an_estimator_without_what_the_picture_needs_is_refused(draw: Any, ax: Any) -> None:
    with pytest.raises(ValueError, match=r"SimpleNamespace has no .*_, .* fit it first"):
        draw(SimpleNamespace(), ax=ax)


def test_without_matplotlib_the_install_command_is_given(
    ridge: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingDependencyError, match=r"pip install matplotlib"):
        plotting.plot_alpha_path(ridge)


def test_without_axes_a_new_figure_is_made(ridge: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    ax = plotting.plot_alpha_path(ridge)
    assert ax.figure.axes == [ax]
    pyplot.close(ax.figure)


@pytest.mark.parametrize(("name", "first"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_suffix_decides_the_format(name: str, first: bytes, tmp_path: Path) -> None:
    figure, _ = plotting.new_figure(2, 2)
    assert plotting.save_figure(figure, str(tmp_path / name)) == tmp_path / name
    assert (tmp_path / name).read_bytes().startswith(first)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_picture_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"the old one")

    def savefig(target: Path, **options: Any) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        plotting.save_figure(SimpleNamespace(savefig=savefig), path)
    assert path.read_bytes() == b"the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_the_band_of_a_gaussian_process_holds_the_rows() -> None:
    from nystrom import GaussianProcessRegressor

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, size=(300, 1))
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=300)
    model = GaussianProcessRegressor(n_landmarks=30, random_state=0).fit(X, y)
    _, (ax,) = plotting.new_figure(3, 2)
    assert model.plot(X, y, ax=ax) is ax
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    width = corners[:, 1].max() - corners[:, 1].min()
    # The function spans about 2, and the band adds 4 deviations of 0.2.
    assert 2.2 < width < 4
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert labels == {"mean", "± 2 deviations of a new target", "rows"}
    with pytest.raises(ValueError, match="one column of input"):
        GaussianProcessRegressor(n_landmarks=5).fit(np.hstack([X, X]), y).plot()


def test_errors_with_intervals_are_drawn_with_them(ax: Any) -> None:
    rows = [
        {"selector": "auto", "n_landmarks": m, "error": ErrorEstimate(1 / m, 0.9 / m, 1.2 / m, "fro", 0.95)}
        for m in (10, 20)
    ]
    plotting.plot_error(rows, ax=ax)
    (band,) = ax.collections
    ends = band.get_paths()[0].vertices[:, 1]
    assert ends.min() == pytest.approx(0.9 / 20)
    assert ends.max() == pytest.approx(1.2 / 10)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1 / 10, 1 / 20])
