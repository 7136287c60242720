"""Classes come out of a table as they went in, whatever holds it; so do numbers in the dress of their country."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from nystrom import KernelRidgeClassifier
from nystrom.exceptions import TableWarning
from nystrom.preprocessing import TableEncoder

pytest.importorskip("pyarrow")
A = np.random.default_rng(0).normal(size=90)
K = np.arange(90) % 3
LABELS = {
    "beyond 2**53": np.array([2**53 + 1, 2**53, 2**53 - 2]),
    "least int64": np.array([-(2**63), 2**63 - 1, 0]),
    "uint64": np.array([2**64 - 1, 2**63, 5], dtype=np.uint64),
    "int8": np.array([-1, 0, 1], dtype=np.int8),
    "booleans": np.array([True, False, True]),
    "blanks": np.array([" u", "v ", "w"]),
    "1 and 1.0": np.array(["1.0", "1", "w"]),
    "numbers in text": np.array(["1", "2", "03"]),
}


def write(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        (frame.to_parquet if path.suffix == ".parquet" else frame.to_feather)(path)
    return path


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("source", ["frame", ".parquet", ".feather"])
def test_labels_come_out_as_they_went_in(labels, source, tmp_path):
    frame = pd.DataFrame({"a": A, "t": labels[K]})
    table = frame if source == "frame" else write(frame, tmp_path / f"t{source}")
    encoder = TableEncoder(target="t").fit(table)
    y = encoder.rows(table).target()
    assert y.tolist() == frame["t"].tolist()
    assert encoder.class_labels().tolist() == sorted(set(frame["t"].tolist()))


@pytest.mark.parametrize("name", ["beyond 2**53", "least int64", "int8", "booleans", "blanks", "1 and 1.0"])
def test_labels_of_a_csv_file_come_out_as_they_were_written(name, tmp_path):
    frame = pd.DataFrame({"a": A, "t": LABELS[name][K]})
    path = write(frame, tmp_path / "t.csv")
    assert TableEncoder(target="t").fit(path).rows(path).target().tolist() == frame["t"].tolist()


def test_labels_that_cannot_be_kept_are_refused(tmp_path):
    path = write(pd.DataFrame({"a": A, "t": LABELS["uint64"][K]}), tmp_path / "t.csv")
    with pytest.raises(ValueError, match="double precision cannot tell apart"):
        TableEncoder(target="t").fit(path)
    y = TableEncoder(target="t", types={"t": "category"}).fit(path).rows(path).target()
    assert set(y) == {str(2**64 - 1), str(2**63), "5"}


@pytest.mark.parametrize("fitted", [".csv", ".parquet"])
def test_a_model_of_booleans_scores_every_format(fitted, tmp_path):
    frame = pd.DataFrame({"a": A, "b": A**2, "t": A > 0})
    paths = [write(frame, tmp_path / f"t{suffix}") for suffix in (".csv", ".parquet", ".feather")]
    model = make_pipeline(TableEncoder(target="t"), KernelRidgeClassifier(n_landmarks=30, random_state=0))
    model.fit(tmp_path / f"t{fitted}")
    scores = {model.score(source) for source in (*paths, frame)} | {model.score(frame, frame["t"])}
    assert len(scores) == 1
    assert scores.pop() > 0.9


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("a;b\n999;3,50\n1.234;2,75\n12.500;4,10\n850;9,99\n", 3895.75),
        ("a;b\n1.000,50;1\n2.000,50;2\n", 1500.5),
        ('a,b\n"1,200",1\n"2,400",2\n', 1800.0),
        ("a,b\n$1.5,1\n$2.5,2\n", 2.0),
        ("a;b\n1,50 €;1\n2,50 €;2\n", 2.0),
        ("a,b\n10%,1\n30%,2\n", 0.2),
        ("a;b\n7.4;1\n0.66;3\n", 4.03),
    ],
)
def test_numbers_are_read_as_their_file_writes_them(text, mean, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    column = TableEncoder().fit(tmp_path / "t.csv").columns_[0]
    assert column.kind == "number"
    assert column.mean == pytest.approx(mean)


@pytest.mark.parametrize(
    "text", ["a,b\n10%,1\n3,2\n", "a,b\n$1,1\n€2,2\n", "a;b\n1.5;0,5\n2.5;0,7\n", 'a,b\n"1,5",1\n"2,5",2\n']
)
@pytest.mark.filterwarnings("ignore::nystrom.exceptions.TableWarning")
def test_numbers_that_could_be_either_stay_text(text, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    assert TableEncoder().fit(tmp_path / "t.csv").columns_[0].kind == "category"


def test_a_date_format_applies_where_it_fits():
    table = {"born": ["31/01/2020", "01/02/2021", "05/06/2022"], "seen": ["2020-01-31", "2021-02-01", "2022-03-01"]}
    for form in ("%d/%m/%Y", {"born": "%d/%m/%Y"}):
        columns = TableEncoder(date_format=form).fit(table).columns_
        assert [column.kind for column in columns] == ["date", "date"]
        assert [column.date_format for column in columns] == ["%d/%m/%Y", None]
    with pytest.raises(ValueError, match="dates of 'seen' are written as"):
        TableEncoder(date_format={"seen": "%d/%m/%Y"}).fit(table)
    with pytest.raises(ValueError, match="no column 'bron'; did you mean 'born'"):
        TableEncoder(date_format={"bron": "%d/%m/%Y"}).fit(table)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("PassengerId", np.arange(1, 91)),
        ("customer_id", np.random.default_rng(0).permutation(90) + 1000),
        ("id", np.arange(90) * 7),
        ("who", [f"name {i}" for i in range(90)]),
    ],
)
def test_identifiers_are_left_out_with_a_warning(name, values):
    with pytest.warns(TableWarning, match=f"'{name}' is left out"):
        encoder = TableEncoder().fit(pd.DataFrame({name: values, "a": A}))
    assert encoder.get_feature_names_out().tolist() == ["a"]


def test_an_identifier_that_repeats_or_is_asked_for_stays():
    assert len(TableEncoder().fit({"id": K, "a": A}).get_feature_names_out()) == 2
    kept = TableEncoder(types={"id": "number"}).fit({"id": np.arange(90), "a": A})
    assert len(kept.get_feature_names_out()) == 2


def test_encoded_columns_never_share_a_name():
    names = TableEncoder().fit({"a": ["x", "y", "x"], "a_x": [1.0, 2.0, 5.0]}).get_feature_names_out()
    assert len(set(names)) == len(names) == 3


def test_a_column_of_another_kind_than_in_the_fit_is_named():
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(90), unit="D")
    encoder = TableEncoder().fit(pd.DataFrame({"a": A, "when": when, "sure": A > 0}))
    frame = pd.DataFrame({"a": A, "when": when, "sure": A > 0})
    for name, values, said in (("when", 5.0, "a date"), ("a", when, "a number"), ("sure", 7, "true or false")):
        with pytest.raises(ValueError, match=f"column '{name}'.*is not {said}"):
            encoder.transform(frame.assign(**{name: values}))
    with pytest.raises(ValueError, match="column 'a' must be a list"):
        encoder.transform({"a": 1.0, "when": "2020-01-01", "sure": True})
