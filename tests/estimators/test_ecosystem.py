"""Frames, tensors and scikit-learn's own machinery: the same answers, names checked, metadata passed on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nystrom

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
NAMES = ["length", "width", "height"]


def as_pandas() -> Any:
    return pytest.importorskip("pandas").DataFrame(X, columns=NAMES)


def as_polars() -> Any:
    return pytest.importorskip("polars").DataFrame(X, schema=NAMES)


def as_lazy() -> Any:
    return as_polars().lazy()


def as_arrow() -> Any:
    arrow = pytest.importorskip("pyarrow")
    return arrow.table({name: X[:, j] for j, name in enumerate(NAMES)})


def as_dask() -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(as_pandas(), npartitions=3)


FRAMES = [as_pandas, as_polars, as_lazy, as_arrow, as_dask]


def columns_of(frame: Any, names: list[str]) -> Any:
    return frame.select(names) if hasattr(frame, "select") else frame[names]


@pytest.mark.parametrize("make", FRAMES)
def test_a_frame_gives_the_answers_of_its_array_and_its_names_are_checked(make: Any) -> None:
    frame = make()
    Z = X[:30]
    model = nystrom.KernelRidge(alpha=1.0, landmarks=Z, gamma=0.3).fit(frame, Y)
    expected = nystrom.KernelRidge(alpha=1.0, landmarks=Z, gamma=0.3).fit(X, Y).predict(X)
    np.testing.assert_allclose(np.asarray(model.predict(frame)), expected, rtol=1e-7)
    assert list(model.feature_names_in_) == NAMES
    with pytest.raises(ValueError, match="feature names"):
        model.predict(columns_of(frame, NAMES[::-1]))


def test_features_come_back_as_the_frame_asked_for() -> None:
    pandas = pytest.importorskip("pandas")
    frame = as_pandas().set_index(np.arange(600) * 2)
    for model in (nystrom.Nystroem(n_components=4), nystrom.KernelPCA(n_components=4)):
        out = model.set_output(transform="pandas").set_params(random_state=0).fit(frame).transform(frame)
        assert isinstance(out, pandas.DataFrame)
        assert list(out.columns) == list(model.get_feature_names_out())
        assert list(out.index) == list(frame.index)
    polars = pytest.importorskip("polars")
    model = nystrom.Nystroem(n_components=4, random_state=0).set_output(transform="polars")
    assert isinstance(model.fit_transform(frame), polars.DataFrame)


@pytest.mark.parametrize("name", ["KernelRidge", "KernelRidgeClassifier", "KernelLogisticRegression", "KernelSVR"])
def test_weights_are_routed_through_a_pipeline(name: str) -> None:
    y = (Y > 0).astype(int)
    weight = np.r_[np.ones(300), np.zeros(300)]
    with sklearn.config_context(enable_metadata_routing=True):
        machine = getattr(nystrom, name)(n_landmarks=30, random_state=0)
        machine.set_fit_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), machine)
        pipeline.fit(X, y, sample_weight=weight)
        direct = getattr(nystrom, name)(n_landmarks=30, random_state=0)
        direct.fit(pipeline[0].transform(X), y, sample_weight=weight)
        np.testing.assert_array_equal(pipeline.predict(X), direct.predict(pipeline[0].transform(X)))


@pytest.mark.parametrize("name", ["KernelRidge", "KernelRidgeClassifier", "GaussianProcessRegressor", "KernelSVC"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_tensors_are_rows_too(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    rows = (10 * X).astype(dtype)
    y = Y if name in ("KernelRidge", "GaussianProcessRegressor") else (Y > 0).astype(int)
    tensor = torch.tensor(np.ascontiguousarray(rows.T)).T  # not contiguous

    def machine() -> Any:
        return getattr(nystrom, name)(n_landmarks=30, random_state=0)

    if name == "GaussianProcessRegressor":  # takes no weights
        model, same = machine().fit(tensor, torch.tensor(y)), machine().fit(rows, y)
    else:
        model = machine().fit(tensor, torch.tensor(y), sample_weight=torch.ones(600, dtype=torch.float64))
        same = machine().fit(rows, y, sample_weight=np.ones(600))
    np.testing.assert_array_equal(model.predict(tensor), same.predict(rows))


def test_tensors_that_are_no_arrays_say_what_to_do() -> None:
    torch = pytest.importorskip("torch")
    for tensor, advice in (
        (torch.tensor(X, requires_grad=True), r"detach\(\)"),
        (torch.tensor(X).to_sparse(), r"to_dense\(\)"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=advice) as caught:
            nystrom.Nystroem(n_components=4).fit(tensor)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values", [np.array(["a", "b"] * 300, dtype=object), np.arange(600).astype("datetime64[D]"), [{}] * 600]
)
def test_columns_that_are_no_numbers_are_named_in_one_line(values: Any) -> None:
    frame = as_pandas()
    frame["odd"] = values
    with pytest.raises((ValueError, TypeError), match="odd") as caught:
        nystrom.KernelRidge(alpha=1.0, n_landmarks=10).fit(frame, Y)
    assert "\n" not in str(caught.value)
