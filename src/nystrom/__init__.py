"""Kernel machines at any scale, from a few landmarks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nystrom.comparison import compare
    from nystrom.estimators import (
        GaussianProcessRegressor,
        KernelKMeans,
        KernelLogisticRegression,
        KernelPCA,
        KernelRidge,
        KernelRidgeClassifier,
        KernelSVC,
        KernelSVR,
        Nystroem,
        SpectralClustering,
        best_possible,
        kernel_eigh,
    )
    from nystrom.landmarks import select_landmarks
    from nystrom.models import load, save
    from nystrom.planning import plan
    from nystrom.reporting import report
    from nystrom.rows.files import open_rows
    from nystrom.shapley import explain

__version__ = "0.2.0"

__all__ = [
    "GaussianProcessRegressor",
    "KernelKMeans",
    "KernelLogisticRegression",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "KernelSVC",
    "KernelSVR",
    "Nystroem",
    "SpectralClustering",
    "__version__",
    "best_possible",
    "compare",
    "explain",
    "kernel_eigh",
    "load",
    "open_rows",
    "plan",
    "report",
    "save",
    "select_landmarks",
]

# All are imported on first use. scikit-learn alone takes about a second to import, and neither `import nystrom` nor
# the command line has to wait for it.
_MODULES = (
    "datasets",
    "estimators",
    "exceptions",
    "explanation",
    "kernels",
    "landmarks",
    "models",
    "plotting",
    "preprocessing",
    "rows",
    "sketch",
    "theory",
)
# Names that do not come from nystrom.estimators.
_HOMES = {
    "compare": "nystrom.comparison",
    "explain": "nystrom.shapley",
    "load": "nystrom.models",
    "save": "nystrom.models",
    "select_landmarks": "nystrom.landmarks",
    "plan": "nystrom.planning",
    "report": "nystrom.reporting",
    "open_rows": "nystrom.rows.files",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"nystrom.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'nystrom' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "nystrom.estimators")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
