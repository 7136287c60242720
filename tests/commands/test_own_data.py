"""From the shell: a data file to a model, to predictions, to scores; and one line for each mistake."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nystrom
from nystrom.commands import main as cli

parquet = pytest.importorskip("pyarrow.parquet")

rng = np.random.default_rng(0)


def write_table(path: Path, n: int = 400, *, seed: int = 0, target: bool = True) -> None:
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(["rooms", "town", "built", *(["price", "kind"] if target else [])])
        for _ in range(n):
            rooms, town = int(rng.integers(1, 9)), str(rng.choice(["Oslo", "Bern", "St. Gallen, old"]))
            built = f"{rng.integers(1950, 2020)}-0{rng.integers(1, 9)}-1{rng.integers(0, 9)}"
            price = 50 * rooms + 100 * (town == "Oslo") + (int(built[:4]) - 1950) + rng.normal()
            row = ["" if rng.random() < 0.1 else rooms, "" if rng.random() < 0.1 else town, built]
            out.writerow([*row, *([f"{price:.3f}", "dear" if price > 330 else "cheap"] if target else [])])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "houses.csv")
    write_table(tmp_path / "new.csv", 50, seed=1, target=False)
    return tmp_path


def read_csv(path: Path | str) -> list[dict[str, str]]:
    text = Path(path).read_text() if isinstance(path, Path) else path
    return list(csv.DictReader(io.StringIO(text)))


def run(*words: str) -> int:
    return cli.main(list(words))


def test_a_table_becomes_a_model_and_predictions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run("fit", "houses.csv", "--target", "price", "--drop", "kind", "--n-landmarks", "100", "--out", "m.nys") == 0
    )
    shown = capsys.readouterr().out
    assert "KernelRidge, target 'price' (the target is numbers)" in shown
    assert run("predict", "m.nys", "new.csv", "--keep", "--out", "priced.csv") == 0
    given, priced = read_csv(folder / "new.csv"), read_csv(folder / "priced.csv")
    assert list(priced[0]) == ["rooms", "town", "built", "unlike", "price"]
    assert [{key: row[key] for key in given[0]} for row in priced] == given
    model = nystrom.load("m.nys")
    np.testing.assert_array_equal([float(row["price"]) for row in priced], model.predict(folder / "new.csv"))
    assert [row["unlike"] == "True" for row in priced] == model[1].unlike(
        model[0].transform(folder / "new.csv")
    ).tolist()
    capsys.readouterr()
    assert run("score", "m.nys", "houses.csv", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["R2"] == pytest.approx(model.score(folder / "houses.csv"))
    assert scores["R2"] > 0.8


def test_a_target_of_text_is_classified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run("fit", "houses.csv", "--target", "kind", "--drop", "price", "--n-landmarks", "80", "--out", "m", "--json")
        == 0
    )
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["model"] == "KernelRidgeClassifier"
    assert fitted["classes"] == ["cheap", "dear"]
    assert run("predict", "m", "new.csv") == 0
    predicted = read_csv(capsys.readouterr().out)
    assert {row["kind"] for row in predicted} == {"cheap", "dear"}
    assert run("score", "m", "houses.csv") == 0
    shown = capsys.readouterr().out
    for word in ("balanced accuracy", "baseline accuracy", "AUC"):
        assert word in shown
    assert re.search(r"^class +rows +recall +precision$", shown, re.MULTILINE)
    assert re.search(r"^cheap +\d+ +[01]\.\d{3} +[01]\.\d{3}$", shown, re.MULTILINE)


def test_a_class_that_is_never_predicted_has_no_precision(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rare.csv").write_text("a,y\n" + "".join(f"{i % 7},{'no' if i else 'yes'}\n" for i in range(80)))
    assert run("fit", "rare.csv", "--target", "y", "--n-landmarks", "7", "--holdout", "0", "--out", "m") == 0
    capsys.readouterr()
    assert run("score", "m", "rare.csv") == 0
    assert re.search(r"^yes +1 +0\.000 +-$", capsys.readouterr().out, re.MULTILINE)


def test_a_column_without_effect_is_not_named_as_leading(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "flat.csv").write_text("a,b,y\n" + "".join(f"{i % 7},{i % 5 == 0:d},{i % 7 / 3}\n" for i in range(140)))
    assert run("fit", "flat.csv", "--target", "y", "--metric", "diagonal", "--alpha", "1e-6", "--out", "m") == 0
    assert re.search(r"^leading  a 100% \(shares", capsys.readouterr().out, re.MULTILINE)
    assert run("inspect", "m") == 0
    shown = capsys.readouterr().out
    assert re.search(r"^leading +a 100%$", shown, re.MULTILINE)
    assert not re.search(r"^kernel .*\d\.\d{6}", shown, re.MULTILINE)


@pytest.mark.parametrize(("value", "shown"), [("yes", "'yes'"), ("3", "3")])
def test_a_target_of_one_class_is_named(
    value: str, shown: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "one.csv").write_text("a,y\n" + "".join(f"{i},{value}\n" for i in range(30)))
    assert run("fit", "one.csv", "--target", "y", "--model", "logistic", "--out", "m") == 2
    assert f"the target 'y' of one.csv is {shown} in every row: there is nothing to learn" in capsys.readouterr().err


def test_whole_numbers_of_few_values_are_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "rooms", "--n-landmarks", "40", "--out", "m", "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == "KernelRidgeClassifier"
    assert "have no target" in err
    run("predict", "m", "new.csv")
    assert all(row["rooms"].isdigit() for row in read_csv(capsys.readouterr().out))


def test_standard_input_and_output(folder: Path) -> None:
    command = [sys.executable, "-m", "nystrom"]
    table = (folder / "houses.csv").read_bytes()
    fit = [*command, "fit", "-", "--target", "price", "--n-landmarks", "30", "--out", "m"]
    assert subprocess.run(fit, input=table, check=False, capture_output=True).returncode == 0
    done = subprocess.run([*command, "predict", "m", "-"], input=table, check=True, capture_output=True)
    assert len(read_csv(done.stdout.decode())) == 400


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_predictions_go_to_other_formats(folder: Path, suffix: str) -> None:
    run("fit", "houses.csv", "--target", "price", "--drop", "kind", "--n-landmarks", "30", "--out", "m")
    assert run("predict", "m", "new.csv", "--out", f"p{suffix}") == 0
    found = np.load("p.npy") if suffix == ".npy" else parquet.read_table("p.parquet")["price"].to_numpy()
    np.testing.assert_array_equal(found, nystrom.load("m").predict(folder / "new.csv"))
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("model", ["pca", "features"])
def test_components_of_a_table(folder: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    drop = ["--drop", "price,kind", "--n-components", "3", "--out", "m"]
    assert run("fit", "houses.csv", "--model", model, *drop) == 0
    assert run("transform", "m", "new.csv", "--out", "f.npy") == 0
    assert np.load("f.npy").shape == (50, 3)
    capsys.readouterr()
    assert run("error", "m", "new.csv", "--norm", "trace") == 0
    assert "(trace, exact)" in capsys.readouterr().out


def test_clusters_of_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--n-clusters", "3", "--n-landmarks", "50", "--drop", "price,kind"]
    assert run("fit", "houses.csv", "--model", "cluster", *words, "--out", "m") == 0
    capsys.readouterr()
    assert run("predict", "m", "new.csv") == 0
    assert {row["prediction"] for row in read_csv(capsys.readouterr().out)} <= {"0", "1", "2"}


def test_the_error_of_a_small_file_is_that_of_the_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "price", "--n-landmarks", "60", "--drop", "kind"]
    run("fit", "houses.csv", *words, "--out", "small")
    run("fit", "houses.csv", *words, "--full", "--out", "full")
    capsys.readouterr()
    errors = []
    for name in ("small", "full"):
        assert run("error", name, "houses.csv", "--json") == 0
        errors.append(json.loads(capsys.readouterr().out)["value"])
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


def test_a_machine_without_a_factor_is_saved_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "price", "--n-landmarks", "30", "--alpha", "0.1", "--set", "solver=cg", "--out", "m"]
    assert run("fit", "houses.csv", *words) == 0
    assert run("inspect", "m") == 0
    assert "rank" not in capsys.readouterr().out
    assert run("error", "m", "houses.csv") == 0
    assert re.search(r"\(fro, exact\)\nof the kernel matrix of \d+ rows is missed \(0: none", capsys.readouterr().out)


@pytest.mark.parametrize("model", ["logistic", "svc"])
def test_other_classifiers_and_probabilities(model: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "kind", "--drop", "price", "--model", model, "--n-landmarks", "40", "--out", "m"]
    assert run("fit", "houses.csv", *words) == 0
    capsys.readouterr()
    assert run("predict", "m", "new.csv", *(["--proba"] if model == "logistic" else [])) == 0
    rows = read_csv(capsys.readouterr().out)
    assert list(rows[0])[-1] == "kind"
    if model == "logistic":
        assert list(rows[0]) == ["p_cheap", "p_dear", "kind"]
        for row in rows:
            assert float(row["p_cheap"]) + float(row["p_dear"]) == pytest.approx(1.0)
            assert row["kind"] == ("dear" if float(row["p_dear"]) > 0.5 else "cheap")


def test_support_vector_regression(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "price", "--drop", "kind", "--model", "svr", "--C", "10", "--n-landmarks", "40", "--out", "m"]
    assert run("fit", "houses.csv", *words) == 0
    assert run("score", "m", "houses.csv") == 0
    assert "R2" in capsys.readouterr().out


def test_deviations_of_a_gaussian_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "price", "--model", "gp", "--n-landmarks", "40", "--out", "m")
    capsys.readouterr()
    assert run("predict", "m", "houses.csv", "--std") == 0
    first = read_csv(capsys.readouterr().out)[0]
    assert list(first) == ["price_std", "price"]
    assert float(first["price_std"]) > 0


def test_intervals_of_a_regression(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "price", "--n-landmarks", "40", "--out", "m")
    capsys.readouterr()
    assert run("predict", "m", "houses.csv", "--interval", "0.9") == 0
    rows = read_csv(capsys.readouterr().out)
    assert list(rows[0]) == ["price_low", "price_high", "price"]
    assert all(float(row["price_low"]) < float(row["price"]) < float(row["price_high"]) for row in rows)


def test_sets_of_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "kind", "--n-landmarks", "40", "--out", "m")
    capsys.readouterr()
    assert run("predict", "m", "houses.csv", "--interval", "0.9") == 0
    rows = read_csv(capsys.readouterr().out)
    classes = [name.removeprefix("may_be_") for name in list(rows[0])[:-1]]
    assert list(rows[0])[-1] == "kind"
    encoder, machine = nystrom.load("m").named_steps.values()
    sets = machine.predict_set(encoder.transform("houses.csv"), 0.9)
    assert [[row[f"may_be_{label}"] == "True" for label in classes] for row in rows] == sets.tolist()
    assert classes == machine.classes_.tolist()


def test_a_matrix_needs_no_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    X = rng.normal(size=(300, 4))
    X[:, 3] = np.sin(X[:, 0])
    np.save("X.npy", X)
    np.save("new.npy", X[:, :3])
    assert run("fit", "X.npy", "--target", "3", "--n-landmarks", "50", "--set", "selection=gcv", "--out", "m") == 0
    assert run("predict", "m", "new.npy", "--out", "p.npy") == 0
    np.testing.assert_array_equal(np.load("p.npy"), nystrom.load("m").predict(X[:, :3]))
    assert run("score", "m", "X.npy", "--target", "3") == 0
    capsys.readouterr()
    assert run("inspect", "m", "--json") == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == 3


def test_inspect_shows_what_is_in_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "price", "--n-landmarks", "30", "--out", "m")
    capsys.readouterr()
    assert run("inspect", "m", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["estimator"] == "KernelRidge"
    assert found["landmarks"] == 30
    assert [column["kind"] for column in found["columns"]] == ["number", "category", "date", "category"]
    assert next(iter(found["leading"])) == "rooms"
    assert sum(found["leading"].values()) == pytest.approx(1.0)
    assert run("inspect", "m") == 0
    shown = capsys.readouterr().out
    assert "town: category" in shown
    assert re.search(r"^leading +rooms \d+%, ", shown, re.MULTILINE)


@pytest.mark.parametrize("target", ["price", "kind", "rooms"])
def test_a_table_larger_than_the_memory_allowed_is_spooled(
    target: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystrom.engine.memory.HELD_BYTES", 1000)
    words = ["--target", target, "--n-landmarks", "30"]
    assert run("fit", "houses.csv", *words, "--out", "spooled") == 0
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("fit", "houses.csv", *words, "--out", "held") == 0
    assert (folder / "spooled").read_bytes() == (folder / "held").read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".npy"])
def test_no_rows_give_an_empty_file_that_can_be_read(folder: Path, suffix: str) -> None:
    run("fit", "houses.csv", "--target", "kind", "--drop", "price", "--n-landmarks", "30", "--out", "m")
    (folder / "none.csv").write_text("rooms,town,built\n")
    keep = [] if suffix == ".npy" else ["--keep"]
    assert run("predict", "m", "none.csv", "--out", f"p{suffix}", *keep) == 0
    written = folder / f"p{suffix}"
    if suffix == ".csv":
        assert written.read_text() == "rooms,town,built,unlike,kind\n"
    elif suffix == ".jsonl":
        assert written.read_text() == ""
    elif suffix == ".npy":
        found = np.load(written)
        assert (found.shape, found.dtype.kind) == ((0,), "U")
    else:
        assert parquet.read_table(written).to_pydict() == {
            "rooms": [],
            "town": [],
            "built": [],
            "unlike": [],
            "kind": [],
        }


def test_predictions_as_json_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "price", "--drop", "kind", "--n-landmarks", "30", "--out", "m")
    capsys.readouterr()
    assert run("predict", "m", "new.csv", "--keep", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_array_equal([row["price"] for row in rows], nystrom.load("m").predict(folder / "new.csv"))
    known = {"price": None, "unlike": None}
    assert [{**row, **known} for row in rows] == [
        {**{name: text or None for name, text in row.items()}, **known} for row in read_csv(folder / "new.csv")
    ]
    assert run("predict", "m", "new.csv", "--out", "p.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 50, "saved": "p.jsonl"}
    assert [json.loads(line)["price"] for line in (folder / "p.jsonl").read_text().splitlines()] == [
        row["price"] for row in rows
    ]


def test_categories_that_the_fit_did_not_see_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "houses.csv", "--target", "price", "--drop", "kind", "--n-landmarks", "30", "--out", "m")
    text = (folder / "new.csv").read_text().replace("Oslo", "OSLO")
    (folder / "shout.csv").write_text(text)
    capsys.readouterr()
    assert run("predict", "m", "shout.csv", "--out", "p.csv") == 0
    err = capsys.readouterr().err
    assert f"of 50 rows: 'town' in {text.count('OSLO')} rows" in err
    run("predict", "m", "new.csv", "--out", "p.csv")
    assert "warning" not in capsys.readouterr().err


def test_words_for_a_gap_and_decimal_commas(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{rng.normal():.4f}".replace(".", ",") for _ in range(60)]
    lines = [f"{a};{'unknown' if i % 9 == 0 else i % 7};{a}" for i, a in enumerate(rows)]
    (folder / "t.csv").write_text("a;b;y\n" + "\n".join(lines))
    assert run("fit", "t.csv", "--target", "y", "--missing", "unknown", "--holdout", "0", "--out", "m", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "KernelRidge"
    assert [column["kind"] for column in found["encoding"]] == ["number", "number"]
    assert found["encoding"][1]["features"] == 2
    assert run("score", "m", "t.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["R2"] == pytest.approx(found["score"]["value"], abs=1e-12)


def test_scores_are_those_of_scikit_learn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sklearn.metrics import balanced_accuracy_score, mean_absolute_error, r2_score

    truth = np.array([row["price"] for row in read_csv(folder / "houses.csv")], float)
    run("fit", "houses.csv", "--target", "price", "--drop", "kind", "--n-landmarks", "30", "--out", "m")
    capsys.readouterr()
    run("score", "m", "houses.csv", "--json")
    found, guess = json.loads(capsys.readouterr().out), nystrom.load("m").predict(folder / "houses.csv")
    assert found["R2"] == pytest.approx(r2_score(truth, guess))
    assert found["mean absolute error"] == pytest.approx(mean_absolute_error(truth, guess))
    kinds = [row["kind"] for row in read_csv(folder / "houses.csv")]
    run("fit", "houses.csv", "--target", "kind", "--drop", "price", "--n-landmarks", "30", "--out", "m")
    capsys.readouterr()
    run("score", "m", "houses.csv", "--json")
    found, guess = json.loads(capsys.readouterr().out), nystrom.load("m").predict(folder / "houses.csv")
    assert found["balanced accuracy"] == pytest.approx(balanced_accuracy_score(kinds, guess))


def test_a_small_budget_takes_fewer_landmarks_where_none_were_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(folder / "more.csv", 3_000)
    assert run("fit", "more.csv", "--target", "price", "--drop", "kind", "--max-memory", "70MB", "--out", "m") == 0
    landmarks = int(re.search(r"fit\s+(\d+) landmarks", capsys.readouterr().out)[1])
    assert 50 <= landmarks < 1_000
    words = ["--target", "price", "--max-memory", "70MB", "--n-landmarks", "1000", "--out", "m"]
    assert run("fit", "more.csv", *words) == 2
    assert "this needs at least" in capsys.readouterr().err


MISTAKES = [
    (["fit", "houses.csv", "--target", "prise", "--out", "m"], r"no column 'prise'; did you mean 'price'\?"),
    (["fit", "houses.csv", "--out", "m"], "name the column to learn with --target"),
    (["fit", "hauses.csv", "--target", "price", "--out", "m"], "hauses.csv"),
    (["fit", "houses.csv", "--target", "price", "--out", "no/such/m"], "the folder no/such does not exist"),
    (["fit", "houses.csv", "--target", "price", "--model", "classifier", "--out", "m"], "needs a target of classes"),
    (["fit", "houses.csv", "--target", "kind", "--model", "ridge", "--out", "m"], "needs a target of numbers"),
    (["fit", "houses.csv", "--target", "price", "--n-clusters", "3", "--out", "m"], "has no parameter 'n_clusters'"),
    (["fit", "houses.csv", "--target", "price", "--kernel", "rbff", "--out", "m"], "kernel must be one of"),
    (["fit", "houses.csv", "--target", "price", "--set", "degre=2", "--out", "m"], "no parameter 'degre'"),
    (["fit", "houses.csv", "--target", "price", "--drop", "x", "--out", "m"], "no column 'x'"),
    (["predict", "houses.csv", "new.csv"], "not a nystrom model file"),
    (["predict", "m", "new.csv", "--out", "p.xlsx"], "must end in one of .csv, .jsonl, .parquet, .npy"),
    (["predict", "m", "new.csv", "--proba"], "gives no probabilities"),
    (["predict", "m", "new.csv", "--std"], "gives no deviations"),
    (["predict", "m", "new.csv", "--interval", "90"], "coverage must be a number between 0 and 1"),
    (["predict", "m", "other.csv"], "no column 'town', which was there"),
    (["error", "m", "other.csv"], r"other\.csv has no column 'town', which was there when .* It lacks 'built' too"),
    (["error", "m", "other.npy"], r"other\.npy has no column names, but the model was fitted to a table"),
    (["score", "m", "other.npy"], r"other\.npy has no column names, but the model was fitted to a table"),
    (["transform", "m", "new.csv"], "does not transform; use 'nystrom predict'"),
    (["score", "m", "new.csv"], "no column 'price'"),
    (["plan", "--rows", "abc", "--columns", "3", "--landmarks", "4"], "'abc' is not a whole number of at least 1"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_told_in_one_line_and_exit_code_2(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if words[0] not in ("fit", "plan"):
        (folder / "other.csv").write_text("rooms,City\n1,Oslo\n")
        np.save(folder / "other.npy", np.ones((3, 2)))
        run("fit", "houses.csv", "--target", "price", "--drop", "kind", "--n-landmarks", "20", "--out", "m")
        capsys.readouterr()
    try:
        code = run(*words)
    except SystemExit as stopped:  # argparse itself
        code = int(str(stopped))
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert "error: " in last
    assert re.search(message, last), last
    assert "Traceback" not in err


def test_a_command_names_the_packages_it_needs_before_it_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run("fit", "houses.csv", "--target", "price", "--out", "m") == 2
    assert "pip install pyarrow" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_found_before_the_fit(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("nystrom.commands.options.tempfile.TemporaryFile", refuse)
    assert run("fit", "nosuch.csv", "--target", "price", "--out", "m.nys") == 2
    assert "--out m.nys: the folder . cannot be written to (Permission denied)" in capsys.readouterr().err


def test_many_columns_are_summed_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"c{i}" for i in range(50)]
    rows = [",".join(f"{value:.3f}" for value in row) for row in rng.normal(size=(40, 50))]
    (folder / "wide.csv").write_text("\n".join([",".join(["same", *names]), *(f"1,{row}" for row in rows)]))
    assert run("fit", "wide.csv", "--target", "c0", "--out", "m.nys") == 0
    shown = capsys.readouterr().out
    assert "49 × number\n         same: left out" in shown
    assert "c7" not in shown
    assert len(re.findall(r"gamma=[\d.]+", shown)[0]) <= len("gamma=0.0012345")


def test_a_missing_file_is_named_without_a_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "nosuch.nystrom") == 2
    assert capsys.readouterr().err == "nystrom: error: nosuch.nystrom: No such file or directory\n"


def test_the_file_that_is_read_is_never_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "price", "--drop", "kind", "--n-landmarks", "20"]
    assert run("fit", "houses.csv", *words, "--out", "m.nys") == 0
    before = {name: (folder / name).read_bytes() for name in ("houses.csv", "new.csv", "m.nys")}
    assert run("fit", "houses.csv", *words, "--out", "./houses.csv") == 2
    assert run("predict", "m.nys", "new.csv", "--out", "new.csv") == 2
    assert "--out new.csv is the file that is read" in capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_an_empty_standard_input_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert run("fit", "-", "--target", "price", "--out", "m.nys") == 2
    assert capsys.readouterr().err == "nystrom: error: standard input is empty; it should be a table.\n"


def test_progress_is_told_of_the_fit_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "price", "--drop", "kind", "--n-landmarks", "20", "--out", "m.nys"]
    assert run("fit", "houses.csv", *words) == 0
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if "fit to" in line] == [
        "first fit to 320 rows; 80 are held out",
        "fit to all 400 rows",
    ]
    for name in ("landmarks", "factor", "regularisation"):  # one line per stage and fit
        assert [line.split(": ")[1].split(" ")[0] for line in shown if line.startswith(f"{name}: ")] == ["320", "400"]
    assert not any("predict" in line for line in shown)
    saved = nystrom.load("m.nys")[1]
    assert (saved.verbose, saved.metric) == (0, "auto")
    # The metric is learned in the first fit, and not again.
    assert [
        line.split(": ")[1].split(" ")[0] for line in shown if line.startswith("metric: ") and "sample" in line
    ] == ["320"]
    assert run("fit", "houses.csv", *words, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_a_fit_ends_with_a_verdict_on_held_out_rows(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystrom.engine.progress._LEAST_SECONDS", 0.0)
    write_table(folder / "more.csv", 1_000)
    write_table(folder / "later.csv", 2_000, seed=7)
    words = ["--target", "price", "--drop", "kind", "--metric", "none", "--n-landmarks", "100", "--out", "m", "--json"]
    assert run("fit", "more.csv", *words) == 0
    fitted = json.loads(capsys.readouterr().out)
    score = fitted["score"]
    assert (score["name"], score["rows"], score["fitted to"]) == ("R2", 200, 800)
    assert score["low"] < score["value"] < score["high"] <= 1
    assert score["baseline"] <= 0 < score["low"]
    assert set(fitted["leading"]) == {"rooms", "town", "built"}
    assert nystrom.load("m")[1].held_out_["value"] == score["value"]
    assert run("inspect", "m", "--json") == 0
    assert f"R² {score['value']:.3f}" in json.loads(capsys.readouterr().out)["held out"]
    assert run("predict", "m", "later.csv", "--out", "p.csv") == 0
    assert capsys.readouterr().err.startswith("predict: 2,000 rows, ")
    assert run("score", "m", "later.csv", "--json") == 0
    assert score["low"] < json.loads(capsys.readouterr().out)["R2"] < score["high"]
    words = ["--target", "kind", "--drop", "price", "--out", "m"]
    assert run("fit", "houses.csv", *words, "--quiet") == 0
    shown = capsys.readouterr().out
    assert re.search(r"score +accuracy 0\.\d+ \(95 % interval .* on 80 rows held out from a first fit to 320", shown)
    assert "always naming 'dear'" in shown or "always naming 'cheap'" in shown
    assert run("fit", "houses.csv", *words, "--holdout", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["score"]["on"] == "the rows of the fit"


def test_advice_names_rare_classes_and_what_was_not_tried(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    rare = rng.permutation(600) < 30
    lines = [f"{a:.3f},{b:.3f},{'rare' if r else 'usual'}" for (a, b), r in zip(x, rare, strict=True)]
    (folder / "rare.csv").write_text("a,b,y\n" + "\n".join(lines))
    assert run("fit", "rare.csv", "--target", "y", "--metric", "none", "--n-landmarks", "30", "--out", "m") == 0
    shown = capsys.readouterr().out
    assert "no better than the baseline" in shown
    assert "--class-weight balanced finds more of the rare classes; missed now: rare (0 of 6 rows)" in shown
    assert "--n-landmarks" not in shown  # it was given
    words = ["--target", "y", "--class-weight", "balanced", "--kernel", "matern", "--out", "m", "--json"]
    assert run("fit", "rare.csv", *words) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["advice"] == []
    assert fitted["score"]["classes"]["rare"]["rows"] == 6
    model = nystrom.load("m")[1]
    assert (model.class_weight, model.metric, model.kernel) == ("balanced", "auto", "matern")


def test_few_rows_are_fitted_without_a_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "few.csv").write_text("x,y\n" + "\n".join(f"{i},{i * i}.5" for i in range(12)))
    assert run("fit", "few.csv", "--target", "y", "--out", "m", "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["score"]["on"] == "the rows of the fit"
    assert "12 are too few" in shown.err


def test_dates_of_each_column_have_their_form(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{1 + i % 28:02d}/0{1 + i % 9}/2020,0{1 + i % 9}-{1 + i % 28:02d}-21,{i}.5" for i in range(60)]
    (folder / "dates.csv").write_text("start,end,y\n" + "\n".join(lines))
    words = ["--target", "y", "--date-format", "start=%d/%m/%Y", "--date-format", "end=%m-%d-%y", "--out", "m"]
    assert run("fit", "dates.csv", *words, "--json") == 0
    fitted = json.loads(capsys.readouterr().out)
    assert [column["kind"] for column in fitted["encoding"]] == ["date", "date"]
    assert run("fit", "dates.csv", *words, "--date-format", "%d/%m/%Y") == 2
    assert "name the column of each format" in capsys.readouterr().err


def test_a_limit_of_memory_does_not_change_the_fit(folder: Path) -> None:
    X = np.random.default_rng(0).integers(0, 9, size=(20_000, 200))
    names = ",".join(f"c{i}" for i in range(200))
    np.savetxt(folder / "wide.csv", X, "%d", ",", header=names, comments="")
    # A metric is that of the first fit, whose sample the limit bounds.
    words = ["--target", "c0", "--model", "ridge", "--n-landmarks", "20", "--metric", "none", "--seed", "0"]
    fits = []
    for limit in ("120MB", "2GB"):  # the rows take 32 MB, more than a quarter of the first limit: they are spooled
        assert run("fit", "wide.csv", *words, "--max-memory", limit, "--out", limit) == 0
        fits.append(nystrom.load(limit))
    assert fits[0][1].metric is None
    spooled, held = (fit[1].landmarks_ for fit in fits)
    np.testing.assert_array_equal(spooled, held)
    spooled, held = (fit.predict(folder / "wide.csv") for fit in fits)
    np.testing.assert_array_equal(spooled, held)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_interrupted_prediction_is_resumed(
    suffix: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.sin(np.arange(100.0))
    arrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr("nystrom.rows.arrow.BATCH_ROWS", 20)
    parquet.write_table(arrow.table({"x": np.tile(x, 10), "y": 0.1 * np.arange(1000)}), "fit.parquet")
    parquet.write_table(arrow.table({"x": x}), "new.parquet", row_group_size=20)
    assert run("fit", "fit.parquet", "--target", "y", "--n-landmarks", "20", "--out", "m") == 0
    whole, resumed = f"whole{suffix}", f"resumed{suffix}"
    assert run("predict", "m", "new.parquet", "--keep", "--out", whole) == 0
    seen: list[int] = []
    real = nystrom.KernelRidge.predict

    def predict(self: Any, X: Any, **more: Any) -> Any:
        if len(X) == 20 and len(seen) == 3:
            raise KeyboardInterrupt
        seen.extend([len(X)] * (len(X) == 20))  # loading a model predicts one row
        return real(self, X, **more)

    monkeypatch.setattr(nystrom.KernelRidge, "predict", predict)
    assert run("predict", "m", "new.parquet", "--keep", "--out", resumed) == 130
    assert not Path(resumed).exists()
    seen[:] = [0, 0, 0, 0]  # four calls more than that are none
    capsys.readouterr()
    assert run("predict", "m", "new.parquet", "--keep", "--out", resumed) == 0
    assert sum(seen) == 40
    assert "resumed after 60 rows" in capsys.readouterr().err
    assert Path(resumed).read_bytes() == Path(whole).read_bytes()
    assert not Path(f"{resumed}.partial").exists()
