"""Kernel machines at any scale, from a few landmarks."""

from nystrom.estimators import (
    GaussianProcessRegressor,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    Nystroem,
    SpectralClustering,
    kernel_eigh,
)
from nystrom.landmarks import select_landmarks
from nystrom.planning import plan
from nystrom.rows.files import open_rows

__version__ = "0.1.0"

__all__ = [
    "GaussianProcessRegressor",
    "KernelKMeans",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "Nystroem",
    "SpectralClustering",
    "__version__",
    "kernel_eigh",
    "open_rows",
    "plan",
    "select_landmarks",
]
