"""A saved model predicts with the same bits, is small, and a damaged or forged file is refused in one line."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from forgeries import members_of, sealed
from sklearn.base import BaseEstimator, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nystrom
from nystrom import kernels, landmarks
from nystrom.exceptions import ModelFileError, NotInModelFileError
from nystrom.kernels import Cosine, Gaussian, Laplacian, Linear, Matern, Overlap, Polynomial
from nystrom.models.registry import ESTIMATORS

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
WORDS = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "Nystroem": [
        {"n_components": 20},
        {"tol": 0.1},
        {"landmarks": landmarks.SketchedKMeans(sketch_dim=2), "n_components": 5},
    ],
    "KernelPCA": [{"n_components": 4, "fit_inverse_transform": True}, {"n_landmarks": 50}],
    "KernelKMeans": [{"n_clusters": 3}],
    "SpectralClustering": [{"n_clusters": 3}],
    "KernelRidge": [
        {"n_landmarks": 60, "alpha": "auto", "fit_intercept": True},
        {"n_landmarks": 60, "solver": "exact"},
        {"n_landmarks": 60, "solver": "cg"},
        {"n_landmarks": 60, "metric": "diagonal"},
        {"n_landmarks": 60, "gamma": np.array([1.0, 0.5, 0.1])},
        {"n_landmarks": 60, "compute_dual": True},
        {"landmarks": X[:30], "alpha": [0.1, 1.0], "random_state": np.random.default_rng(0)},
    ],
    "KernelRidgeClassifier": [{"n_landmarks": 60}, {"n_landmarks": 60, "class_weight": {"high": 2.0}}],
    "GaussianProcessRegressor": [{"n_landmarks": 40}, {"n_landmarks": 40, "normalize_y": True}],
}
MACHINES = [name.rpartition(".")[2] for name in ESTIMATORS if name.startswith("nystrom.estimators")]
CASES = [(name, i) for name in MACHINES for i in range(len(SETTINGS.get(name, [{"n_landmarks": 40}])))]
METHODS = ("predict", "transform", "predict_proba", "decision_function", "residual")


def fitted(name: str, number: int = 0) -> Any:
    settings = SETTINGS.get(name, [{"n_landmarks": 40}])[number]
    model = getattr(nystrom, name)(**{"random_state": 0, **settings})
    return model.fit(X, WORDS if is_classifier(model) else Y)


def results(model: Any, rows: Any) -> dict[str, Any]:
    """Return what each method gives, leaving out those that a file need not hold the means for."""
    found = {}
    for method in METHODS:
        if hasattr(model, method):
            try:
                found[method] = getattr(model, method)(rows)
            except (NotInModelFileError, AttributeError):
                assert method == "residual"
    if isinstance(model, nystrom.GaussianProcessRegressor):
        found["std"] = model.predict(rows, return_std=True)[1]
    if hasattr(model, "inverse_coef_"):
        found["back"] = model.inverse_transform(model.transform(rows))
    return found


def test_every_public_estimator_can_be_saved() -> None:
    public = {name for name in nystrom.__all__ if isinstance(getattr(nystrom, name), type)}
    assert {name for name in public if issubclass(getattr(nystrom, name), BaseEstimator)} == set(MACHINES)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_loaded_model_gives_the_same_bits(name: str, number: int, tmp_path: Path) -> None:
    model = fitted(name, number)
    for full in (False, True):
        path = tmp_path / "model.nystrom"
        model.save(path, full=full)
        loaded = nystrom.load(path)
        assert type(loaded) is type(model)
        assert getattr(loaded, "certificate_", None) == getattr(model, "certificate_", None)
        assert repr(loaded.kernel_) == repr(model.kernel_)
        expected = results(model, X[:50])
        found = results(loaded, X[:50])
        assert set(expected) - set(found) <= (set() if full else {"residual"})
        for key, value in found.items():
            if key == "residual" and not full:
                np.testing.assert_allclose(value, expected[key], atol=1e-9)  # from another whitening
            else:
                np.testing.assert_array_equal(value, expected[key])
        for parameter, value in model.get_params(deep=False).items():
            if isinstance(value, (str, int, float, list, dict, type(None))):
                assert getattr(loaded, parameter) == value
        assert os.listdir(tmp_path) == ["model.nystrom"]


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "KernelPCA"])
def test_float32_rows_and_sparse_landmarks_come_back(name: str, tmp_path: Path) -> None:
    rows = sp.random(300, 400, density=0.01, format="csr", random_state=0, dtype=np.float32)
    model = getattr(nystrom, name)(n_landmarks=30, n_components=10, random_state=0)
    model.fit(rows, np.arange(300) % 2)
    nystrom.save(model, tmp_path / "model")
    loaded = nystrom.load(tmp_path / "model")
    assert sp.issparse(loaded.landmarks_) == sp.issparse(model.landmarks_)
    method = "predict" if hasattr(model, "predict") else "transform"
    np.testing.assert_array_equal(getattr(loaded, method)(rows), getattr(model, method)(rows))


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(0.3), Laplacian(0.2), Matern(2.5, 0.1), Polynomial(2, 0.5, 1.0), Linear(), Cosine(),
        2.0 * Gaussian(0.3) * Linear() + Matern(0.5, None) + np.float32(0.5) * Cosine(),
        Gaussian(0.3).on([0, 2]) * Linear().on(slice(1, None)) + Matern(0.5, None).on([False, True, False]),
        Overlap(0.1) + Overlap().on(1),
    ],
)  # fmt: skip
def test_kernels_come_back(kernel: Any, tmp_path: Path) -> None:
    model = nystrom.KernelRidge(alpha=1.0, kernel=kernel, n_landmarks=30, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = nystrom.load(tmp_path / "model")
    assert loaded.kernel == model.kernel
    assert loaded.kernel_ == model.kernel_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_every_kernel_but_functions_is_known_to_the_file_format() -> None:
    from nystrom.models.registry import kinds

    names = {name for name in kernels.__all__ if isinstance(getattr(kernels, name), type)}
    names -= {"Kernel", "Prepared"}
    assert names <= set(kinds())


def test_a_precomputed_kernel_comes_back(tmp_path: Path) -> None:
    K = Gaussian(0.5)(X, X)
    model = nystrom.KernelRidge(
        alpha=1.0, kernel="precomputed", landmarks="uniform", n_landmarks=30, random_state=0
    ).fit(K, Y)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(nystrom.load(tmp_path / "model").predict(K[:9]), model.predict(K[:9]))


def test_a_pipeline_with_a_scaler_comes_back(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), nystrom.KernelRidgeClassifier(n_landmarks=50, random_state=0))
    pipeline.fit(X, WORDS)
    nystrom.save(pipeline, tmp_path / "model")
    loaded = nystrom.load(tmp_path / "model")
    assert [name for name, _ in loaded.steps] == ["standardscaler", "kernelridgeclassifier"]
    np.testing.assert_array_equal(loaded.predict(X), pipeline.predict(X))


def test_column_names_are_saved(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    nystrom.KernelRidge(alpha=1.0, n_landmarks=30).fit(frame, Y).save(tmp_path / "model")
    loaded = nystrom.load(tmp_path / "model")
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["c", "b", "a"]])


def test_a_file_holds_what_predictions_need_and_no_more(tmp_path: Path) -> None:
    rows = rng.normal(size=(1500, 10))
    model = nystrom.KernelRidge(alpha=1.0, n_landmarks=1000, landmarks="uniform", random_state=0).fit(rows, rows[:, 0])
    model.save(tmp_path / "small")
    model.save(tmp_path / "full", full=True)
    assert (tmp_path / "small").stat().st_size < 200_000
    assert (tmp_path / "full").stat().st_size > 10_000_000


@pytest.mark.parametrize("gamma", [0.02, 1.0])
def test_a_loaded_model_finds_the_same_rows_unlike(gamma: float, tmp_path: Path) -> None:
    rows, new = rng.normal(size=(400, 3)), 1.6 * rng.normal(size=(200, 3))
    # Directions of the wide kernel are cut at another rank from the rows than from the landmarks alone.
    model = nystrom.KernelRidge(n_landmarks=200, gamma=gamma, random_state=0).fit(rows, np.sin(rows[:, 0]))
    model.save(tmp_path / "model")
    found = nystrom.load(tmp_path / "model").unlike(new)
    assert 0 < found.sum() < 200
    np.testing.assert_array_equal(found, model.unlike(new))


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    model = fitted("KernelRidge")
    model.save(tmp_path / "a")
    model.save(tmp_path / "b")
    nystrom.load(tmp_path / "a").save(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


@pytest.mark.parametrize("name", ["Nystroem", "KernelRidge"])
def test_what_the_file_does_not_hold_says_so(name: str, tmp_path: Path) -> None:
    model = getattr(nystrom, name)(n_landmarks=30, n_components=20, random_state=0).fit(X, Y)
    model.save(tmp_path / "small")
    model.save(tmp_path / "full", full=True)
    small, full = nystrom.load(tmp_path / "small"), nystrom.load(tmp_path / "full")
    with pytest.raises(NotInModelFileError, match=r"save\(path, full=True\)"):
        small.partial_fit(X[:50], Y[:50])
    with pytest.raises(NotInModelFileError, match=r"save\(path, full=True\)"):
        small.merge(small)
    with pytest.raises(NotInModelFileError, match=r"save\(path, full=True\)"):
        small.save(tmp_path / "again", full=True)
    model.partial_fit(X[:50], Y[:50])
    full.partial_fit(X[:50], Y[:50])
    method = "predict" if name == "KernelRidge" else "transform"
    np.testing.assert_array_equal(getattr(full, method)(X), getattr(model, method)(X))


def test_functions_are_refused_when_saving(tmp_path: Path) -> None:
    model = nystrom.KernelRidge(alpha=1.0, kernel=lambda A, B: A @ B.T, n_landmarks=5).fit(X, Y)
    with pytest.raises(TypeError, match=r"cannot be saved.*'kernel' is the function.*never code"):
        model.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_only_known_types_are_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"save takes one of Nystroem.*got dict"):
        nystrom.save({}, tmp_path / "model")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("KernelRidge")
    model.save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fitted("KernelRidge", 2).save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model").read_bytes() == before


def test_numpy_opens_a_model_file_as_an_npz(tmp_path: Path) -> None:
    model = fitted("KernelRidge")
    model.save(tmp_path / "model.nystrom")
    with np.load(tmp_path / "model.nystrom") as arrays:
        np.testing.assert_array_equal(arrays["landmarks_"], model.landmarks_)
        np.testing.assert_array_equal(arrays["landmark_coef_"], model.landmark_coef_)


def forged(tmp_path: Path, change: Any) -> Path:
    """Return a good file with a change of its manifest, its checksums right."""
    path = tmp_path / "model.nystrom"
    fitted("KernelRidge").save(path)
    members = members_of(path.read_bytes())
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    path.write_bytes(sealed(members, manifest))
    return path


def test_a_file_of_a_later_format_says_which_version_wrote_it(tmp_path: Path) -> None:
    path = forged(tmp_path, lambda m: m.update(format_version=7, nystrom="3.1"))
    with pytest.raises(ModelFileError, match=r"written by nystrom 3\.1 in version 7 of the model format"):
        nystrom.load(path)


def test_a_result_that_this_version_does_not_know_names_both_versions(tmp_path: Path) -> None:
    def change(manifest: Any) -> None:
        manifest["nystrom"] = "9.9"
        manifest["model"]["fields"]["predict"] = 1

    with pytest.raises(ModelFileError, match=r"no parameter or result 'predict'.*written by nystrom 9\.9; this is"):
        nystrom.load(forged(tmp_path, change))


def test_a_file_that_leaves_out_what_a_model_needs_is_refused_by_name(tmp_path: Path) -> None:
    def leave_out(manifest: Any) -> None:
        manifest["model"]["fields"]["landmarks_"] = {"$left_out": "x"}

    with pytest.raises(ModelFileError, match=r"model\.nystrom.*leaves out what no model can do without"):
        nystrom.load(forged(tmp_path, leave_out))


def test_an_unknown_type_is_refused_by_name(tmp_path: Path) -> None:
    path = forged(tmp_path, lambda m: m["model"].update({"$object": "subprocess.Popen"}))
    with pytest.raises(ModelFileError, match=r"model\.nystrom: it holds an object of the type 'subprocess"):
        nystrom.load(path)


def test_a_file_that_is_not_there_is_an_ordinary_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        nystrom.load(tmp_path / "absent")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        nystrom.save(fitted("KernelRidge"), tmp_path / "nowhere" / "model")


def test_classes_of_another_shape_are_refused(tmp_path: Path) -> None:
    """Found by forging: predictions without a value, which the shell could not write."""
    path = tmp_path / "model"
    fitted("KernelLogisticRegression").save(path)
    members = members_of(path.read_bytes())
    name = next(name for name in members if "classes_" in name)
    for forged in (np.zeros((2, 0, 0)), np.zeros((2, 1)), np.arange(5)):
        buffer = io.BytesIO()
        np.save(buffer, forged)
        path.write_bytes(sealed({**members, name: buffer.getvalue()}))
        with pytest.raises(ModelFileError):
            nystrom.load(path)


def test_a_damaged_byte_of_an_array_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "model"
    fitted("KernelRidge").save(path)
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("landmarks_.npy").header_offset + 300
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ModelFileError, match="damaged"):
        nystrom.load(path)


@pytest.mark.parametrize(("name", "number"), CASES)
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_a_loaded_model_is_shown_in_a_notebook(name: str, number: int, in_pipeline: bool, tmp_path: Path) -> None:
    model = fitted(name, number)
    if in_pipeline:
        model = make_pipeline(StandardScaler().fit(X), model)
    nystrom.save(model, tmp_path / "m")
    loaded = nystrom.load(tmp_path / "m")
    assert name in loaded._repr_html_()
    assert name in loaded._repr_mimebundle_()["text/html"]


def test_what_a_file_leaves_out_is_absent_for_hasattr_and_an_error_in_use(tmp_path: Path) -> None:
    fitted("KernelRidge").save(tmp_path / "m")
    loaded = nystrom.load(tmp_path / "m")
    assert not hasattr(loaded.projection_, "shape")
    with pytest.raises(NotInModelFileError, match="full=True"):
        _ = loaded.projection_.shape
