"""The estimators: thin shells over the core. Each module is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nystrom.estimators.cluster import KernelKMeans, SpectralClustering
    from nystrom.estimators.features import Nystroem
    from nystrom.estimators.functions import best_possible, kernel_eigh
    from nystrom.estimators.gp import GaussianProcessRegressor
    from nystrom.estimators.loss import KernelLogisticRegression, KernelSVC, KernelSVR
    from nystrom.estimators.pca import KernelPCA
    from nystrom.estimators.ridge import KernelRidge, KernelRidgeClassifier

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
    "best_possible",
    "kernel_eigh",
]

_HOMES = {
    "cluster": ("KernelKMeans", "SpectralClustering"),
    "features": ("Nystroem",),
    "functions": ("best_possible", "kernel_eigh"),
    "gp": ("GaussianProcessRegressor",),
    "loss": ("KernelLogisticRegression", "KernelSVC", "KernelSVR"),
    "pca": ("KernelPCA",),
    "ridge": ("KernelRidge", "KernelRidgeClassifier"),
}


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'nystrom.estimators' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"nystrom.estimators.{home}"), name)
    return value
