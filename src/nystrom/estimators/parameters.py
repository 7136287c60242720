"""Parameters that the estimators share: declared and documented once, with their defaults.

A class accepts those of its base and of its ``_options`` as ``**shared``. :func:`complete` writes them out, so that
``help``, ``inspect.signature`` and scikit-learn's ``get_params`` list each by name, with the default of that class;
:func:`set_parameters` stores them.
"""

from __future__ import annotations

import difflib
import html
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter
from itertools import takewhile
from typing import Any, Self, TypedDict

import numpy as np

from nystrom.checks import RandomState, check_choice, check_count, check_flag, check_optional_count
from nystrom.exceptions import warn_caller
from nystrom.kernels import GammaLike, KernelLike, Linear
from nystrom.landmarks import LandmarksLike
from nystrom.tuning.metric import MetricLike
from nystrom.types import Array

_SECTION = "Parameters\n----------\n"
_MARKER = "**shared"
# Replacements for scikit-learn parameters that a machine does not accept.
_SUBSTITUTES = {
    "affinity": "Give it as kernel.",
    "algorithm": "Leave it out: k-means is Lloyd's.",
    "copy_X": "Leave it out: X is never changed.",
    "copy_x": "Leave it out: X is never changed.",
    "copy_X_train": "Leave it out: no row of X is kept.",
    "decision_function_shape": "Leave it out: there is one function per class, against the rest.",
    "dual": "Leave it out: the solver works on the coefficients of the landmarks.",
    "eigen_solver": "Leave it out: the eigenvalues are those of a small matrix.",
    "init": "Leave it out: k-means is seeded by k-means++, n_init times.",
    "intercept_scaling": "Leave it out: the intercept is not penalised.",
    "kernel_params": "Bind them to the function: kernel=functools.partial(function, **kernel_params).",
    "l1_ratio": "Leave it out: the penalty is half the squared norm of the function.",
    "loss": "Leave it out: each loss is a machine of its own.",
    "multi_class": "Leave it out: any number of classes is fitted in one call.",
    "n_restarts_optimizer": "Leave it out: the bandwidth is searched over a wide grid, which needs no restarts.",
    "optimizer": "Leave it out: gamma='auto', alpha='auto' and amplitude='auto' are optimised, numbers are kept.",
    "penalty": "Leave it out: the penalty is half the squared norm of the function.",
    "positive": "Leave it out: coefficients have any sign.",
    "probability": "Leave it out: every classifier has predict_proba.",
    "remove_zero_eig": "Leave it out: directions with eigenvalue zero are always dropped.",
    "solver": "Leave it out: there is one solver, which tol and max_iter steer.",
    "warm_start": "Leave it out: C given as a list is fitted from one value to the next.",
}


class CommonParameters(TypedDict, total=False):
    """Shared parameters whose defaults are the same in every estimator."""

    degree: int
    coef0: float
    n_landmarks: int | str | None
    landmarks: LandmarksLike
    factor: str
    max_memory: str | float | None
    max_device_memory: str | float | None
    n_jobs: int | None
    engine: str
    random_state: RandomState
    verbose: int


class SharedParameters(CommonParameters, total=False):
    """All parameters of :class:`nystrom.estimators.base.KernelMachine`."""

    kernel: KernelLike
    gamma: GammaLike
    n_components: int | None


def check_names(cls: type, names: Iterable[str]) -> None:
    """Raise ``TypeError`` for a parameter that the class does not have, with a replacement."""
    known = inspect.signature(cls).parameters
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = _SUBSTITUTES.get(name) or (f"Did you mean {near[0]!r}?" if near else "")
            raise TypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}. {advice}".rstrip())


class TargetParameters(SharedParameters, total=False):
    """All parameters of :class:`nystrom.estimators.targets.TargetMachine`."""

    metric: MetricLike
    max_time: float | str | None


@dataclass(frozen=True)
class Options:
    """Parameters that several machines share, as checked values."""

    @classmethod
    def of(cls, machine: Any) -> Self:
        """Return the values given to a machine, checked."""
        return cls(**{each.name: getattr(machine, each.name) for each in fields(cls)})


