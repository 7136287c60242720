"""Parameters of scikit-learn's estimators that these take too: most have no effect, so that code moves as it is.

Values that would change the result are refused, with what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nystrom.checks import check_choice, check_flag
from nystrom.estimators.parameters import Options
from nystrom.exceptions import warn_caller
from nystrom.kernels import KernelLike, Linear
from nystrom.types import Array

# Attributes of scikit-learn's estimators that are not kept, and where to look instead.
ABSENT = {
    "X_fit_": "rows are not kept; landmarks_ has the points that predict.",
    "X_train_": "rows are not kept; landmarks_ has the points that predict.",
    "X_transformed_fit_": "rows are not kept; transform(X) gives their components.",
    "affinity_matrix_": "it would have n × n entries; kernel_(X, X) computes it for some rows.",
    "dual_coef_": "there is one coefficient per landmark, in landmark_coef_, and none per row.",
    "eigenvectors_": "rows are not kept; transform(X) / np.sqrt(eigenvalues_) gives them for the rows of the fit.",
    "n_support_": "every landmark takes part: see landmarks_ and landmark_coef_.",
    "predict_proba": "scores are no probabilities. KernelLogisticRegression has them, and CalibratedClassifierCV of "
    "scikit-learn learns them from held-out rows.",
    "support_": "every landmark takes part: see landmark_indices_.",
    "support_vectors_": "every landmark takes part: see landmarks_ and landmark_coef_.",
    "y_train_": "targets are not kept.",
}


def _gamma(machine: Any) -> Any:
    """Return the width of the fitted kernel: a number, or one per column."""
    kernel = getattr(machine.kernel_, "kernel", machine.kernel_)
    if not hasattr(kernel, "gamma"):
        raise AttributeError(f"gamma_ is not there: {machine.kernel_!r} has no gamma; kernel_ is the fitted kernel.")
    # None is scikit-learn's default.
    return 1 / machine.n_features_in_ if kernel.gamma is None else kernel.gamma


def _coef(machine: Any) -> Array:
    """Return the coefficients of the columns, shape (t, p): ``f(x) = x @ coef_.T + intercept_`` for a linear kernel."""
    if type(machine.kernel_) is not Linear or not hasattr(machine, "intercept_"):
        raise AttributeError(
            f"coef_ is not there: it belongs to kernel='linear' of a machine with an intercept; this is a "
            f"{type(machine).__name__} with {machine.kernel_!r}."
        )
    training = getattr(machine, "training_rows_", None)
    if training is None:
        return np.asarray((machine.landmarks_.T @ machine.landmark_coef_).T)
    return np.asarray((training.rows.take(np.arange(training.shape[0])).T @ machine._dual_coef).T)


# Attributes of scikit-learn's estimators that follow from the fit.
DERIVED: dict[str, Callable[[Any], Any]] = {"gamma_": _gamma, "coef_": _coef}


def given_kernel(machine: Any) -> KernelLike:
    """Return the kernel that a machine was given, under any of scikit-learn's names for it."""
    affinity, parameters = (getattr(machine, name, None) for name in ("affinity", "kernel_params"))
    kernel: KernelLike | None = machine.kernel if affinity is None else affinity
    if parameters and callable(kernel):
        return partial(kernel, **parameters)
    return "gaussian" if kernel is None else kernel


@dataclass(frozen=True)
class ScikitKernel(Options):
    """What scikit-learn's machines of a pairwise kernel take beside gamma, degree and coef0.

    Parameters
    ----------
    kernel_params : dict or None, default=None
        Keyword arguments of a kernel that is a function; other kernels do not use them.
    """

    kernel_params: dict[str, Any] | None = None


@dataclass(frozen=True)
class ScikitPCA(Options):
    """Those of :class:`sklearn.decomposition.KernelPCA`.

    Parameters
    ----------
    eigen_solver, tol, max_iter, iterated_power, remove_zero_eig, copy_X : any
        Taken as :class:`sklearn.decomposition.KernelPCA` does, without effect: the eigenvectors are those of a small
        matrix, in full; directions with eigenvalue zero are dropped; X is never changed.
    """

    eigen_solver: str = "auto"
    tol: float = 0
    max_iter: int | None = None
    iterated_power: int | str = "auto"
    remove_zero_eig: bool = False
    copy_X: bool = True  # noqa: N815

    def __post_init__(self) -> None:
        check_choice(self.eigen_solver, "eigen_solver", ("auto", "dense", "arpack", "randomized"))


