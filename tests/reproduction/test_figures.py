"""Figures come from rows alone."""

import pytest

from reproduction.catalogue import CATALOGUE, FIGURE_1
from reproduction.figures import as_svg, draw, equal_time, save
from reproduction.records import RowFile
from reproduction.runner import RunLimits, run
from reproduction.summary import Point, Summary

pytest.importorskip("matplotlib")


@pytest.fixture
def rows(tiny, tmp_path):
    file = RowFile(tmp_path / "rows.jsonl")
    run((tiny,), file, RunLimits(2))
    return file.rows


def test_both_formats_are_written_without_the_data(tiny, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("reproduction.prepare.load", lambda *_a, **_k: pytest.fail("data was read"))
    files = save(tiny, rows, tmp_path / "figures")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    text = files["svg"].read_text(encoding="utf-8")
    assert "column norm" in text
    assert "SVD (best possible)" in text


def test_the_same_rows_give_the_same_svg_and_another_salt_other_names(tiny, rows):
    first, second = (as_svg(draw(tiny, rows), "a") for _ in range(2))
    assert first == second
    assert first != as_svg(draw(tiny, rows), "b")


def test_a_stand_in_is_named_in_the_title(tiny, rows):
    marked = [{**row, "stand_in": True, "dataset": "other"} for row in rows]
    assert "STAND-IN: other for digits" in as_svg(draw(tiny, marked), "a")
    assert "STAND-IN" not in as_svg(draw(tiny, rows), "a")


def test_an_experiment_without_rows_has_no_figure(tmp_path):
    for experiment in CATALOGUE:
        assert draw(experiment, []) is None
    assert save(FIGURE_1, [], tmp_path) == {}


def test_points_are_means_and_sample_deviations_over_trials(tiny, rows):
    study = tiny.studies[0]
    made = [{**row, "error": 0.1 + 0.2 * row["trial"]} for row in rows if row["method"] == "uniform"]
    point = Summary(made, "tiny", study).at("uniform", 6, 3)
    assert (point.mean, point.std, point.trials) == (pytest.approx(0.2), pytest.approx(0.02**0.5), 2)


def test_the_equal_time_line_ends_where_the_other_method_takes_as_long():
    def points(rate):
        return [Point(m, 2, 0.1, 0.0, 1, ({"cpu_seconds": {"factor": rate * m}},)) for m in (2, 4, 8, 16)]

    at, level, other = equal_time(points(2.0), points(1.0), "algorithm")
    assert (level, other) == (pytest.approx(2 * at), pytest.approx(2 * at))
    assert equal_time(points(100.0), points(1.0), "algorithm") is None