def complete(cls: type) -> None:
    """Write the parameters behind ``**shared`` into the signature and the docstring of a class."""
    init = vars(cls).get("__init__")
    if init is not None:
        signature = init.__dict__["__signature__"] = _full_signature(cls, init)
        # Also set it on the class, without self, because inspect looks at __new__ first.
        cls.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    if cls.__doc__ and _MARKER in cls.__doc__:
        cls.__doc__ = _full_docstring(cls)


def set_parameters(machine: object, init: Any, given: dict[str, Any]) -> None:
    """Store a constructor's parameters from its local names, with defaults for those missing from ``**shared``.

    Parameters
    ----------
    machine : object
        The machine.
    init : function
        Its constructor.
    given : dict
        Local names of the constructor.
    """
    given = given | given.get("shared", {})
    for name, parameter in [*inspect.signature(init).parameters.items()][1:]:
        setattr(machine, name, given.get(name, parameter.default))


def _full_signature(cls: type, init: Any) -> inspect.Signature:
    signature = inspect.signature(init)
    own = [p for p in signature.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    if len(own) == len(signature.parameters):
        return signature
    parent = next((vars(base)["__init__"] for base in cls.__mro__[1:] if "__init__" in vars(base)), None)
    sources = [*getattr(cls, "_options", ()), *([] if parent is None else [parent])]
    for source in sources:
        for name, parameter in inspect.signature(source).parameters.items():
            if name not in {"self", *(each.name for each in own)} and parameter.kind is not Parameter.VAR_KEYWORD:
                own.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
    return signature.replace(parameters=own)


def _full_docstring(cls: type) -> str:
    """Return the docstring with the entry ``**shared`` replaced by the bases' entries, in the signature's order."""
    doc = inspect.cleandoc(cls.__doc__ or "") + "\n"
    entries: dict[str, str] = {}
    for base in (*reversed(cls.__mro__), *getattr(cls, "_options", ())):
        entries.update(_entries(inspect.cleandoc(base.__doc__ or "")))
    documented = _entries(doc)
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    wanted = [name for name in defaults if name in entries and name not in documented]
    # Write an entry for several names once.
    written = dict.fromkeys(_with_default(entries[name], defaults[name]) for name in wanted)
    return doc.replace(documented[_MARKER], "".join(written))


def _entries(doc: str) -> dict[str, str]:
    """Return the text of each entry of the Parameters section, by name."""
    _, _, section = doc.partition(_SECTION)
    found: dict[str, str] = {}
    for header, entry in _split(section):
        for name in header.partition(" : ")[0].split(", "):
            found[name.strip()] = entry
    return found


def _split(section: str) -> Iterator[tuple[str, str]]:
    lines = list(takewhile(lambda line: line.strip(), section.splitlines(keepends=True)))
    starts = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    for start, stop in zip(starts, [*starts, len(lines)][1:], strict=True):
        yield lines[start], "".join(lines[start:stop]).rstrip("\n") + "\n"


def _with_default(entry: str, value: Any) -> str:
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return re.sub(r", default=.*", lambda _: f", default={shown}", entry, count=1)


# Attributes of scikit-learn's estimators that do not exist here, and what to use instead.
ABSENT = {
    "L_": "there is no n × n factor of the covariance; map_ has the landmarks' and projection_ its directions.",
    "X_fit_": "rows are not kept; landmarks_ has the points that predict.",
    "X_train_": "rows are not kept; landmarks_ has the points that predict.",
    "X_transformed_fit_": "rows are not kept; transform(X) gives their components.",
    "affinity_matrix_": "it would have n × n entries; kernel_(X, X) computes it for some rows.",
    "dual_coef_": "there is one coefficient per landmark, in landmark_coef_, and none per row.",
    "eigenvectors_": "rows are not kept; transform(X) / np.sqrt(eigenvalues_) gives them for the rows of the fit.",
    "n_support_": "every landmark takes part: see landmarks_ and landmark_coef_.",
    "support_": "every landmark takes part: see landmark_indices_.",
    "support_vectors_": "every landmark takes part: see landmarks_ and landmark_coef_.",
    "y_train_": "targets are not kept.",
}


def _gamma(machine: Any) -> Any:
    """Return the width of the fitted kernel: a number, or one per column."""
    kernel = getattr(machine.map_.kernel, "kernel", machine.map_.kernel)
    if not hasattr(kernel, "gamma"):
        raise AttributeError(f"there is no gamma_: {machine.kernel_!r} has no gamma; kernel_ is the fitted kernel.")
    # None is scikit-learn's default.
    return 1 / machine.n_features_in_ if kernel.gamma is None else kernel.gamma


def _coef(machine: Any) -> Array:
    """Return the coefficients of the columns, shape (t, p): ``f(x) = x @ coef_.T + intercept_`` for a linear kernel."""
    if type(machine.map_.kernel) is not Linear or not hasattr(machine, "intercept_"):
        raise AttributeError(
            f"there is no coef_: it belongs to kernel='linear' of a machine with an intercept; this is a "
            f"{type(machine).__name__} with {machine.kernel_!r}."
        )
    training = getattr(machine, "training_rows_", None)
    if training is None:
        return np.asarray((machine.landmarks_.T @ machine.landmark_coef_).T)
    return np.asarray((training.rows.take(np.arange(training.shape[0])).T @ machine._dual_coef).T)


# Attributes of scikit-learn's estimators that are computed from the fit.
DERIVED: dict[str, Callable[[Any], Any]] = {"gamma_": _gamma, "coef_": _coef}


def given_kernel(machine: Any) -> KernelLike:
    """Return the kernel given to a machine, under any of scikit-learn's names for it."""
    affinity, parameters = (getattr(machine, name, None) for name in ("affinity", "kernel_params"))
    kernel: KernelLike | None = machine.kernel if affinity is None else affinity
    if parameters and callable(kernel):
        return partial(kernel, **parameters)
    return "gaussian" if kernel is None else kernel


def searches_gamma(machine: Any) -> bool:
    """Whether a fit searches the width of the kernel."""
    return isinstance(machine.gamma, str) and machine.gamma == "auto"


def chooses_kernel(machine: Any) -> bool:
    """Whether a fit chooses among kernels: for kernel="auto", and for the default kernel if there is a time limit."""
    free = machine.max_time is not None and isinstance(machine.gamma, str)
    return isinstance(machine.kernel, str) and machine.kernel in (("auto", "gaussian") if free else ("auto",))


@dataclass(frozen=True)
class ScikitKernel(Options):
    """Parameters of scikit-learn's machines with a pairwise kernel, in addition to gamma, degree and coef0.

    Parameters
    ----------
    kernel_params : dict or None, default=None
        Keyword arguments of a kernel that is a function; other kernels do not use them.
    """

    kernel_params: dict[str, Any] | None = None


@dataclass(frozen=True)
class ScikitPCA(Options):
    """Parameters of :class:`sklearn.decomposition.KernelPCA`.

    Parameters
    ----------
    eigen_solver, tol, max_iter, iterated_power, remove_zero_eig, copy_X : any
        Accepted as by :class:`sklearn.decomposition.KernelPCA`, without effect: the eigenvectors are those of a small
        matrix, computed in full; directions with eigenvalue zero are dropped; X is never changed.
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
    """Parameters of :class:`sklearn.gaussian_process.GaussianProcessRegressor`.

    Parameters
    ----------
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        How the parameters of a scikit-learn kernel are optimised, as in
        :class:`sklearn.gaussian_process.GaussianProcessRegressor`; None keeps them. With None and a kernel given by
        name, ``gamma``, ``alpha`` and ``amplitude`` must be numbers.
    n_restarts_optimizer : int, default=0
        Further random starts of that search within the bounds. Without effect for a kernel given by name: its
        likelihood is searched over a wide grid.
    copy_X_train : bool, default=True
        Without effect: X is never changed.
    n_targets : int or None, default=None
        Number of targets of draws and predictions before the fit; None is 1. A fit to another number raises an error.
    """

    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    copy_X_train: bool = True  # noqa: N815
    n_targets: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer not in (None, "fmin_l_bfgs_b") and not callable(self.optimizer):
            raise ValueError(f"optimizer must be 'fmin_l_bfgs_b', a function or None; got {self.optimizer!r}.")
        check_count(self.n_restarts_optimizer, "n_restarts_optimizer", least=0)
        check_optional_count(self.n_targets, "n_targets")


@dataclass(frozen=True)
class ScikitSVM(Options):
    """Parameters of :class:`sklearn.svm.SVR`.

    Parameters
    ----------
    shrinking, cache_size : any
        Accepted as by :class:`sklearn.svm.SVC`, without effect: the solver has no such heuristic and no cache.
    """

    shrinking: bool = True
    cache_size: float = 200


@dataclass(frozen=True)
class ScikitSVC(Options):
    """Parameters of :class:`sklearn.svm.SVC`.

    Parameters
    ----------
    probability : bool, default=False
        Without effect: :meth:`predict_proba` is always there.
    decision_function_shape : "ovr", default="ovr"
        One function per class, against the rest.
    break_ties : bool, default=False
        Without effect: the class is always that of the largest function.
    """

    probability: bool = False
    decision_function_shape: str = "ovr"
    break_ties: bool = False

    def __post_init__(self) -> None:
        check_flag(self.probability, "probability")
        if self.decision_function_shape != "ovr":
            raise ValueError(
                f"decision_function_shape must be 'ovr', one class against the rest; got "
                f"{self.decision_function_shape!r}. For pairs of classes use sklearn.multiclass.OneVsOneClassifier("
                f"KernelSVC())."
            )


@dataclass(frozen=True)
class ScikitClustering(Options):
    """Parameters of :class:`sklearn.cluster.SpectralClustering`.

    Parameters
    ----------
    affinity : str, callable or None, default=None
        Scikit-learn's name for ``kernel``, used instead of it if not None.
    eigen_solver, eigen_tol, n_neighbors : any
        Accepted as by :class:`sklearn.cluster.SpectralClustering`, without effect: the eigenvectors are those of a
        small matrix, computed in full; there is no graph of neighbours.
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
                f"affinity={self.affinity!r} is not supported: a graph of neighbours is not a kernel, and has no "
                f"landmarks. Use affinity='rbf', or sklearn.cluster.SpectralClustering for up to some thousand rows."
            )
        if check_choice(self.assign_labels, "assign_labels", ("kmeans", "discretize", "cluster_qr")) != "kmeans":
            warn_caller(
                f"assign_labels={self.assign_labels!r} has no effect: clusters are found by k-means.", UserWarning
            )