@dataclass(frozen=True)
class ScikitProcess(Options):
    """Those of :class:`sklearn.gaussian_process.GaussianProcessRegressor`.

    Parameters
    ----------
    optimizer : "fmin_l_bfgs_b" or None, default="fmin_l_bfgs_b"
        None keeps the parameters of a kernel of scikit-learn as they are; for a kernel by name give ``gamma``,
        ``alpha`` and ``amplitude`` as numbers.
    n_restarts_optimizer, copy_X_train, n_targets : any
        Taken as :class:`sklearn.gaussian_process.GaussianProcessRegressor` does, without effect: the likelihood is
        searched over a wide grid first; no row of X is kept; the number of targets is that of y.
    """

    optimizer: str | None = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    copy_X_train: bool = True  # noqa: N815
    n_targets: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None and not (isinstance(self.optimizer, str) and self.optimizer == "fmin_l_bfgs_b"):
            raise ValueError(
                f"optimizer must be 'fmin_l_bfgs_b' or None; got {self.optimizer!r}. The optimum is found on the "
                f"factor, by a search that cannot be replaced."
            )


@dataclass(frozen=True)
class ScikitSVM(Options):
    """Those of :class:`sklearn.svm.SVR`.

    Parameters
    ----------
    shrinking, cache_size : any
        Taken as :class:`sklearn.svm.SVC` does, without effect: the solver has no such heuristic and no cache.
    """

    shrinking: bool = True
    cache_size: float = 200


@dataclass(frozen=True)
class ScikitSVC(Options):
    """Those of :class:`sklearn.svm.SVC`.

    Parameters
    ----------
    probability : False, default=False
        There are no probabilities; :class:`nystrom.KernelLogisticRegression` has them.
    decision_function_shape : "ovr", default="ovr"
        One function per class, against the rest.
    break_ties : bool, default=False
        Without effect: the class is always that of the largest function.
    """

    probability: bool = False
    decision_function_shape: str = "ovr"
    break_ties: bool = False

    def __post_init__(self) -> None:
        if check_flag(self.probability, "probability"):
            raise ValueError(
                "probability=True is not offered: support vectors give scores, not probabilities. Take "
                "KernelLogisticRegression, or scikit-learn's CalibratedClassifierCV around KernelSVC."
            )
        if self.decision_function_shape != "ovr":
            raise ValueError(
                f"decision_function_shape must be 'ovr', one class against the rest; got "
                f"{self.decision_function_shape!r}. For pairs of classes take sklearn.multiclass.OneVsOneClassifier("
                f"KernelSVC())."
            )


@dataclass(frozen=True)
class ScikitClustering(Options):
    """Those of :class:`sklearn.cluster.SpectralClustering`.

    Parameters
    ----------
    affinity : str, callable or None, default=None
        Scikit-learn's name for ``kernel``, used in its place where it is not None.
    eigen_solver, eigen_tol, n_neighbors : any
        Taken as :class:`sklearn.cluster.SpectralClustering` does, without effect: the eigenvectors are those of a small
        matrix, in full; there is no graph of neighbours.
    assign_labels : "kmeans", default="kmeans"
        With "discretize" or "cluster_qr" the fit warns that clusters are found by k-means.
    """

    affinity: KernelLike | None = None
    eigen_solver: str | None = None
    eigen_tol: float | str = "auto"
    n_neighbors: int = 10
    assign_labels: str = "kmeans"

    def __post_init__(self) -> None:
        if isinstance(self.affinity, str) and self.affinity in ("nearest_neighbors", "precomputed_nearest_neighbors"):
            raise ValueError(
                f"affinity={self.affinity!r} is not offered: a graph of neighbours is no kernel, and has no landmarks. "
                f"Take affinity='rbf', or sklearn.cluster.SpectralClustering for up to some thousand rows."
            )
        if check_choice(self.assign_labels, "assign_labels", ("kmeans", "discretize", "cluster_qr")) != "kmeans":
            warn_caller(
                f"assign_labels={self.assign_labels!r} has no effect: clusters are found by k-means.", UserWarning
            )
