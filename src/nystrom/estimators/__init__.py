"""The estimators: thin shells over the core."""

from nystrom.estimators.best_error import best_possible
from nystrom.estimators.classifier import KernelRidgeClassifier
from nystrom.estimators.cluster import KernelKMeans, SpectralClustering
from nystrom.estimators.eigen import kernel_eigh
from nystrom.estimators.features import Nystroem
from nystrom.estimators.gp import GaussianProcessRegressor
from nystrom.estimators.logistic import KernelLogisticRegression
from nystrom.estimators.pca import KernelPCA
from nystrom.estimators.ridge import KernelRidge
from nystrom.estimators.svm import KernelSVC, KernelSVR

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
