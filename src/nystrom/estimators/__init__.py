"""The estimators: thin shells over the core."""

from nystrom.estimators.classifier import KernelRidgeClassifier
from nystrom.estimators.cluster import KernelKMeans, SpectralClustering
from nystrom.estimators.eigen import kernel_eigh
from nystrom.estimators.features import Nystroem
from nystrom.estimators.gp import GaussianProcessRegressor
from nystrom.estimators.pca import KernelPCA
from nystrom.estimators.ridge import KernelRidge

__all__ = [
    "GaussianProcessRegressor",
    "KernelKMeans",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "Nystroem",
    "SpectralClustering",
    "kernel_eigh",
]
