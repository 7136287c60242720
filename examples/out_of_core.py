"""
Rows larger than memory
=======================

``open_rows`` reads a file block by block, and ``max_memory`` bounds what a fit adds. The same three lines work for
Parquet, CSV, HDF5, Zarr and LIBSVM files.
"""

import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nystrom import KernelRidge, open_rows

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
weights = 0.3 * rng.normal(size=10)
sizes, peaks, errors = (10_000, 100_000, 1_000_000), [], []
for n in sizes:
    X = rng.normal(size=(n, 10))
    y = np.sin(X @ weights) + 0.1 * rng.normal(size=n)
    np.save(folder / "rows.npy", np.column_stack([X, y]))
    del X, y
    tracemalloc.start()
    rows = open_rows(folder / "rows.npy", target=10)
    model = KernelRidge(0.1, n_landmarks=200, max_memory="150MB", random_state=0).fit(rows)
    peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
    tracemalloc.stop()
    fresh = rng.normal(size=(5000, 10))
    errors.append(np.sqrt(np.mean((model.predict(fresh) - np.sin(fresh @ weights)) ** 2)))

figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
axis.plot(sizes, [n * 88 / 1e6 for n in sizes], "o--", label="the file")
axis.plot(sizes, peaks, "o-", label="added by the fit")
axis.set(xscale="log", yscale="log", xlabel="rows", ylabel="MB", title=f"test error {errors[0]:.3f} → {errors[-1]:.3f}")
axis.legend()
plt.show()
