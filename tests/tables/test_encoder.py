"""Tables with numbers, text, dates and gaps become the same rows from every container, or say why not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom.exceptions import DataFileError, ModelFileError, TableWarning
from nystrom.preprocessing import TableEncoder
from nystrom.tables.columns import Moments
from nystrom.tables.source import open_table

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def make_frame(n: int = 2_000, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "city": rng.choice(["Bern", "Oslo", "Rome", "Zug, old"], n, p=[0.4, 0.3, 0.2, 0.1]),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "member": rng.random(n) < 0.5,
        }
    )
    frame["price"] = 2 * frame["age"] + 30 * (frame["city"] == "Oslo") + 5 * frame["member"] + rng.normal(size=n)
    frame.loc[frame.index % 7 == 3, "age"] = np.nan
    frame.loc[frame.index % 11 == 4, "city"] = None
    frame.loc[frame.index % 13 == 5, "since"] = pd.NaT
    return frame


FRAME = make_frame()
FEATURES = [
    "age", "age_missing", "city_Bern", "city_Oslo", "city_Rome", "city_Zug, old", "city_missing", "since",
    "since_year_sin", "since_year_cos", "since_week_sin", "since_week_cos", "since_missing", "member",
]  # fmt: skip


def sources(folder: Path) -> dict[str, Any]:
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_csv(folder / "t.tsv", index=False, sep="\t")
    FRAME.to_csv(folder / "semicolon.csv", index=False, sep=";")
    FRAME.to_csv(folder / "t.csv.gz", index=False)
    FRAME.to_parquet(folder / "t.parquet", row_group_size=300)
    FRAME.to_feather(folder / "t.feather")
    (folder / "parts").mkdir()
    for i in range(3):
        FRAME[i * 700 : (i + 1) * 700].to_csv(folder / "parts" / f"{i}.csv", index=False)
    found: dict[str, Any] = {path.name: path for path in folder.iterdir()} | {
        "frame": FRAME,
        "arrow": pa.Table.from_pandas(FRAME),
        "dict": FRAME.to_dict("list"),
    }
    try:
        import polars
    except ImportError:
        return found
    frame = polars.from_pandas(FRAME)
    return {**found, "polars": frame, "lazy": frame.lazy()}


def test_every_container_gives_the_same_rows(tmp_path: Path) -> None:
    expected = TableEncoder(target="price").fit(FRAME).transform(FRAME)
    assert expected.shape == (len(FRAME), len(FEATURES))
    for name, source in sources(tmp_path).items():
        encoder = TableEncoder(target="price").fit(source)
        assert encoder.get_feature_names_out().tolist() == FEATURES, name
        rows = encoder.rows(source)
        np.testing.assert_allclose(rows.take(np.arange(len(FRAME))), expected, rtol=0, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(rows.target(), FRAME["price"], err_msg=name)


def test_numbers_are_scaled_and_gaps_stand_at_the_mean() -> None:
    Z = TableEncoder().fit_transform(FRAME[["age"]])
    seen = FRAME["age"].notna().to_numpy()
    np.testing.assert_allclose([Z[seen, 0].mean(), Z[seen, 0].std()], [0, 1], atol=1e-12)
    assert (Z[~seen, 0] == 0).all()
    np.testing.assert_array_equal(Z[:, 1], ~seen)


def test_an_unknown_category_is_other_or_none_of_the_known() -> None:
    known = {"c": ["a", "a", "b", "c", "c", "c"]}
    few = TableEncoder(max_categories=2).fit(known)
    assert few.get_feature_names_out().tolist() == ["c_c", "c_a", "c_other"]
    np.testing.assert_array_equal(few.transform({"c": ["b", "never seen", None]}), [[0, 0, 1], [0, 0, 1], [0, 0, 0]])
    every = TableEncoder().fit(known)
    np.testing.assert_array_equal(every.transform({"c": ["never seen"]}), [[0, 0, 0]])


def test_codes_are_one_column_and_an_unknown_category_has_one_that_no_row_has() -> None:
    known = {"c": ["a", "a", "b", "c", "c", "c"], "n": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    coded = TableEncoder(categories="codes", max_categories=2).fit(known)
    assert coded.get_feature_names_out().tolist() == ["c", "n"]
    np.testing.assert_array_equal(coded.transform(known)[:, 0], [1, 1, 2, 0, 0, 0])
    new = {"c": ["c", "never seen", None], "n": [1.0, 1.0, 1.0]}
    np.testing.assert_array_equal(coded.transform(new)[:, 0], [0, -1, -1])
    gaps = TableEncoder(categories="codes").fit({"c": ["a", "a", "b", None]})
    np.testing.assert_array_equal(gaps.transform({"c": ["b", "never seen", None]}), [[1], [-1], [3]])
    with pytest.raises(ValueError, match=r"categories must be one of \('one-hot', 'codes'\); got 'ordinal'"):
        TableEncoder(categories="ordinal").fit(known)


def test_values_forgotten_for_their_number_share_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nystrom.tables.columns._MOST_VALUES", 6)
    words = [*"aaaabbbbccccdefg"]
    coded = TableEncoder(categories="codes", types={"c": "category"}).fit({"c": words})
    assert coded.columns_[0].categories == ("a", "b", "c")
    np.testing.assert_array_equal(coded.transform({"c": ["a", "g", "never seen"]}), [[0], [3], [3]])


def test_codes_come_back_from_a_file_with_the_kernel_of_them(tmp_path: Path) -> None:
    from nystrom.kernels import Gaussian, Overlap

    table, y = FRAME[["age", "city"]], FRAME["price"]
    encoder = TableEncoder(categories="codes")
    assert encoder.fit(table).get_feature_names_out().tolist() == ["age", "age_missing", "city"]
    kernel = Overlap(1.0).on(2) * Gaussian(1.0).on([0, 1])
    pipeline = make_pipeline(encoder, nystrom.KernelRidge(0.1, kernel=kernel, landmarks="uniform", random_state=0))
    pipeline.fit(table, y)
    nystrom.save(pipeline, tmp_path / "m.nystrom")
    loaded = nystrom.load(tmp_path / "m.nystrom")
    np.testing.assert_array_equal(loaded.predict(table), pipeline.predict(table))
    assert loaded["tableencoder"].categories == "codes"


@pytest.mark.parametrize("categories", ["one-hot", "codes"])
def test_the_command_line_counts_unseen_categories(
    categories: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nystrom.commands.main import main

    FRAME[["city", "price"]].dropna().to_csv(tmp_path / "t.csv", index=False)
    pipeline = make_pipeline(
        TableEncoder("price", categories=categories), nystrom.KernelRidge(0.1, landmarks="uniform", random_state=0)
    )
    nystrom.save(pipeline.fit(tmp_path / "t.csv"), tmp_path / "m.nystrom")
    (tmp_path / "new.csv").write_text("city\nBern\nParis\nOslo\n")
    main(["predict", str(tmp_path / "m.nystrom"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")])
    assert "of 3 rows: 'city' in 1 rows" in capsys.readouterr().err


def test_parts_learn_what_the_whole_does() -> None:
    whole = TableEncoder().fit(FRAME)
    parts = TableEncoder()
    for start in range(0, len(FRAME), 300):
        parts.partial_fit(FRAME[start : start + 300])
    assert parts.n_rows_ == whole.n_rows_ == len(FRAME)
    np.testing.assert_allclose(parts.transform(FRAME), whole.transform(FRAME), atol=1e-12)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), min_size=1, max_size=5), st.floats(-1e9, 1e9))
def test_moments_of_parts_are_those_of_the_whole(parts: list[list[float]], offset: float) -> None:
    moments = Moments()
    for part in parts:
        moments.add(np.array(part) + offset)
    whole = np.concatenate([np.array(part) + offset for part in parts])
    size = np.abs(whole).max() + 1
    assert moments.mean == pytest.approx(whole.mean(), abs=1e-12 * size)
    assert moments.deviation == pytest.approx(whole.std(), abs=1e-6 * size**0.5 + 1e-12 * size)


def test_columns_of_a_csv_are_understood_by_all_their_values(tmp_path: Path) -> None:
    lines = ["n,late,truth,zoned,when,stray"]
    lines += [
        f"{i}, {i} ,{'true' if i % 2 else 'FALSE'},2020-01-0{i % 9 + 1}T10:00:00Z,2021-02-0{i % 9 + 1},{i}"
        for i in range(40)
    ]
    lines += ["NA,x,true,?,2021-03-01 12:30,oops"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    with pytest.warns(TableWarning, match=r"'stray' read as text because of 'oops', while 40 of its 41 values are num"):
        encoder = TableEncoder(max_categories=50).fit(path)
    kinds = {column.name: column.kind for column in encoder.columns_}
    assert kinds == {
        "n": "number", "late": "category", "truth": "boolean", "zoned": "date", "when": "date", "stray": "category",
    }  # fmt: skip


def test_columns_that_tell_nothing_are_left_out_with_a_warning() -> None:
    table = {"id": [f"user {i}" for i in range(100)], "one": [1] * 100, "gaps": [None] * 100, "x": list(range(100))}
    with pytest.warns(TableWarning, match=r"'id' is left out: nearly every.*'one' is left out.*'gaps' is left out"):
        encoder = TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == ["x"]
    with pytest.raises(ValueError, match="no column of X is left"):
        TableEncoder().fit({"one": [1, 1]})


def test_kinds_can_be_said() -> None:
    table = {"zip": [8001, 8002, 8001, 8003], "day": ["01.02.2020", "02.02.2020", "03.03.2021", None]}
    encoder = TableEncoder(types={"zip": "category", "day": "date"}, date_format="%d.%m.%Y").fit(table)
    assert encoder.get_feature_names_out().tolist()[:3] == ["zip_8001", "zip_8002", "zip_8003"]
    # A gap turns pandas' whole numbers into floats; the categories stay.
    frame = pd.DataFrame({"zip": [8003, None], "day": ["01.02.2020", None]})
    np.testing.assert_array_equal(encoder.transform(frame)[:, :3], [[0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(encoder.transform({"zip": ["8003.0"], "day": [None]})[:, :3], [[0, 0, 1]])
    with pytest.raises(ValueError, match=r"types says that 'day' holds a number"):
        TableEncoder(types={"day": "number"}).fit(table)
    with pytest.raises(ValueError, match=r"types\['zip'\] must be one of"):
        TableEncoder(types={"zip": "text"}).fit(table)


def test_a_value_of_another_kind_names_its_row_and_column(tmp_path: Path) -> None:
    encoder = TableEncoder().fit({"age": [1.0, 2.0], "x": [1.0, 3.0]})
    path = tmp_path / "new.csv"
    path.write_text("x,age\n1,2\n2,abc\n")
    with pytest.raises(DataFileError, match=r"new\.csv, row 1, column 'age': 'abc' is not a number"):
        encoder.transform(path).take(np.arange(2))


def test_a_wrong_column_name_lists_the_near_ones() -> None:
    with pytest.raises(ValueError, match=r"no column 'prices'; did you mean 'price'\?"):
        TableEncoder(target="prices").fit(FRAME)
    encoder = TableEncoder().fit(FRAME[["age", "city"]])
    with pytest.raises(ValueError, match=r"no column 'city', which was there .* did you mean 'City'\?"):
        encoder.transform(FRAME.rename(columns={"city": "City"}))
    np.testing.assert_array_equal(encoder.transform(FRAME[["price", "city", "age"]]), encoder.transform(FRAME))


def test_nested_columns_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"column 'tags' of X holds list.*drop=\['tags'\]"):
        TableEncoder().fit({"x": [1, 2], "tags": [[1], [2, 3]]})


def test_lines_longer_than_a_block_are_read(tmp_path: Path) -> None:
    width = 40_000
    lines = [",".join(f"column{j}" for j in range(width))]
    lines += [",".join(f"{(i * j) % 97}.5" for j in range(width)) for i in range(1, 4)]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    table = open_table(tmp_path / "wide.csv")
    assert sum(batch.num_rows for batch in table.batches(table.names[:3])) == 3


def test_rows_without_a_target_are_left_out_with_a_warning() -> None:
    frame = FRAME.copy()
    frame.loc[:9, "price"] = np.nan
    encoder = TableEncoder(target="price").fit(frame)
    with pytest.warns(TableWarning, match="10 of 2000 rows of X have no target"):
        rows = encoder.rows(frame)
    assert rows.shape[0] == len(frame) - 10
    np.testing.assert_array_equal(rows.target(), frame["price"].to_numpy()[10:])


@pytest.mark.parametrize(
    ("values", "is_class", "first"),
    [
        (["no", "yes"], True, "no"),
        ([0, 1], True, 0),
        ([0.0, 1.0], True, 0),
        ([0.5, 1.5], False, 0.5),
        (list(range(100)), False, 0.0),
        ([True, False], True, True),
    ],
)
def test_the_target_says_whether_it_names_classes(values: list[Any], is_class: bool, first: Any) -> None:
    y = (values * 100)[:100]
    encoder = TableEncoder(target="y").fit({"x": list(range(100)), "y": y})
    assert encoder.target_ is not None
    assert encoder.target_.is_class == is_class
    target = encoder.rows({"x": list(range(100)), "y": y}).target()
    assert target is not None
    assert target[0] == first


def test_classes_of_digits_after_a_zero_stay_codes(tmp_path: Path) -> None:
    codes = ["007", "7", "12"] * 40
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},{code}\n" for i, code in enumerate(codes)))
    for source in (tmp_path / "t.csv", {"x": list(range(120)), "y": codes}):
        assert TableEncoder(target="y").fit(source).rows(source).target().tolist() == codes  # type: ignore[union-attr]
    (tmp_path / "n.csv").write_text("x,y\n" + "".join(f"{i},{i / 4:07.2f}\n" for i in range(120)))
    assert TableEncoder(target="y").fit(tmp_path / "n.csv").target_.kind == "number"  # type: ignore[union-attr]
    kept = TableEncoder(target="y", types={"y": "number"}).fit(tmp_path / "t.csv")
    assert set(kept.rows(tmp_path / "t.csv").target()) == {7, 12}  # type: ignore[arg-type]


@pytest.mark.parametrize("types", [None, {"y": "category"}])
def test_a_target_of_dates_is_refused(types: dict[str, Any] | None) -> None:
    days = pd.to_datetime(["2020-01-01", "2021-01-01"] * 20)
    with pytest.raises(TypeError, match="the target 'y' holds dates"):
        TableEncoder(target="y", types=types).fit({"x": list(range(40)), "y": days})


def test_a_pipeline_goes_from_a_file_to_predictions_and_back_from_disk(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    pipeline = make_pipeline(
        TableEncoder(target="price"), nystrom.KernelRidge(alpha=0.1, n_landmarks=150, random_state=0)
    )
    pipeline.fit(tmp_path / "t.csv")
    assert pipeline.score(tmp_path / "t.csv") > 0.8
    new = FRAME.drop(columns="price")
    expected = pipeline.predict(new)
    np.testing.assert_array_equal(pipeline.predict(tmp_path / "t.csv"), expected)
    for full in (False, True):
        nystrom.save(pipeline, tmp_path / "m.nystrom", full=full)
        loaded = nystrom.load(tmp_path / "m.nystrom")
        np.testing.assert_array_equal(loaded.predict(new), expected)
    loaded["tableencoder"].partial_fit(FRAME)
    assert loaded["tableencoder"].n_rows_ == 2 * len(FRAME)


def test_an_encoder_from_a_file_without_statistics_does_not_go_on_learning(tmp_path: Path) -> None:
    TableEncoder().fit(FRAME).save(tmp_path / "e.nystrom")
    with pytest.raises(ValueError, match="without its statistics"):
        nystrom.load(tmp_path / "e.nystrom").partial_fit(FRAME)


def test_a_forged_encoder_is_refused(tmp_path: Path) -> None:
    from nystrom.tables.columns import Column

    encoder = TableEncoder().fit(FRAME)
    object.__setattr__(encoder.columns_[0], "scale", 0.0)
    assert isinstance(encoder.columns_[0], Column)
    encoder.save(tmp_path / "e.nystrom")
    with pytest.raises(ModelFileError, match="'age' has an invalid description"):
        nystrom.load(tmp_path / "e.nystrom")


def test_scikit_learn_knows_the_encoder() -> None:
    encoder = clone(TableEncoder(target="price", drop=["since"], max_categories=3)).set_output(transform="pandas")
    frame = encoder.set_params(target=None).fit(FRAME).transform(FRAME)
    assert list(frame.columns) == encoder.get_feature_names_out().tolist()
    assert "since" not in "".join(frame.columns)


def test_encoded_rows_stream_within_a_memory_budget(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    encoder = TableEncoder(target="price").fit(tmp_path / "t.csv")
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=50, random_state=0, max_memory="75MB")
    streamed = model.fit(encoder.rows(tmp_path / "t.csv"))
    held = nystrom.KernelRidge(alpha=1.0, n_landmarks=50, random_state=0).fit(encoder.transform(FRAME), FRAME["price"])
    np.testing.assert_array_equal(streamed.landmark_coef_, held.landmark_coef_)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"a,a\n1,2\n", "two columns have the name 'a'"),
        (b"a,b\n1,2\n3\n", "row 1: 1 columns, but the header has 2"),
        (b"\xff\xfe\x00a,b\n1,2\n", "cannot be read|in the rows from 0 on"),
        (b"\x00a\x00,\x00b\x00\n\x001\x00,\x002", "zero bytes, so it is not text in UTF-8"),
        (b"a,b\n1,\xff\xfe\n", "invalid UTF8|Invalid UTF8"),
        (b"a,b\n", "no value|no column|holds no rows"),
        (
            gzip.compress(b"a,b\n1,2\n", mtime=0),
            r"is compressed by gzip, not text\. Give it a name that ends in \.csv\.gz\.",
        ),
        (b"\x28\xb5\x2f\xfd....", r"is compressed by Zstandard, not text\. Save it as CSV or Parquet\."),
        (b"PAR1....", r"is a Parquet file, not text\. Give it a name that ends in \.parquet\."),
    ],
)
def test_damaged_tables_are_told_in_one_line(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=message) as caught:
        TableEncoder().fit(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n" * 1000)[:-20])
    with pytest.raises((DataFileError, OSError), match=r"t\.csv\.gz"):
        TableEncoder().fit(path)


ROWS = [("1.5", "2020-01-31", "x"), ("-2", "2021-03-01", "y"), ("", "2020-06-15", "x"), ("1e3", "2022-01-01", "z")]


@pytest.mark.parametrize(
    ("delimiter", "encoding", "end", "suffix"),
    [
        (",", "utf-8", "\n", ".csv"),
        (",", "utf-8-sig", "\r\n", ".csv"),
        (";", "utf-8", "\n", ".csv"),
        ("|", "utf-8", "\n", ".csv"),
        ("\t", "utf-16", "\r\n", ".tsv"),
        (";", "utf-16", "\n", ".csv.gz"),
    ],
)
def test_ways_to_write_a_csv_give_the_same_rows(
    delimiter: str, encoding: str, end: str, suffix: str, tmp_path: Path
) -> None:
    lines = [delimiter.join(line) for line in [("size", "day", '"a,b"'), *ROWS]]
    if delimiter == ";":
        lines = [line.replace(".", ",") for line in lines]
    path = tmp_path / f"t{suffix}"
    raw = (end.join(lines) + end).encode(encoding)
    path.write_bytes(gzip.compress(raw) if suffix.endswith("gz") else raw)
    table = {
        "size": [1.5, -2, None, 1e3],
        "day": pd.to_datetime([row[1] for row in ROWS]),
        "a,b": [row[2] for row in ROWS],
    }
    expected = TableEncoder().fit(table)
    found = TableEncoder().fit(path)
    assert found.get_feature_names_out().tolist() == expected.get_feature_names_out().tolist()
    np.testing.assert_allclose(found.rows(path).take(np.arange(4)), expected.transform(table), atol=1e-12)


def test_a_decimal_comma_can_be_said_and_is_not_guessed_in_other_files(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("a\tb\n1,5\t1\n2,5\t3\n3,5\t2\n")
    with pytest.warns(TableWarning, match="'a' looks like numbers with a decimal comma, as in '1,5' .decimal=','; --d"):
        assert TableEncoder().fit(path).columns_[0].kind == "category"
    assert TableEncoder(decimal=",").fit(path).columns_[0].mean == 2.5
    with pytest.raises(ValueError, match="decimal must be"):
        TableEncoder(decimal=";").fit(path)


@pytest.mark.parametrize("at", [0, 5_000, 9_999])
def test_a_word_among_numbers_is_named_wherever_it_stands(at: int, tmp_path: Path) -> None:
    values = [f"{i / 7:.3f}" for i in range(10_000)]
    values[at] = "oops"
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{value},{i % 5}\n" for i, value in enumerate(values)))
    with pytest.warns(
        TableWarning, match="because of 'oops', while 9,999 of its 10,000 values are numbers .correct it, or name it"
    ):
        TableEncoder().fit(path)
    assert TableEncoder(missing_values=["oops"]).fit(path).columns_[0].kind == "number"


@pytest.mark.parametrize(("form", "text"), [("%d.%m.%Y", "%d.%m.%Y"), ("%m/%d/%Y %H:%M", "%m/%d/%Y 10:30")])
@pytest.mark.parametrize("step", [1, 7])
def test_dates_in_a_common_form_are_read(form: str, text: str, step: int, tmp_path: Path) -> None:
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(0, 900, step), unit="D")
    frame = pd.DataFrame({"day": days.strftime(text), "x": np.sin(np.arange(len(days)))})
    frame.to_csv(tmp_path / "t.csv", index=False)
    said = TableEncoder(date_format={"day": form}).fit(frame)
    for table in (frame, tmp_path / "t.csv"):
        found = TableEncoder().fit(table)
        assert found.columns_ == said.columns_
        assert np.array_equal(np.asarray(found.transform(frame)), said.transform(frame))


def test_dates_that_may_be_day_or_month_first_are_pointed_out() -> None:
    days = pd.to_datetime(
        [f"20{year}-{month:02d}-{day:02d}" for year in (19, 20) for month in (3, 5) for day in (2, 9)]
    )
    table = {"day": days.strftime("%d/%m/%Y").tolist(), "x": np.sin(np.arange(len(days)))}
    with pytest.warns(TableWarning, match="looks like dates .give their format: date_format='%m/%d/%Y'"):
        TableEncoder().fit(table)
    with pytest.raises(
        ValueError, match="dates of 'day' may be written as '%m/%d/%Y' or '%d/%m/%Y': give the right one"
    ):
        TableEncoder(types={"day": "date"}).fit(table)
    assert TableEncoder(date_format="%d/%m/%Y").fit(table).columns_[0].kind == "date"


def test_times_without_a_zone_count_as_utc_beside_times_with_one() -> None:
    texts = ["2020-01-01T12:00:00Z", "2020-01-02T12:00:00+02:00", "2020-01-03 12:00:00", "2020-01-04", None]
    found = TableEncoder().fit({"t": texts}).columns_[0]
    assert found.kind == "date"
    at = np.array([0.5, 1 + 10 / 24, 2.5, 3.0]) + 18262
    assert found.mean == pytest.approx(at.mean())


def test_numbers_too_large_to_scale_are_named() -> None:
    with pytest.raises(DataFileError, match=r"^X: column 'a' holds -1e\+300: numbers beyond 1e\+150 cannot be scaled"):
        TableEncoder().fit({"a": [1.0, -1e300, 2.0]})


def test_a_nameless_column_that_counts_the_rows_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": np.sin(np.arange(20_000)), "step": np.arange(20_000) + 5}).to_csv(path)
    with pytest.warns(TableWarning, match="column '' is left out: it has no name and counts the rows"):
        encoder = TableEncoder().fit(path)
    assert encoder.get_feature_names_out().tolist() == ["x", "step"]
    assert [column.note for column in encoder.columns_[1:]] == ["", "counts the rows"]


def test_tables_with_nothing_to_learn_from_say_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n")
    with pytest.raises(ValueError, match="holds no rows"):
        TableEncoder(target="y").fit(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="no column besides the target 'y'"):
        TableEncoder(target="y").fit({"y": [1.0, 2.0]})


def test_labels_are_those_of_the_target() -> None:
    encoder = TableEncoder(target="c").fit({"a": [1, 2, 3], "c": ["b", None, "a"]})
    assert encoder.class_labels().tolist() == ["a", "b"]
    assert TableEncoder(target="c").fit({"a": [1, 2, 3], "c": [10, 9, np.inf]}).class_labels().tolist() == [9, 10]
    assert TableEncoder(target="c").fit({"a": [1, 2, 3], "c": [1.5, 9, 10]}).class_labels() is None


def test_columns_left_out_for_one_reason_are_named_together_and_not_all_of_them() -> None:
    frame = pd.DataFrame({f"c{j}": np.zeros(20) for j in range(30)} | {"x": np.arange(20.0) ** 2, "gaps": [None] * 20})
    told = r"^30 columns are left out: every value is the same.* \('c0', .*'c9', …\); column 'gaps' is left out: every"
    with pytest.warns(TableWarning, match=told):
        TableEncoder().fit(frame)


def test_long_lines_come_in_larger_blocks_that_are_counted(tmp_path: Path) -> None:
    """A column of a block costs the same however few lines it has."""
    width, rows = 800, 700
    path = tmp_path / "wide.csv"
    line = ",".join("1" for _ in range(width))
    path.write_text(",".join(f"c{j}" for j in range(width)) + "\n" + "\n".join([line] * rows), encoding="utf-8")
    table = open_table(path)
    lengths = [batch.num_rows for batch in table.batches(table.names)]
    assert sum(lengths) == rows
    assert max(lengths) >= 500
    assert table.held_bytes > 50e6


def test_a_target_that_is_no_number_in_a_later_file_is_named_by_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},{i / 7}\n" for i in range(30)))
    (tmp_path / "b.csv").write_text("x,y\n" + "".join(f"{i},{'yes' if i == 4 else i / 7}\n" for i in range(30)))
    encoder = TableEncoder("y").fit(tmp_path / "a.csv")
    with pytest.raises(DataFileError, match=r"b\.csv, row 4, column 'y': the target 'yes' is not a number"):
        encoder.rows(tmp_path / "b.csv")
