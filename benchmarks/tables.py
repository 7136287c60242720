"""Our machines against boosted trees and others on real tables, with the same preprocessing for all.

    python -m benchmarks.tables --out tables.jsonl --picture tables.png
    python -m benchmarks.tables --splits 1 --most-rows 10000 --only phoneme segment

Every table is split 3 : 1, or as published, then standardised and encoded by the first part. Errors are
the share of wrong classes, or the root mean squared error over the deviation of the target. Seconds are processor time
of fit and prediction on one thread, without imports. Each result is appended to ``--out`` at once, and results in the
file are not computed again, so a run can be interrupted, resumed, and shared by several processes. ``--again NAME``
runs a contestant again; the later of two lines counts.

``ours-in-time`` gets the time that LightGBM took on the same split, and at least 2 s. Time limits count processor time,
so that other work on the machine does not change the results.

``xrfm`` needs torch, and takes part if ``--xrfm-python`` names the interpreter of an environment that has both
(``pip install torch xrfm scikit-learn``), as a child process of at most ten minutes of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.table_data import Table, encode, tables
from benchmarks.table_report import OURS, draw, latest, summarise
from nystrom import KernelLogisticRegression, KernelRidge
from nystrom.tuning import search

Array = np.ndarray
# Maximum number of rows for the exact support vector machines; beyond it, they need more than ten minutes.
SVM_ROWS = 20_000
CHILD_SECONDS = 600
LEAST_SECONDS = 2.0


def ours(classes: bool) -> Any:
    """Return our machine with all parameters chosen automatically."""
    options = {"kernel": "auto", "metric": "auto", "n_jobs": 1, "random_state": 0}
    return (
        KernelLogisticRegression("auto", **options) if classes else KernelRidge("auto", fit_intercept=True, **options)
    )


def timed(seconds: float, classes: bool) -> Any:
    """Return our machine with a time limit."""
    options = {"max_time": seconds, "n_jobs": 1, "random_state": 0}
    return KernelLogisticRegression(**options) if classes else KernelRidge(fit_intercept=True, **options)


def lightgbm(classes: bool) -> Any:
    """Return LightGBM with up to 5,000 rounds, stopped early on a fifth of the rows."""
    import lightgbm as gbm

    class Stopped(gbm.LGBMClassifier if classes else gbm.LGBMRegressor):  # type: ignore[misc]
        def fit(self, X: Array, y: Array) -> Any:
            from sklearn.model_selection import train_test_split

            X, held, y, target = train_test_split(X, y, test_size=0.2, random_state=0)
            return super().fit(X, y, eval_set=[(held, target)], callbacks=[gbm.early_stopping(50, verbose=False)])

    return Stopped(n_estimators=5000, n_jobs=1, random_state=0, verbose=-1)


def plain(classes: bool) -> Any:
    """Return the same machine with the plain metric."""
    return ours(classes).set_params(metric=None)


def boosting(classes: bool, **options: Any) -> Any:
    """Return scikit-learn's boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    make = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return make(random_state=0, **options)


def long_boosting(classes: bool) -> Any:
    """Return boosted trees with up to 500 rounds."""
    return boosting(classes, max_iter=500, early_stopping=True)


def pipeline(classes: bool) -> Any:
    """Return scikit-learn's own Nyström pipeline."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline

    linear = LogisticRegression(C=10.0, max_iter=300) if classes else RidgeCV(np.geomspace(1e-6, 10, 15))
    return make_pipeline(Nystroem(n_components=500, random_state=0), linear)


def support_vectors(classes: bool) -> Any:
    """Return scikit-learn's exact support vector machine."""
    from sklearn.svm import SVC, SVR

    return SVC(C=10.0, random_state=0) if classes else SVR(C=10.0)


CONTESTANTS: dict[str, Callable[[bool], Any]] = {
    "ours": ours,
    **{f"ours-{seconds}s": partial(timed, seconds) for seconds in (1, 3, 10, 30)},
    "plain": plain,
    "lightgbm": lightgbm,
    "boosting": boosting,
    "boosting500": long_boosting,
    "svm": support_vectors,
    "sklearn-nystroem": pipeline,
}
NAMES = (*CONTESTANTS, OURS, "xrfm")


class Split:
    """One encoded split of a table: training rows and targets, test rows and targets."""

    def __init__(self, table: Table, split: int) -> None:
        from sklearn.model_selection import train_test_split

        y = np.unique(table.target, return_inverse=True)[1] if table.classes else np.asarray(table.target, dtype=float)
        if table.tested is not None:
            train, test = (np.flatnonzero(table.tested[:, split] == held) for held in (False, True))
        else:
            train, test = train_test_split(
                np.arange(len(y)), test_size=0.25, random_state=split, stratify=y if table.classes else None
            )
        self.X, self.new = encode(table.columns.iloc[train], table.columns.iloc[test])
        if not table.classes:
            y = (y - y[train].mean()) / y[train].std()
        self.y, self.target, self.classes = y[train], y[test], table.classes
        self.about = {"table": table.name, "rows": len(y), "columns": self.X.shape[1], "classes": table.classes}
        self.about["split"] = split


