"""The plan counts what a fit does, and grows as it should."""

import json

import numpy as np
import pytest

from nystrom import KernelRidge
from nystrom.commands.main import main
from nystrom.engine import LocalEngine
from nystrom.engine.memory import fit_footprint
from nystrom.landmarks import Auto
from nystrom.nystroem.factor import optimal
from nystrom.planning import Calibration, calibrate, format_bytes, plan, plan_file
from nystrom.preprocessing import TableEncoder
from nystrom.rows import as_blocks

KNOWN = Calibration((0.1, 1e-6), (0.5, 1e-5), 2.0, 150e6, 10_000, 1)


def seconds(n, **options):
    return plan(n, 100, 200, calibration=KNOWN, **options).seconds


def test_time_grows_in_proportion_to_the_rows():
    block = 8192 * 1000
    assert seconds(4 * block) - seconds(3 * block) == pytest.approx(seconds(2 * block) - seconds(block), rel=1e-6)
    assert seconds(4 * block) - seconds(3 * block) == pytest.approx(block * 1.1e-5, rel=0.01)


def test_workers_share_the_rows_but_not_the_clustering_of_the_sample():
    one, many = (plan(10**9, 100, 200, workers=W, calibration=KNOWN) for W in (1, 50))
    assert many.stages[1].seconds == one.stages[1].seconds
    assert many.stages[3].seconds < one.stages[3].seconds / 30
    assert many.stages[3].bytes_sent > one.stages[3].bytes_sent
    assert many.stages[4].seconds < one.stages[4].seconds / 30


def test_bytes_read_are_passes_times_the_data():
    for planned in (plan(10**6, 100, 200, workers=4, calibration=KNOWN),):
        assert sum(stage.bytes_read for stage in planned.stages) == planned.n_passes * 10**6 * 100 * 8
    sparse = plan(10**6, 10_000, 200, nnz=5 * 10**7, workers=4, calibration=KNOWN)
    assert sparse.stages[-1].bytes_read == 12 * 5 * 10**7


def test_a_slow_disk_takes_over():
    slow = plan(10**8, 100, 200, read_bandwidth=1e5, in_order=True, calibration=KNOWN)
    assert slow.stages[-1].seconds == pytest.approx(10**8 * 800 / 1e5, rel=0.01)


def test_rows_read_in_order_are_read_three_times_and_other_rows_hardly_for_the_regularisation():
    in_order, by_number = (
        plan(10**6, 100, 200, read_bandwidth=1e9, in_order=order, calibration=KNOWN) for order in (True, False)
    )
    assert [stage.bytes_read for stage in in_order.stages if stage.n_passes] == [8e8] * 3
    assert by_number.stages[-1].bytes_read < 0.01 * 8e8


def test_the_passes_are_those_that_a_fit_makes(monkeypatch):
    made = []
    fold = LocalEngine.fold

    def recorded(self, rows, step, *, label):
        made.append((rows.shape[0], label))
        return fold(self, rows, step, label=label)

    monkeypatch.setattr(LocalEngine, "fold", recorded)
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    KernelRidge(n_landmarks=10, random_state=0).fit(X, X[:, 0])
    planned = plan(20_000, 3, 10, calibration=KNOWN)
    passes = [label for n, label in made if n == 20_000]
    assert passes == [stage.name for stage in planned.stages if stage.n_passes]


def test_memory_of_a_worker_does_not_grow_with_rows_that_are_read_from_disk():
    small, large = (plan(n, 100, 200, workers=10, read_bandwidth=1e9, calibration=KNOWN) for n in (10**7, 10**9))
    assert small.memory == large.memory
    assert small.client_memory == large.client_memory


def test_a_plan_says_whether_it_fits_and_what_it_extrapolates():
    text = str(plan(10**9, 1000, 500, workers=50, worker_memory=16e9, read_bandwidth=1e9, calibration=KNOWN))
    assert "fits: a worker has 16 GB" in text
    assert "extrapolated" in text
    assert "DOES NOT FIT" in str(plan(10**9, 1000, 500, workers=50, worker_memory=1e8, calibration=KNOWN))


def test_calibration_measures_the_shape_asked_for(monkeypatch):
    monkeypatch.setattr("nystrom.planning._CALIBRATION_SECONDS", 0.0)
    monkeypatch.setattr("nystrom.planning.sample_size", lambda m: 500)
    wide = calibrate(5, 400, block_rows=1024)
    assert wide.n_rows == 1024
    assert wide.factor[1] > 0
    assert calibrate(300, 20, density=0.01, block_rows=512).factor[1] > 0


def test_algebra_that_does_not_grow_with_the_rows_is_not_counted_per_row(monkeypatch):
    ticks = iter(range(10**6))
    monkeypatch.setattr("nystrom.planning.sample_size", lambda m: 500)
    monkeypatch.setattr("nystrom.planning._CALIBRATION_SECONDS", 0.0)

    def slow(passes, kernel, landmarks, rank):
        fitted = optimal(passes, kernel, landmarks, rank)
        for _ in range(1000):
            next(ticks)
        return fitted

    monkeypatch.setattr("nystrom.planning.optimal", slow)
    found = calibrate(5, 20, block_rows=100, clock=lambda: float(next(ticks)))
    fixed, per_row = found.factor
    assert fixed > 1000
    assert per_row == pytest.approx(1 / 100)


def test_memory_is_what_the_fit_asks_for():
    X = np.zeros((50_000, 20))
    rows = as_blocks(X)
    planned = plan(50_000, 20, 300, threads=2, calibration=KNOWN)
    asked = fit_footprint(rows, 300, Auto().held_bytes(rows, 300))
    assert planned.memory == KNOWN.base_bytes + X.nbytes + asked.fixed + 2 * asked.per_thread