def summary(model: Any) -> list[tuple[str, str]]:
    """Return names and values that summarise a fit; empty before the fit."""
    if not hasattr(model, "landmarks_"):
        return []
    m, p = model.landmarks_.shape
    lines = [("landmarks", f"{m:,} of {p:,} columns"), ("kernel", repr(model.kernel_))]
    certificate = getattr(model, "certificate_", None)
    if certificate is not None:
        lines.append(("rank", f"{model.n_components_:,}"))
        lines.append(("error", f"{certificate.trace} on {certificate.n_rows:,} rows"))
    for name in ("alpha_", "C_", "solver_", "n_iter_"):
        value = getattr(model, name, None)
        if value is not None:
            lines.append((name.rstrip("_"), f"{value:.4g}" if isinstance(value, float) else str(value)))
    stages = getattr(model, "_stages", None)
    if stages:
        lines.append(("passes", str(sum(stage.n_passes for stage in stages))))
        lines.append(("seconds", ", ".join(f"{stage.name} {stage.seconds:.2g}" for stage in stages)))
    quality = getattr(model, "quality_", None)
    if quality is not None:
        lines.append(("quality", str(quality)))
    return lines


def summary_html(model: Any) -> str:
    """Return the summary as a small table that follows the page's colours."""
    lines = summary(model)
    if not lines:
        return ""
    cell = "padding:0 1em 0 0;text-align:left;background:none;border:none"
    rows = "".join(
        f'<tr><th scope="row" style="{cell};font-weight:600">{html.escape(name)}</th>'
        f'<td style="{cell}">{html.escape(value)}</td></tr>'
        for name, value in lines
    )
    style = "border-collapse:collapse;margin:0 0 .5em;font-family:monospace;font-size:.9em"
    return f'<table class="nystrom-summary" style="{style}"><tbody>{rows}</tbody></table>'
