"""The shared parameters: written once, seen everywhere."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from sklearn.base import clone

import nystrom
from nystrom import (
    GaussianProcessRegressor,
    KernelLogisticRegression,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
    Nystroem,
)
from nystrom.estimators.base import KernelMachine
from nystrom.landmarks import SketchedKMeans

ESTIMATORS = [
    value
    for value in (getattr(nystrom, name) for name in nystrom.__all__)
    if inspect.isclass(value) and issubclass(value, KernelMachine)
]
SHARED = set(inspect.signature(KernelMachine.__init__).parameters) - {"self"}
each = pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)


def test_all_estimators_are_looked_at():
    assert len(ESTIMATORS) >= 7
    assert len(SHARED) >= 13


@each
def test_every_signature_names_every_shared_parameter_and_no_catch_all(cls):
    parameters = inspect.signature(cls).parameters
    assert set(parameters) >= SHARED
    assert not [p for p in parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


@each
def test_the_defaults_of_the_signature_are_those_of_the_constructor(cls):
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    assert cls().get_params(deep=False) == defaults


@each
def test_every_parameter_is_documented_once_in_the_order_of_the_signature_with_its_default(cls):
    section = re.search(r"Parameters\n-+\n(.*?)\n\n", inspect.cleandoc(cls.__doc__), re.S)[1]
    headers = re.findall(r"^(\w[\w, ]*?)(?: : (.*))?$", section, re.M)
    names = [name for header, _ in headers for name in header.split(", ")]
    parameters = inspect.signature(cls).parameters
    assert sorted(names) == sorted(parameters)
    shared = [name for name in names if name in SHARED - {"n_components", "gamma", "kernel"}]
    assert shared == [name for name in parameters if name in shared]
    for header, kind in headers:
        for stated in re.findall(r"default=(.*)$", kind):
            assert repr(parameters[header].default) == repr(eval(stated))


@each
def test_an_unknown_parameter_raises(cls):
    with pytest.raises(TypeError, match=f"{cls.__name__} got an unexpected.*'n_landmark'. Did you mean 'n_land"):
        cls(n_landmark=3)


@each
@pytest.mark.parametrize("theirs", ["kernel_params", "n_restarts_optimizer", "copy_X", "warm_start", "probability"])
def test_a_parameter_of_scikit_learns_estimator_names_its_substitute(cls, theirs):
    if theirs in inspect.signature(cls).parameters:
        assert clone(cls(**{theirs: None})).get_params()[theirs] is None
        return
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{theirs}'. (Bind|Leave)"):
        cls(**{theirs: None})


@each
def test_parameters_survive_clone_and_reach_the_selector(cls):
    model = cls(landmarks=SketchedKMeans(sketch_dim=7), gamma=0.5, n_components=4, random_state=3)
    copy = clone(model).set_params(landmarks__sketch_dim=5, verbose=1)
    assert copy.landmarks.sketch_dim == 5
    assert model.landmarks.sketch_dim == 7
    assert (copy.gamma, copy.n_components, copy.random_state, copy.verbose) == (0.5, 4, 3, 1)


def test_a_subclass_that_takes_shared_parameters_shows_all_of_its_base():
    class Tuned(nystrom.KernelRidge):
        """A ridge with one parameter more.

        Parameters
        ----------
        extra : int, default=2
            Its own.
        **shared
            The rest.
        """

        def __init__(self, extra=2, *, n_landmarks=50, **shared):
            super().__init__(n_landmarks=n_landmarks, **shared)
            self.extra = extra

    names = list(inspect.signature(Tuned).parameters)
    assert names[:2] == ["extra", "n_landmarks"]
    assert set(names) == {"extra", *inspect.signature(nystrom.KernelRidge).parameters}
    assert 'n_landmarks : int, "auto" or None, default=50' in Tuned.__doc__
    assert "alpha : float, list of float" in Tuned.__doc__
    assert clone(Tuned(extra=3, alpha=0.1)).get_params()["alpha"] == 0.1


FLAGS = [
    (Nystroem, "tol_norm"),
    (KernelRidge, "fit_intercept"),
    (KernelRidge, "early_stopping"),
    (KernelRidge, "compute_dual"),
    (KernelRidge, "tol"),
    (KernelRidge, "max_iter"),
    (KernelRidgeClassifier, "fit_intercept"),
    (KernelLogisticRegression, "fit_intercept"),
    (KernelSVC, "fit_intercept"),
    (KernelSVR, "fit_intercept"),
    (GaussianProcessRegressor, "normalize_y"),
    (KernelPCA, "fit_inverse_transform"),
    (KernelPCA, "alpha"),
]


@pytest.mark.parametrize(
    ("cls", "name"), [*FLAGS, *((cls, name) for cls in ESTIMATORS for name in ("degree", "coef0"))]
)
@pytest.mark.parametrize("value", ["bogus", np.nan, -1.5, None, np.array([1, 2])], ids=repr)
def test_a_value_of_no_use_is_refused_also_where_this_fit_would_not_use_it(cls, name, value):
    if name == "coef0" and isinstance(value, float) and value < 0:
        value = -np.inf  # Negative ones are of use to the sigmoid kernel.
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(ValueError, match=rf"{name} must be"):
        cls(**{name: value}).fit(X, X[:, 0] > 0)


def test_flags_may_be_numpys_or_0_and_1():
    X = np.random.default_rng(0).normal(size=(40, 3))
    for yes in (True, np.True_, 1):
        assert KernelRidge(alpha=1.0, fit_intercept=yes, landmarks=X[:5]).fit(X, X[:, 0] + 5).intercept_[0] > 1
