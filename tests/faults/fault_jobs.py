"""The writers that are killed: each prepares its input once, does its work in a folder, and shows what it made.

Add a writer by adding a line to ``JOBS``, here or from another file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Job:
    """One kind of work that writes to the disk.

    Parameters
    ----------
    name : str
    prepare : callable (folder)
        Writes the inputs; is never disturbed.
    run : callable (folder)
        Does the work, and returns bytes that show the result; the same bytes on every run.
    output : str
        The file or folder that must be absent or whole at any time; "" if there is none.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], bytes]
    output: str = ""


def content(path: Path) -> bytes:
    """Return a digest of a file, or of all files of a folder with their names."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes())
    return digest.digest()


def _values(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(3000, 4))


def _prepare_rows(folder: Path) -> None:
    np.save(folder / "X.npy", _values())


def _transform(kind: str) -> Callable[[Path], bytes]:
    def run(folder: Path) -> bytes:
        from nystrom import Nystroem, open_rows

        rows = open_rows(folder / "X.npy", block_rows=250)
        fitted = Nystroem(gamma=0.3, n_components=5, landmarks=_values()[:10]).fit(_values()[:50])
        fitted.transform(rows, out=folder / f"F.{kind}")
        return content(folder / f"F.{kind}")

    return run


def _prepare_text(folder: Path) -> None:
    rng = np.random.default_rng(0)
    lines = (f"{i % 2} 1:{rng.normal():.6g} {2 + i % 30}:{rng.normal():.6g}\n" for i in range(20_000))
    (folder / "X.svm").write_text("".join(lines))


def _spool(folder: Path) -> bytes:
    from nystrom import open_rows

    rows = open_rows(folder / "X.svm", spool=True, block_rows=1000)
    digest = hashlib.sha256()
    for block in rows.iterate():
        digest.update(block.X.toarray().tobytes())
    return digest.digest()


def _hold(folder: Path) -> bytes:
    from nystrom.engine.memory import hold

    X = _values()
    held = hold(X.shape, X.dtype, 0)
    for start in range(0, len(X), 100):
        held.write(start, X[start : start + 100])
    return held.rows(500, "held").take(np.arange(len(X))).tobytes()


def _prepare_dna(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "dna.scale").write_text("".join(f"{i % 3} 1:1 {2 + i % 178}:{i}\n" for i in range(2000)))


def _load_dna(folder: Path) -> bytes:
    from nystrom.datasets import load

    os.environ["NYSTROM_DATA"] = str(folder / "data")
    os.environ["NYSTROM_CACHE"] = str(folder / "cache")
    X, y = load("dna")
    return hashlib.sha256(X.tobytes() + np.asarray(y).tobytes()).digest()


def _save_model(folder: Path) -> bytes:
    from nystrom import KernelRidge, save

    X = _values()[:300]
    save(KernelRidge(alpha=1.0, gamma=0.3, landmarks=X[:100]).fit(X, X[:, 0]), folder / "model.nystrom")
    return content(folder / "model.nystrom")


def _nothing(folder: Path) -> None:
    del folder


_ALL = [
    Job("out.npy", _prepare_rows, _transform("npy"), "F.npy"),
    Job("out.zarr", _prepare_rows, _transform("zarr"), "F.zarr"),
    Job("out.parquet", _prepare_rows, _transform("parquet"), "F.parquet"),
    Job("spool", _prepare_text, _spool),
    Job("held", _nothing, _hold),
    Job("dataset cache", _prepare_dna, _load_dna),
    Job("model file", _nothing, _save_model, "model.nystrom"),
]

JOBS: dict[str, Job] = {job.name: job for job in _ALL}
