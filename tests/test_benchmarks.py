"""The guard of speed: ratios are stored with their spread, and what became slower is named."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("installed without its benchmarks", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import records, views  # noqa: E402
from benchmarks.measure import Result, contest  # noqa: E402


def results(ours, theirs=(1.0, 1.1, 0.9), case="rows, m=100"):
    return [
        Result(case, "nystrom auto", min(ours), 3.0, 0.1, processor=2 * min(ours), times=tuple(ours)),
        Result(case, "scikit-learn uniform", min(theirs), 5.0, 0.2, processor=min(theirs), times=tuple(theirs)),
    ]


def store(suite, found):
    records.store(suite, records.describe(found), {"cores": 2}, "0.2.0")


@pytest.fixture(autouse=True)
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path / "results")


def test_a_repeat_passes_and_a_slower_line_is_named():
    store("shapes", results((0.5, 0.55, 0.45)) + results((0.7, 0.8, 0.6), case="other"))
    again = results((0.52, 0.54, 0.47)) + results((0.7, 0.7, 0.6), case="other")
    assert records.check("shapes", again) == []
    slower = results((0.8, 0.88, 0.72)) + results((0.7, 0.7, 0.6), case="other")
    (line,) = records.check("shapes", slower)
    assert line.startswith("shapes, rows, m=100: nystrom auto ÷ scikit-learn uniform: 0.80, stored 0.50")


def test_a_contestant_that_is_no_longer_measured_is_named():
    store("shapes", results((0.5,)))
    assert records.check("shapes", results((0.5,))[:1]) == [
        "shapes, rows, m=100: nystrom auto ÷ scikit-learn uniform: stored, but not measured now"
    ]


def test_cases_of_data_that_are_not_here_do_not_fail_the_check():
    store("shapes", results((0.5,)) + results((0.7,), case="other"))
    assert records.check("shapes", results((0.5,))) == []


def test_without_stored_ratios_the_check_says_how_to_store_them():
    (line,) = records.check("shapes", results((0.5,)))
    assert "python -m benchmarks shapes --store" in line


def test_the_newest_run_of_each_case_counts_and_older_ones_stay_in_the_file(tmp_path):
    store("shapes", results((0.5,)) + results((0.7,), case="other"))
    records.store("shapes", records.describe(results((0.4,))), {"cores": 2}, "0.3.0")
    found = records.newest("shapes")
    assert [(r["case"], r["version"]) for r in found[::2]] == [("rows, m=100", "0.3.0"), ("other", "0.2.0")]
    assert found[0]["rounds"] == [0.4]
    assert len((tmp_path / "results" / "shapes.jsonl").read_text().splitlines()) == 6


def test_tables_are_written_between_their_marks(tmp_path):
    store("shapes", results((0.5, 0.55, 0.45)) + results((0.7,), case="other"))
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- records: shapes: rows -->\nold\n<!-- end of records -->\n\nafter\n")
    for _ in range(2):
        records.write_pages([page], {})
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- end of records -->\n\nafter\n")
    assert "old" not in text
    assert "other" not in text
    assert text.count("| rows, m=100 | scikit-learn uniform | 0.9 | 0.9 | 0.5 | 5 | 0.2 | 0.5 | 0.2.0 |") == 1
    assert "rounds" not in text
    page.write_text("<!-- records: features -->\n<!-- end of records -->\n")
    with pytest.raises(ValueError, match="nothing is stored for 'features'"):
        records.write_pages([page], {})


def test_every_round_is_judged_if_asked():
    seeds = iter(range(3))
    (found,) = contest("case", {"ours": lambda: next(seeds)}, repeat=3, judge=float, pause=0.0, judge_each=True)
    assert found.error == 1.0
    assert len(found.times) == 3


@pytest.mark.parametrize("name", ["even errors", "groups of ten", "few rows", "three classes", "1 % minority"])
def test_intervals_and_sets_of_the_benchmark_cover(name):
    from benchmarks.intervals import CASES, split

    covered = [split(CASES[name]._replace(n=min(CASES[name].n, 600)), seed, new=600)[0].covered for seed in range(8)]
    assert 0.85 < sum(covered) / 8 < 0.95


def test_a_second_run_on_the_same_day_replaces_the_first():
    store("shapes", results((0.5,)))
    store("shapes", results((0.4,)))
    assert [record["seconds"] for record in records.newest("shapes")] == [0.4, 0.9]


def test_only_suites_with_stored_rounds_can_be_checked():
    assert not records.has_ratios("shapes")
    store("shapes", results((0.5,)))
    assert records.has_ratios("shapes")


def test_equal_error_compares_with_the_peer_of_the_nearest_error():
    peers = [
        Result("rows", f"scikit-learn uniform, {m} landmarks", seconds, 1.0, error, times=(seconds,))
        for m, seconds, error in ((100, 0.2, 0.3), (200, 0.4, 0.11), (400, 0.8, 0.05))
    ]
    store("equal_error", [Result("rows", "nystrom auto", 0.1, 1.0, 0.1, times=(0.1,)), *peers])
    (line,) = views.equal_error()
    assert (line["theirs"], line["time, ours ÷ theirs"]) == ("scikit-learn uniform, 200 landmarks", 0.25)


def test_the_table_of_the_readme_takes_its_lines_from_stored_records(monkeypatch):
    with pytest.raises(ValueError, match="python -m benchmarks readme"):
        views.readme()
    monkeypatch.setattr(records, "RESULTS", ROOT / "benchmarks" / "results")
    lines = views.readme()
    assert len(lines) == 7
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert records.table(lines) in readme, "run python -m benchmarks pages"