def run(name: str, split: Split, xrfm_python: str | None, rival: float | None) -> dict[str, Any] | None:
    """Return error, log-loss and seconds of a contestant; None if it does not take part.

    ``rival`` is the time of LightGBM on this split, if known.
    """
    if name == "svm" and len(split.y) > SVM_ROWS:
        return None
    if name == "xrfm":
        return None if xrfm_python is None else run_child(split, xrfm_python)
    if name == OURS and rival is None:
        return None
    make = partial(timed, max(rival or 0.0, LEAST_SECONDS)) if name == OURS else CONTESTANTS[name]
    # All contestants use one thread, so that processor seconds are comparable.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        # Trigger the imports before timing. Use two classes: with many, some would have a single row, and early
        # stopping needs two.
        make(split.classes).fit(split.X[:60], np.arange(60) % 2 if split.classes else split.y[:60])
        model = make(split.classes)
        began, clock = time.process_time(), time.perf_counter()
        model.fit(split.X, split.y)
        predicted = np.asarray(model.predict(split.new)).ravel()
        seconds = {"seconds": time.process_time() - began, "wall": time.perf_counter() - clock}
        probabilities = model.predict_proba(split.new) if hasattr(model, "predict_proba") else None
    return {**judge(split, predicted, probabilities), **seconds, **chosen(model)}


def chosen(model: Any) -> dict[str, Any]:
    """Return the parameters that our machine has chosen."""
    if not hasattr(model, "landmarks_"):
        return {}
    return {"kernel": repr(model.kernel_)[:60], "landmarks": len(model.landmarks_)}


def run_child(split: Split, python: str) -> dict[str, Any]:
    """Return the result of xRFM with its defaults; it chooses its number of steps on a fifth of the rows."""
    script = Path(__file__).with_name("table_xrfm.py")
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, X=split.X, y=split.y, new=split.new, classes=split.classes)
        command = [python, str(script), str(given), str(result), str(CHILD_SECONDS)]
        one = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=one)
        if not result.exists():
            reason = ended.stderr.strip().splitlines()[-1:] or ["out of time"]
            return {"failed": reason[0][:200]}
        with np.load(result) as found:
            probabilities = found.get("probabilities")
            scores = judge(split, found["predicted"], probabilities)
            return {**scores, "seconds": float(found["seconds"]), "wall": float(found["wall"])}


def judge(split: Split, predicted: Array, probabilities: Array | None) -> dict[str, Any]:
    """Return the error, and the log-loss of probabilities."""
    target = split.target
    if not split.classes:
        return {"error": float(np.sqrt(np.mean((predicted - target) ** 2)) / target.std())}
    found = {"error": float(np.mean(predicted != target))}
    if probabilities is not None and probabilities.shape[1] == target.max() + 1:
        right = np.clip(np.asarray(probabilities, dtype=float)[np.arange(len(target)), target], 1e-15, 1)
        found["log_loss"] = float(-np.log(right).mean())
    return found


def read_records(path: Path | None) -> list[dict[str, Any]]:
    """Return the records of a file; an incomplete line left by a killed process is skipped."""
    if path is None or not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-split", type=int, default=0, help="several processes may share the splits")
    parser.add_argument("--most-rows", type=int, help="leave larger tables out")
    parser.add_argument("--only", nargs="+", help="these tables alone")
    parser.add_argument("--contestants", nargs="+", choices=NAMES, default=NAMES, help="these alone")
    parser.add_argument("--again", nargs="+", choices=NAMES, default=(), help="run these though the file has them")
    parser.add_argument("--xrfm-python", help="interpreter of an environment with xrfm")
    parser.add_argument("--out", type=Path, help="a file of records, one JSON object per line; read first, added to")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    search.clock = time.process_time
    records = read_records(given.out)
    known = {(r["table"], r["split"], r["name"]) for r in records if r["name"] not in given.again}
    for split in range(given.splits if given.report else given.first_split, given.splits):
        for name, read in tables():
            missing = [n for n in given.contestants if (name, split, n) not in known]
            if (given.only and name not in given.only) or not missing:
                continue
            table = read()
            if given.most_rows and len(table.target) > given.most_rows:
                continue
            here = Split(table, split)
            for contestant in missing:
                rivals = [
                    r for r in latest(records) if (r["table"], r["split"], r["name"]) == (name, split, "lightgbm")
                ]
                found = run(contestant, here, given.xrfm_python, rivals[0]["seconds"] if rivals else None)
                if found is None:
                    continue
                records.append({**here.about, "name": contestant, **found})
                print(json.dumps(records[-1]), flush=True)
                if given.out:
                    with given.out.open("a") as file:
                        file.write(json.dumps(records[-1]) + "\n")
    records = latest(records)
    print(summarise(records, NAMES))
    if given.picture:
        draw(records, given.picture)


if __name__ == "__main__":
    main()
