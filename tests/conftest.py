"""What every test runs under."""

from __future__ import annotations

import os

from hypothesis import settings

# Tests run side by side (pytest -n auto): a BLAS that takes every core in each of them would only get in its own way.
# This has to be said before NumPy is imported, which is after this file.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    # A plugin may have imported NumPy before this file, and then the variables come too late.
    import scipy.linalg  # noqa: F401 - loads SciPy's own BLAS, so that it is limited too
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")

# No test asserts a time, so neither does hypothesis; derandomized, so that a run can be repeated.
settings.register_profile("nystrom", deadline=None, derandomize=True)
settings.load_profile("nystrom")