def test_a_file_tells_its_size(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nystrom.planning.calibrate", lambda *a, **k: KNOWN)
    X = np.zeros((5_000, 7), dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    planned = plan_file(tmp_path / "rows.npy", 50)
    assert planned.stages[-2].bytes_read == X.nbytes
    assert main(["plan", str(tmp_path / "rows.npy"), "--landmarks", "50", "--worker-memory", "2GiB"]) == 0
    assert "fits: this machine has 2.15 GB" in capsys.readouterr().out
    assert main(["plan", "--landmarks", "50"]) != 0
    assert "both --rows and --columns" in capsys.readouterr().err


def test_a_table_of_words_and_dates_is_planned_as_it_is_encoded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nystrom.planning.calibrate", lambda *a, **k: KNOWN)
    days = np.datetime64("2020-01-01") + np.arange(300)
    lines = [f"{day},{'ab'[i % 2]},{i / 7}" for i, day in enumerate(days)]
    (tmp_path / "table.csv").write_text("\n".join(["day,kind,y", *lines]))
    pytest.importorskip("pyarrow")
    encoder = TableEncoder("y").fit(tmp_path / "table.csv")
    assert main(["plan", str(tmp_path / "table.csv"), "--target", "y", "--landmarks", "20", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["n_values"] == 2 * 300 * 20
    assert planned["stages"][0]["bytes_read"] == 300 * 8 * len(encoder.get_feature_names_out())


def test_kernel_values_of_objects_are_counted_in_advance():
    words = [f"{'ab' * (i % 7)}{i}" for i in range(150)]
    pairs = 0

    def likeness(a, b):
        nonlocal pairs
        pairs += 1
        return float(np.exp(-abs(len(a) - len(b)) / 3 - (a[0] != b[0])))

    model = KernelRidge(kernel=likeness, n_landmarks=20, random_state=0)
    model.fit(words, np.arange(150.0))
    planned = plan(150, 1, 20, calibration=KNOWN).n_values
    # Beside these: a probe of 64 × 64 pairs, the landmarks among themselves, diagonals, and a look at 50 rows.
    assert planned <= pairs <= planned + 64**2 + 20**2 + 2 * 150 + 50 * 22 + 10


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="n_landmarks must be a whole number of at least 1; got 0"):
        plan(10, 5, 0)


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (1e9, "1 GB")])
def test_bytes_are_said_with_units(count, text):
    assert format_bytes(count) == text


def test_the_command_prints_a_plan(capsys, monkeypatch):
    monkeypatch.setattr("nystrom.planning.calibrate", lambda *a, **k: KNOWN)
    sizes = ["--rows", "1e9", "--columns", "1000", "--landmarks", "500"]
    assert main(["plan", *sizes, "--workers", "50", "--worker-memory", "16GB"]) == 0
    printed = capsys.readouterr().out
    assert "moments" in printed
    assert "blocks: 954,199 per pass" in printed
    with pytest.raises(SystemExit, match="2"):
        main(["plan", *sizes, "--worker-memory", "much"])
    assert "'much' is not a size such as 16GB" in capsys.readouterr().err


def test_a_plan_for_this_machine_gives_a_verdict():
    large = str(plan(10**12, 100, 200, calibration=KNOWN))
    assert "DOES NOT FIT: this machine has" in large
    assert "nystrom.open_rows" in large
    assert "a worker" not in large
    assert "fits: this machine has" in str(plan(10**4, 10, 20, calibration=KNOWN))
    assert "DOES NOT FIT: this machine has 1 MB" in str(plan(10**4, 10, 20, worker_memory=1e6, calibration=KNOWN))


def test_conjugate_gradients_need_one_square_matrix_and_a_pass_for_each_step():
    known = Calibration((0.1, 1e-6), (0.5, 1e-5), 2.0, 150e6, 10_000, 1, 1e-6, 40.0)
    closed, steps = (
        plan(10**6, 10, 20_000, solver=solver, dtype="float32", calibration=known) for solver in ("factor", "cg")
    )
    assert steps.memory < 0.3 * closed.memory
    assert steps.n_passes > 20
    assert any("takes 'cg' here" in note for note in closed.notes)
    assert [stage.name for stage in plan(10**6, 10, 20_000, solver="auto", calibration=known).stages][-1] == "142 steps"


def test_a_calibration_of_conjugate_gradients_times_its_parts(monkeypatch):
    monkeypatch.setattr("nystrom.planning._CALIBRATION_SECONDS", 0.0)
    monkeypatch.setattr("nystrom.planning.sample_size", lambda m: 500)
    found = calibrate(3, 40, block_rows=500, solver="cg")
    assert found.held_step > 0
    assert found.preconditioner > 0


def test_an_unknown_solver_is_named():
    with pytest.raises(ValueError, match="solver must be one of"):
        plan(100, 2, 10, solver="falkon", calibration=KNOWN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("n_rows", "n_features", "n_landmarks")
            for value in (2.5, True, "3", None, np.inf)
        ),
        *((name, value) for name in ("block_rows", "workers", "threads") for value in (0, -1, 2.5, "2")),
        *((name, value) for name in ("worker_memory", "read_bandwidth") for value in (0, -1.0, np.nan, "much")),
        ("network_bandwidth", None),
        ("nnz", 10**9),
        ("nnz", -1),
        ("nnz", 0.5),
        ("dtype", np.int32),
        ("dtype", "bogus"),
        ("dtype", 0),
        ("solver", "bogus"),
    ],
)
def test_every_value_of_no_use_is_named(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        plan(**{"n_rows": 1000, "n_features": 100, "n_landmarks": 20, "calibration": KNOWN, name: value})
