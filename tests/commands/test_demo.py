"""``nystrom demo``: the table, the picture, and what happens when either cannot be made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nystrom.commands import demo
from nystrom.commands import main as cli

pytest.importorskip("matplotlib")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SIZES", (demo.TABLE_SIZE,))
    monkeypatch.setattr(demo, "TRIALS", 1)


@pytest.mark.usefixtures("short")
def test_demo_prints_a_line_a_selector_and_writes_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = {line.split()[0]: line.split()[1:] for line in lines if line and line.split()[0] in demo.SELECTORS}
    assert set(table) == set(demo.SELECTORS)
    for landmarks, rank, error, best, _ in table.values():
        assert (landmarks, rank) == ("40", "20")
        assert float(best) <= float(error) < 1
    assert float(table["kmeans"][2]) < float(table["uniform"][2])
    assert [path.name for path in tmp_path.iterdir()] == ["nystrom-demo.png"]
    assert (tmp_path / "nystrom-demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("short")
def test_demo_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--json", "--output", str(tmp_path / "d.svg")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["selector"] for run in found["runs"]] == list(demo.SELECTORS)
    assert all(found["best_possible"] <= run["error"] for run in found["runs"])
    assert found["picture"] == str(tmp_path / "d.svg")


@pytest.mark.usefixtures("short")
def test_demo_without_matplotlib_still_prints_and_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["demo", "--output", str(tmp_path / "picture.svg")]) == 0
    out, err = capsys.readouterr()
    assert "sketched-kmeans" in out
    assert "pip install matplotlib" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("picture.gif", "must end in one of .png"), ("no/such/folder/a.png", "does not exist")],
)
def test_a_place_where_no_picture_can_go_is_refused_before_any_work(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--output", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize("seed", range(3))
def test_errors_are_those_of_their_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((30, 12))
    K = A @ A.T
    U, S, _ = np.linalg.svd(K)
    L = U[:, :5] * np.sqrt(S[:5])
    literal = np.linalg.norm(K - L @ L.T) / np.linalg.norm(K)
    assert demo.relative_error(K, L) == pytest.approx(literal, rel=1e-7)
    assert demo.best_error(K, 5) == pytest.approx(literal, rel=1e-7)
