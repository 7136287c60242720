"""Sets by name: the data home, the cache, and what happens when a file is missing or damaged."""

import bz2
import hashlib
import os

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import datasets
from nystrom.commands.data import _line, run
from nystrom.datasets import DataFileError, DataUnavailableError, load, loader
from nystrom.datasets.loader import DatasetInfo, record, registry


@pytest.fixture
def data_home(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("NYSTROM_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def write_dna(folder, n=2000, name="dna.scale.bz2", line="%d 1:1 180:0.5\n"):
    path = folder / name
    path.write_bytes(bz2.compress("".join(line % (i % 3) for i in range(n)).encode()))
    return path


def test_every_entry_of_the_registry_can_be_found_somewhere():
    for entry in registry().values():
        assert entry.generator or entry.stand_in or entry.address_of("train").startswith("https://"), entry.name
        assert entry.p > 0
        assert entry.task in ("classification", "regression", "none")


@pytest.mark.parametrize("name", ["satimage", "dna", "protein", "mnist", "epsilon", "cpusmall", "E2006-tfidf"])
def test_the_sets_of_the_paper_are_known_and_are_not_stand_ins(name):
    assert not datasets.info(name).stand_in


def test_stand_ins_have_names_of_their_own_and_say_what_for():
    pairs = {entry.name: entry.stand_in_for for entry in datasets.list_datasets() if entry.stand_in}
    assert pairs == {"protein-mix": "protein", "epsilon-like": "epsilon", "rfc-tfidf": "E2006-tfidf"}
    assert not any(entry.stand_in for entry in datasets.list_datasets(stand_ins=False))


def test_an_unknown_name_is_answered_with_the_nearest_ones():
    with pytest.raises(ValueError, match=r"got 'mnits'\. Did you mean 'mnist'"):
        load("mnits")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_generated_sets_need_no_file(dtype):
    for name in ("rings", "digits"):
        X, y = load(name, dtype=dtype)
        entry = datasets.info(name)
        assert X.shape == (entry.n, entry.p)
        assert X.dtype == dtype
        assert y.shape == (entry.n,)


def test_a_dense_set_loads_dense_and_the_second_time_from_its_cache(data_home, monkeypatch):
    source = write_dna(data_home)
    X, y = load("dna")
    assert isinstance(X, np.ndarray)
    assert X.shape == (2000, 180)
    np.testing.assert_array_equal(X[0, [0, 1, 179]], [1, 0, 0.5])
    monkeypatch.setattr(
        "nystrom.datasets.loader.read_libsvm", lambda *_a, **_k: pytest.fail("the text was parsed again")
    )
    again, again_y = load("dna")
    np.testing.assert_array_equal(again, X)
    np.testing.assert_array_equal(again_y, y)
    assert os.listdir(data_home) == [source.name]  # nothing is put beside the user's data


def test_a_changed_source_is_parsed_again(data_home):
    write_dna(data_home)
    load("dna")
    path = write_dna(data_home, line="%d 1:9 180:0.25\n")
    os.utime(path, ns=(1, 1))
    assert load("dna")[0][0, 0] == 9


def _cache(tmp_path):
    return next((tmp_path / "cache" / "nystrom" / "parsed").glob("dna.scale.bz2.*.npz"))


def test_a_changed_source_that_keeps_size_and_time_is_parsed_again(data_home):
    path = write_dna(data_home, line="%d 1:1 180:1\n")
    load("dna")
    before = path.stat()
    raw = bz2.compress(bz2.decompress(path.read_bytes()).replace(b"180:1", b"180:7"))
    path.write_bytes(raw.ljust(before.st_size, b"\0")[: before.st_size] if len(raw) <= before.st_size else raw)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert load("dna")[0][0, 179] == 7


@pytest.mark.parametrize("damage", ["cut", "noise", "flip", "empty", "folder", "other arrays", "bad index"])
def test_a_damaged_cache_is_made_again(data_home, tmp_path, damage):
    write_dna(data_home)
    X, y = load("dna")
    cache = _cache(tmp_path)
    raw = bytearray(cache.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 255
    if damage in ("other arrays", "bad index"):
        with np.load(cache) as stored:
            parts = dict(stored)
        if damage == "bad index":
            parts["indices"][5] = 10**6
        else:
            parts = {"stamp": parts["stamp"], "shape": np.ones((2, 2)), "y": np.array("x")}
        np.savez(cache, **parts)
    elif damage == "folder":
        cache.unlink()
        cache.mkdir()
    else:
        cache.write_bytes({"cut": raw[:500], "noise": b"noise" * 999, "flip": raw, "empty": b""}[damage])
    again, again_y = load("dna")
    np.testing.assert_array_equal(again, X)
    np.testing.assert_array_equal(again_y, y)
    if damage != "folder":
        with np.load(cache) as stored:
            assert stored["y"].shape == y.shape


@pytest.mark.parametrize("choice", ["off", "folder"])
def test_the_cache_can_be_put_elsewhere_or_switched_off(data_home, tmp_path, monkeypatch, choice):
    write_dna(data_home)
    monkeypatch.setenv("NYSTROM_CACHE", "off" if choice == "off" else str(tmp_path / "mine"))
    load("dna")
    assert len(list(tmp_path.rglob("*.npz"))) == (0 if choice == "off" else 1)
    assert (tmp_path / "mine").exists() == (choice == "folder")


def test_a_cache_that_cannot_be_kept_is_no_reason_to_fail(data_home, tmp_path, monkeypatch):
    write_dna(data_home)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("NYSTROM_CACHE", str(tmp_path / "file"))
    assert load("dna")[0].shape == (2000, 180)


def test_a_checksum_may_be_pinned_by_argument_or_by_file(data_home, tmp_path, monkeypatch):
    path = write_dna(data_home)
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    load("dna", sha256=right.upper())
    with pytest.raises(DataFileError, match=rf"dna\.scale\.bz2: its sha256 is {right}, not the 0000"):
        load("dna", sha256="0" * 64)
    with pytest.raises(ValueError, match="sha256 must be 64 hexadecimal digits; got 'abc'"):
        load("dna", sha256="abc")
    pins = tmp_path / "pins"
    pins.write_text(f"{'1' * 64}  dna.scale.bz2\n{right} *other\n")
    monkeypatch.setenv("NYSTROM_CHECKSUMS", str(pins))
    with pytest.raises(DataFileError, match="not the 1111"):
        load("dna")


def test_a_file_that_is_not_the_one_downloaded_is_refused(data_home):
    path = write_dna(data_home)
    record(path)
    load("dna")
    write_dna(data_home, line="%d 1:1 180:0.25\n")
    with pytest.raises(DataFileError, match=r"recorded when it was downloaded \(dna\.scale\.bz2\.sha256\)"):
        load("dna")


@pytest.mark.parametrize(
    ("line", "n", "message"),
    [
        ("%d 1:1 181:1\n", 2000, "line 1: index 181 is beyond the 180 columns"),
        ("%d 2:1 1:1\n", 2000, "line 1: index 1 comes after index 2"),
        ("%d 1:nan\n", 2000, "line 1: the value of index 1 is nan"),
        ("%d 1:1\n", 1999, "ends at line 1999, but dna has 2000 rows"),
    ],
)
def test_a_malformed_file_is_named_with_the_line_and_leaves_no_cache(data_home, tmp_path, line, n, message):
    write_dna(data_home, n, line=line)
    with pytest.raises(DataFileError, match=rf"dna\.scale\.bz2.*{message}"):
        load("dna")
    assert [path.name for path in data_home.iterdir()] == ["dna.scale.bz2"]
    assert not list((tmp_path / "cache").rglob("*.npz"))


def test_an_interrupted_write_of_the_cache_leaves_nothing_behind(data_home, monkeypatch):
    write_dna(data_home)

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("nystrom.disk.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load("dna")
    assert [path.name for path in data_home.iterdir()] == ["dna.scale.bz2"]


def test_a_missing_file_is_an_error_that_says_where_to_get_it_and_where_to_put_it(data_home):
    with pytest.raises(DataUnavailableError, match=r"'mnist\.bz2'.*https://\S+/multiclass/mnist\.bz2.*") as caught:
        load("mnist", download=False)
    assert str(data_home) in str(caught.value)
    with pytest.raises(DataUnavailableError, match="not part of the LIBSVM archive"):
        load("protein-mix")


def test_a_data_home_that_does_not_exist_is_made_by_a_download_and_not_by_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "new" / "home"
    monkeypatch.setenv("NYSTROM_DATA", str(folder))
    with pytest.raises(DataUnavailableError, match="new"):
        load("dna", download=False)
    assert not folder.exists()
    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "retrieve", lambda *, path, **_: pytest.fail("not made") if not path.is_dir() else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load("dna")


def test_a_failed_download_is_the_same_error_with_the_reason(data_home, monkeypatch):
    pooch = pytest.importorskip("pooch")

    def no_network(**_arguments):
        raise OSError("no route to host")

    monkeypatch.setattr(pooch, "retrieve", no_network)
    with pytest.raises(DataUnavailableError, match=r"no route to host.*Get it from https.*put it into"):
        load("mnist")


def test_a_download_goes_into_the_data_home_and_is_then_read(data_home, monkeypatch):
    pooch = pytest.importorskip("pooch")

    def retrieve(*, url, fname, path, **_arguments):
        assert url.endswith("/multiclass/dna.scale")
        (path / fname).write_text("1 1:1 180:1\n" * 2000)
        return str(path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert load("dna")[0].shape == (2000, 180)
    assert (data_home / "dna.scale").is_file()


def test_several_data_homes_are_searched_in_order(tmp_path, monkeypatch):
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    second.mkdir()
    monkeypatch.setenv("NYSTROM_DATA", os.pathsep.join([str(first), str(second)]))
    write_dna(second, name="dna.scale.bz2")
    assert loader.find_file("dna.scale").parent == second
    write_dna(first, name="dna.scale.bz2")
    assert loader.find_file("dna.scale").parent == first


def test_binary_stand_ins_load_sparse_with_their_target(data_home):
    X = sp.random(20, 148228, density=1e-4, format="csr", random_state=0)
    sp.save_npz(data_home / "rfc-tfidf.npz", X)
    np.save(data_home / "rfc-tfidf-y.npy", np.arange(20.0))
    loaded, y = load("rfc-tfidf", dtype=np.float32)
    assert sp.issparse(loaded)
    assert loaded.dtype == np.float32
    np.testing.assert_array_equal(y, np.arange(20.0))
    (data_home / "rfc-tfidf.npz").write_bytes(b"PK nonsense")
    with pytest.raises(DataFileError, match=r"rfc-tfidf\.npz: the file is damaged"):
        load("rfc-tfidf")


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="split must be 'train' or 'test'; got 'dev'"):
        load("dna", split="dev")
    with pytest.raises(ValueError, match="split='test' does not exist for the set 'cpusmall'"):
        load("cpusmall", split="test")
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        load("rings", dtype=int)


def test_the_listing_marks_what_is_here_and_what_is_a_stand_in(data_home, capsys):
    write_dna(data_home)
    assert run(type("Arguments", (), {"name": [], "json": False})()) == 0
    assert "stand-in for protein;" in capsys.readouterr().out
    assert _line(datasets.info("dna")).startswith("here")
    assert not _line(DatasetInfo(name="mnist", task="none", p=1, file="absent-file")).startswith("here")


@pytest.mark.skipif(loader.find_file("mnist.bz2") is None, reason="mnist.bz2 is not in the data home")
def test_the_real_mnist_has_the_known_sum_of_grey_values():
    X, y = load("mnist", dtype=np.float32)
    assert X.shape == (60000, 784)
    assert round(float(X.mean(dtype=np.float64)), 4) == 33.3184
    assert np.bincount(y.astype(int)).tolist()[:3] == [5923, 6742, 5958]
