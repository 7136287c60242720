"""Run xRFM with its defaults on one split of a table; ``benchmarks.tables`` calls this with xRFM's interpreter."""

from __future__ import annotations

import resource
import sys
import time

import numpy as np


def main(given: str, result: str, limit: str) -> None:
    import torch
    from xrfm import xRFM

    torch.set_num_threads(1)
    with np.load(given) as data:
        X, y, new, classes = data["X"], data["y"], data["new"], bool(data["classes"])
    X, new = X.astype(np.float32), new.astype(np.float32)
    y = y.astype(np.int64) if classes else y.astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    learn, check = order[len(X) // 5 :], order[: len(X) // 5]
    spent = resource.getrusage(resource.RUSAGE_SELF)
    allowed = int(spent.ru_utime + spent.ru_stime) + int(limit)
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, allowed))
    began, clock = time.process_time(), time.perf_counter()
    model = xRFM(device="cpu", verbose=False, tuning_metric="accuracy" if classes else "mse")
    model.fit(X[learn], y[learn], X[check], y[check])
    predicted = np.asarray(model.predict(new)).ravel()
    found = {"seconds": time.process_time() - began, "wall": time.perf_counter() - clock, "predicted": predicted}
    if classes:
        found["probabilities"] = np.asarray(model.predict_proba(new))
    np.savez(result, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
