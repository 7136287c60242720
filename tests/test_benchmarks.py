"""The guard of speed: ratios are stored with their spread, and what became slower is named."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("installed without its benchmarks", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import ratios  # noqa: E402
from benchmarks.limits import FLOP_BOUND  # noqa: E402
from benchmarks.measure import Result, contest  # noqa: E402


def results(ours, theirs=(1.0, 1.1, 0.9), case="rows, m=100"):
    return [
        Result(case, "nystrom auto", min(ours), 3.0, 0.1, processor=2 * min(ours), times=tuple(ours)),
        Result(case, "scikit-learn uniform", min(theirs), 5.0, 0.2, processor=min(theirs), times=tuple(theirs)),
    ]


@pytest.fixture(autouse=True)
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(ratios, "STORED", tmp_path / "ratios.json")
    return tmp_path / "ratios.json"


def test_a_repeat_passes_and_a_slower_line_is_named():
    ratios.store("shapes", results((0.5, 0.55, 0.45)) + results((0.7, 0.8, 0.6), case="other"), {"cores": 2})
    again = results((0.52, 0.54, 0.47)) + results((0.7, 0.7, 0.6), case="other")
    assert ratios.check("shapes", again) == []
    slower = results((0.8, 0.88, 0.72)) + results((0.7, 0.7, 0.6), case="other")
    (line,) = ratios.check("shapes", slower)
    assert line.startswith("shapes, rows, m=100: nystrom auto ÷ scikit-learn uniform: 0.80, stored 0.50")


def test_what_is_no_longer_measured_is_named():
    ratios.store("shapes", results((0.5,)) + results((0.7,), case="other"), {})
    assert ratios.check("shapes", results((0.5,))) == [
        "shapes, other: nystrom auto ÷ scikit-learn uniform: stored, but not measured now"
    ]


def test_without_stored_ratios_the_check_says_how_to_store_them():
    (line,) = ratios.check("shapes", results((0.5,)))
    assert "python -m benchmarks shapes --store" in line


def test_the_table_is_written_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- shapes -->\nold\n<!-- end of shapes -->\n\nafter\n")
    for _ in range(2):
        ratios.write("shapes", ratios.summary(results((0.5, 0.55, 0.45))), page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- end of shapes -->\n\nafter\n")
    assert "old" not in text
    assert text.count("| rows, m=100 | 0.50 | 0.50 … 0.50 |") == 1
    with pytest.raises(ValueError, match="no marks for features"):
        ratios.write("features", "", page)


def test_the_table_gives_processor_seconds_memory_and_the_flop_bound_of_each_line():
    bound = Result("rows, m=100", FLOP_BOUND, 0.36, 0.0, None)
    other = Result("rows, m=100", "another", 0.1, 0.0, None)
    *_, line = ratios.summary([*results((0.5, 0.55, 0.45)), other, bound]).splitlines()
    assert line == (
        "| rows, m=100 | 0.50 | 0.50 … 0.50 | 0.450 / 0.900 | 0.900 / 0.900 | 3 / 5 | 0.1 / 0.2 | 0.50 | 80% |"
    )
    assert ratios.summary(results((0.5,))).endswith("| 0.50 |  |")


def test_every_round_is_judged_if_asked():
    seeds = iter(range(3))
    (found,) = contest("case", {"ours": lambda: next(seeds)}, repeat=3, judge=float, pause=0.0, judge_each=True)
    assert found.error == 1.0
    assert len(found.times) == 3
