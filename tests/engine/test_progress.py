"""Progress of a pass: what is shown, how often, and where."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import nystrom
from nystrom.engine import LocalEngine, Silent, Sums
from nystrom.engine.progress import BarProgress, LineProgress, format_rate, format_seconds, make_progress, stage
from nystrom.rows import as_blocks


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_pass(progress: LineProgress, clock: Clock, *, seconds_a_block: float, blocks: int = 10) -> None:
    progress.start("sketch", total=100 * blocks)
    for _ in range(blocks):
        clock.now += seconds_a_block
        progress.advance(100)
    progress.stop()


@pytest.mark.parametrize("verbose", [0, False, np.int64(0)])
def test_nothing_is_shown_unless_asked(verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    progress = make_progress(verbose)
    assert isinstance(progress, Silent)
    LocalEngine(1, progress).fold(as_blocks(np.ones((300, 2))), lambda block: Sums(1), label="sketch")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verbose", [1, True, 3])
def test_lines_go_to_standard_error_when_it_is_no_terminal(
    verbose: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystrom.engine.progress._LEAST_SECONDS", 0.0)
    progress = make_progress(verbose)
    assert isinstance(progress, LineProgress)
    LocalEngine(2, progress).fold(as_blocks(np.ones((1300, 2))), lambda block: Sums(1), label="sketch")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sketch: 1,300 of 1,300 rows, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("verbose", [-1, "yes", None, 0.5])
def test_a_wrong_verbose_is_named_with_what_is_allowed(verbose: object) -> None:
    with pytest.raises(ValueError, match=r"verbose must be False .* got"):
        make_progress(verbose)  # type: ignore[arg-type]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(make_progress(1), BarProgress)


def test_a_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(make_progress(1), LineProgress)


def test_a_fast_pass_writes_one_line() -> None:
    stream, clock = io.StringIO(), Clock()
    run_pass(LineProgress(stream, clock=clock), clock, seconds_a_block=0.1)
    assert stream.getvalue() == "sketch: 1,000 of 1,000 rows, 1k rows/s, done in 1.0 s\n"


def test_a_pass_of_an_instant_is_shown_only_if_it_fails() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, clock=clock)
    run_pass(progress, clock, seconds_a_block=0.001)
    assert stream.getvalue() == ""
    progress.start("sketch", total=100)
    progress.stop()
    assert stream.getvalue() == "sketch: 0 of 100 rows, - rows/s, stopped early in 0.00 s\n"


@pytest.mark.parametrize(("least", "shown"), [(0.0, True), (1e9, False)])
def test_the_bar_of_an_instant_is_cleared(least: float, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    console = pytest.importorskip("rich.console")
    monkeypatch.setattr("nystrom.engine.progress._LEAST_SECONDS", least)
    stream = io.StringIO()
    progress = BarProgress(console.Console(file=stream, force_terminal=True, width=120))
    progress.start("sketch", total=10)
    progress.advance(10)
    progress.stop()
    # The last control sequences of a cleared bar go up a line and erase it.
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K") != shown


def test_a_slow_pass_writes_at_most_one_line_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    run_pass(LineProgress(stream, every=5.0, clock=clock), clock, seconds_a_block=2.0)
    assert stream.getvalue().splitlines() == [
        "sketch: 300 of 1,000 rows (30%), 50 rows/s, 14.0 s left",
        "sketch: 600 of 1,000 rows (60%), 50 rows/s, 8.0 s left",
        "sketch: 900 of 1,000 rows (90%), 50 rows/s, 2.0 s left",
        "sketch: 1,000 of 1,000 rows, 50 rows/s, done in 20.0 s",
    ]


def test_a_pass_that_fails_is_reported_as_stopped_early() -> None:
    stream = io.StringIO()

    def step(block: object) -> Sums:
        raise RuntimeError("disk gone")

    with pytest.raises(RuntimeError, match="disk gone"):
        LocalEngine(1, LineProgress(stream)).fold(as_blocks(np.ones((300, 2))), step, label="factor")
    assert stream.getvalue().startswith("factor: 0 of 300 rows, ")
    assert "stopped early" in stream.getvalue()


def test_stopping_twice_writes_nothing_more() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, clock=clock)
    run_pass(progress, clock, seconds_a_block=0.1)
    progress.stop()
    assert stream.getvalue().count("\n") == 1


def test_the_bar_shows_label_rows_and_rate() -> None:
    console = pytest.importorskip("rich.console")
    stream = io.StringIO()
    progress = BarProgress(console.Console(file=stream, force_terminal=True, width=120))
    for label in ("sketch", "factor"):
        progress.start(label, total=2000)
        progress.advance(1500)
        progress.advance(500)
        progress.stop()
    shown = stream.getvalue()
    for text in ("sketch", "factor", "2,000/2,000 rows", "rows/s"):
        assert text in shown


def test_a_new_bar_may_start_before_the_last_one_stopped() -> None:
    console = pytest.importorskip("rich.console")
    progress = BarProgress(console.Console(file=io.StringIO(), force_terminal=True))
    progress.start("sketch", total=10)
    progress.start("factor", total=10)
    progress.advance(10)
    progress.stop()


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5"), (999, "999"), (999.6, "1k"), (1e6, "1M"), (2.5e9, "2.5G"), (0, "0")]
)
def test_rates_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert format_rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00 s"), (59.9, "59.9 s"), (59.96, "1 min 0 s"), (3599.6, "1 h 0 min"), (90, "1 min 30 s")],
)
def test_durations_read_as_a_person_would_say_them(value: float, text: str) -> None:
    assert format_seconds(value) == text


def test_the_passes_of_a_stage_share_one_line() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, clock=clock)
    with stage("landmarks"):
        for label in ("k-means", "k-means", "assign", "pivots, 20 of 100", "pivots, 40 of 100", "Lloyd step 3 of 10"):
            progress.start(label, total=200)
            clock.now += 0.5
            progress.advance(200)
            progress.stop()
    assert stream.getvalue() == "landmarks: 200 rows, k-means × 2, assign, pivots × 2, Lloyd, 3.0 s\n"


def test_a_long_stage_says_what_it_is_doing() -> None:
    stream, clock = io.StringIO(), Clock()
    with stage("solve"):
        for step in (1, 2):
            progress = LineProgress(stream, every=5.0, clock=clock)  # each engine makes its own
            progress.start(f"conjugate gradients, step {step}", total=1000)
            for _ in range(4):
                clock.now += 1.0
                progress.advance(250)
            progress.stop()
    assert stream.getvalue().splitlines() == [
        "solve, conjugate gradients, step 2: 250 of 1,000 rows (25%), 250 rows/s, 3.0 s left",
        "solve: 1,000 rows, conjugate gradients × 2, 8.0 s",
    ]


def test_a_stage_inside_another_belongs_to_it_and_a_silent_one_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream, clock = io.StringIO(), Clock()
    with stage("metric"), stage("factor"):
        run_pass(LineProgress(stream, clock=clock), clock, seconds_a_block=0.1)
        run_pass(Silent(), clock, seconds_a_block=0.1)  # type: ignore[arg-type]
    assert stream.getvalue() == "metric: 1,000 rows, sketch, 2.0 s\n"
    with stage("factor"):
        run_pass(Silent(), clock, seconds_a_block=0.1)  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")


def test_a_fit_writes_one_line_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    for machine, stages in (
        (nystrom.KernelRidge(alpha="auto"), ["landmarks", "factor", "regularisation"]),
        (nystrom.KernelRidge(alpha=1e-2, solver="cg"), ["landmarks", "solve"]),
        (nystrom.KernelSVR(C=1.0), ["landmarks", "factor", "solve"]),
        (nystrom.KernelKMeans(3), ["landmarks", "factor", "clusters"]),
    ):
        machine.set_params(n_landmarks=20, random_state=0, verbose=1).fit(X, X[:, 0])
        shown = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
        assert [name for name in shown if name != "bandwidth"] == stages


def test_a_stage_has_one_bar() -> None:
    console = pytest.importorskip("rich.console")
    stream = io.StringIO()
    shown = console.Console(file=stream, force_terminal=True, width=120)
    with stage("landmarks"):
        for label in ("k-means", "assign"):
            progress = BarProgress(shown)
            progress.start(label, total=2000)
            progress.advance(2000)
            progress.stop()
    assert "landmarks, assign" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
