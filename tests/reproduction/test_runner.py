"""The runner: rows that are complete, resumable, and fair."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction import runner
from reproduction.catalogue import CATALOGUE, FIGURE_1, FIGURE_7, Study, quick
from reproduction.records import RowFile, identity
from reproduction.runner import Bench, RunLimits, run
from reproduction.summary import Summary


def test_a_row_holds_all_that_is_needed_to_read_it_alone(tiny, tmp_path):
    file = RowFile(tmp_path / "rows.jsonl")
    run((tiny,), file, RunLimits(1))
    row = next(row for row in file.rows if row["method"] == "sketched-0.2")
    assert row["dataset"] == "digits"
    assert row["stand_in"] is False
    assert (row["n"], row["p"], row["sketch_dim"]) == (300, 64, 13)
    assert 0 < row["error"] < 1
    assert set(row["seconds"]) == {"landmarks", "factor", "error"}
    assert set(row["cpu_seconds"]) == {"landmarks", "factor"}
    assert min(row["cpu_seconds"].values()) > 0
    assert row["passes"] == 2
    assert {"numpy", "python", "nystrom"} <= set(row["versions"])
    assert len(row["data_sha256"]) == 16
    assert "gamma" in row["kernel"]


def test_a_second_run_repeats_nothing_and_more_trials_add_only_the_new_ones(tiny, tmp_path, monkeypatch):
    file = RowFile(tmp_path / "rows.jsonl")
    run((tiny,), file, RunLimits(1))
    text = file.path.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "run_trial", lambda *_: pytest.fail("a finished row was made again"))
        run((tiny,), RowFile(file.path), RunLimits(1))
    assert file.path.read_text() == text
    again = RowFile(file.path)
    run((tiny,), again, RunLimits(2))
    assert again.path.read_text().startswith(text)
    assert len(again.rows) == len({identity(row) for row in again.rows}) == 2 + 12 * 2


def test_an_interruption_loses_no_finished_row_and_the_result_is_that_of_one_run(tiny, tmp_path, monkeypatch):
    whole = RowFile(tmp_path / "whole.jsonl")
    run((tiny,), whole, RunLimits(2))
    calls = []
    make = Bench.run_trial

    def interrupted(self, blanks):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return make(self, blanks)

    file = RowFile(tmp_path / "rows.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(Bench, "run_trial", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run((tiny,), file, RunLimits(2))
    kept = RowFile(file.path)
    assert len(kept.rows) == 1 + 2 * 4
    run((tiny,), kept, RunLimits(2))
    expected = {identity(row): row["error"] for row in whole.rows}
    assert {identity(row): row["error"] for row in kept.rows} == expected
    assert len(kept.rows) == len(expected)


def test_both_factorisations_see_the_same_landmarks(tiny, tmp_path):
    file = RowFile(tmp_path / "rows.jsonl")
    run((tiny,), file, RunLimits(3))
    summary = Summary(file.rows, "tiny", tiny.studies[1])
    same = [summary.at(key, 3, 3).mean for key in ("standard", "optimal")]
    assert same[0] == pytest.approx(same[1], rel=1e-9)
    assert summary.at("optimal", 6, 3).mean < summary.at("standard", 6, 3).mean
    seeds = {key: [row["seed"] for row in summary.at(key, 6, 3).rows] for key in ("standard", "optimal")}
    assert seeds["standard"] == seeds["optimal"]


def test_the_algorithms_as_written_agree_with_the_library(tmp_path):
    fig2 = next(experiment for experiment in CATALOGUE if experiment.key == "fig2")
    study = replace(fig2.studies[1], dataset="digits", shaping="", first=250, sizes=((12, 5),), single=False)
    file = RowFile(tmp_path / "rows.jsonl")
    run((replace(fig2, studies=(study,)),), file, RunLimits(2))
    errors = {(row["method"], row["trial"]): row["error"] for row in file.rows}
    for trial in range(2):
        assert errors["standard", trial] == pytest.approx(errors["written-standard", trial], rel=1e-8)
        assert errors["optimal", trial] == pytest.approx(errors["written-optimal", trial], rel=1e-6)


def test_missing_data_is_reported_and_never_replaced(no_data, tmp_path):
    file = RowFile(tmp_path / "rows.jsonl")
    files = [e for e in CATALOGUE if e.key not in ("toy", "fig1", "digits")]
    outcome = run(tuple(map(quick, files)), file, RunLimits(1))
    assert {name for _, name in outcome.missing} == {
        "satimage", "dna", "protein", "mnist", "epsilon", "cpusmall", "E2006-tfidf",
    }  # fmt: skip
    assert file.rows == []


def test_a_stand_in_is_used_only_if_the_set_is_absent_and_is_marked(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("NYSTROM_DATA", str(folder))
    np.save(folder / "epsilon-like.npy", np.random.default_rng(0).standard_normal((60, 2000)).astype(np.float32))
    fig5 = next(experiment for experiment in CATALOGUE if experiment.key == "fig5")
    study = replace(fig5.studies[1], sizes=((3, 3),))
    file = RowFile(tmp_path / "rows.jsonl")
    run((replace(fig5, studies=(study,)),), file, RunLimits(1))
    assert {(row["dataset"], row["stand_in"]) for row in file.rows} == {("epsilon-like", True)}


def test_clustered_can_have_fewer_trials_and_a_time_limit_stops_between_tasks(tiny, tmp_path):
    file = RowFile(tmp_path / "rows.jsonl")
    run((tiny,), file, RunLimits(3, clustered_trials=1))
    counts = {key: sum(row["method"] == key for row in file.rows) for key in ("uniform", "clustered")}
    assert counts == {"uniform": 6, "clustered": 2}
    stopped = run((tiny,), RowFile(tmp_path / "other.jsonl"), RunLimits(3, seconds=0.0))
    assert stopped.stopped


def test_ridge_and_map_rows_hold_what_their_figures_need(tmp_path):
    ridge = Study("ridge", "digits", FIGURE_7.studies[0].methods, ((20, 10),), first=200, task="ridge")
    maps = replace(FIGURE_1.studies[0], first=400, sizes=((4, 2),))
    file = RowFile(tmp_path / "rows.jsonl")
    run((replace(FIGURE_7, studies=(ridge,)), replace(FIGURE_1, studies=(maps,))), file, RunLimits(1))
    best = next(row["error"] for row in file.rows if row["method"] == "svd" and row["task"] == "ridge")
    assert all(row["error"] > 0.5 * best for row in file.rows if row["task"] == "ridge")
    optimal = next(row for row in file.rows if row["method"] == "optimal")
    assert optimal["separability"] == 1.0
    assert len(optimal["map"]) == len(optimal["map_classes"]) == 400


def test_separability_is_the_share_a_line_gets_right():
    L = np.column_stack([np.arange(10.0), np.zeros(10)])
    assert runner.linear_separability(L, (np.arange(10) >= 5).astype(float)) == 1.0
    assert runner.linear_separability(L, (np.arange(10) % 2).astype(float)) < 0.8
