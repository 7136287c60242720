"""The estimators: thin shells over the core."""

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
