"""Time one fit of Falkon (github.com/FalkonML/falkon) in its own Python, with torch on the CPU.

``PYTHON benchmarks/falkon_peer.py ROWS.npz M DTYPE GAMMA ALPHA``, with a Python in which ``import falkon`` works; it
needs neither nystrom nor other files of this folder. ``python -m benchmarks.landmark_cg falkon`` runs it if the
environment variable FALKON_PYTHON names such a Python. It uses Falkon's defaults: uniform landmarks, at most 20 steps,
kernel values kept if memory allows. CUDA and KeOps are off.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def peak(field: str = "VmHWM") -> float:
    """Return a field of this process's memory in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def main(path: str, m: int, dtype: str, gamma: float, alpha: float) -> dict[str, float | str]:
    """Fit to the rows of the file and return seconds, added memory and test error."""
    import falkon
    import numpy as np
    import torch

    data = np.load(path)
    X, X_test = (torch.from_numpy(data[name].astype(dtype)) for name in ("X", "X_test"))
    y = torch.from_numpy(data["y"].astype(dtype)).reshape(-1, 1)
    options = falkon.FalkonOptions(use_cpu=True, keops_active="no")
    kernel = falkon.kernels.GaussianKernel(sigma=float(np.sqrt(0.5 / gamma)), opt=options)
    model = falkon.Falkon(kernel=kernel, penalty=alpha / len(X), M=m, seed=0, options=options)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak("VmRSS")
    start, began = time.perf_counter(), time.process_time()
    model.fit(X, y)
    took, processor = time.perf_counter() - start, time.process_time() - began
    added = peak() - before
    found = model.predict(X_test).numpy().ravel()
    error = float(np.sqrt(np.mean((found - data["y_test"]) ** 2)))
    note = f"version {falkon.__version__}, {dtype}"
    return {"seconds": took, "processor": processor, "MB": added, "rmse": error, "note": note}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))))
