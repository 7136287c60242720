"""A fit is whole or it did not happen: errors and interrupts leave an estimator as it was."""

import numpy as np
import pytest

from nystrom import (
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
)
from nystrom.kernels import Gaussian

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
VALUES = np.sin(X[:, 0]) + X[:, 1]
CLASSES = (VALUES > 0).astype(int)
MACHINES = [
    (Nystroem(n_components=5), None),
    (KernelPCA(n_components=3), None),
    (KernelKMeans(n_clusters=2), None),
    (SpectralClustering(n_clusters=2), None),
    (KernelRidge(alpha=1.0), VALUES),
    (KernelRidge(alpha=1.0, solver="cg"), VALUES),
    (KernelRidge(alpha=1.0, solver="exact"), VALUES),
    (KernelRidgeClassifier(), CLASSES),
    (GaussianProcessRegressor(), VALUES),
    (KernelLogisticRegression(C=1.0), CLASSES),
    (KernelSVC(C=1.0), CLASSES),
    (KernelSVR(C=1.0), VALUES),
]


def with_nan():
    bad = RNG.normal(size=(80, 5))
    bad[77, 2] = np.nan
    return bad


def interrupted(A, B):
    raise KeyboardInterrupt


def unchanged(machine, before):
    now = vars(machine)
    return now.keys() == before.keys() and all(now[name] is value for name, value in before.items())


@pytest.mark.parametrize(("machine", "y"), MACHINES, ids=lambda value: repr(value) if hasattr(value, "fit") else "")
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(machine, y):
    machine.set_params(random_state=0)
    target = () if y is None else (y,)
    with pytest.raises(ValueError, match="NaN"):
        machine.fit(with_nan(), *target)
    assert vars(machine) == machine.get_params()
    machine.fit(X, *target)
    before = dict(vars(machine))
    with pytest.raises(ValueError, match="row 77"):
        machine.fit(with_nan(), *target)
    assert unchanged(machine, before)
    use = getattr(machine, "predict", None) or machine.transform
    use(X)
    machine.set_params(kernel=interrupted)
    before = dict(vars(machine))
    with pytest.raises(KeyboardInterrupt):
        machine.fit(RNG.normal(size=(80, 7)), *target)
    assert unchanged(machine, before)


@pytest.mark.parametrize("name", ["partial_fit", "fit_transform", "fit_predict"])
def test_the_other_ways_to_fit_are_whole_too(name):
    machine = {"fit_predict": KernelKMeans(n_clusters=2)}.get(name, Nystroem(n_components=5)).set_params(random_state=0)
    machine.fit(X)
    before = dict(vars(machine))
    with pytest.raises(ValueError, match="row 77"):
        getattr(machine, name)(with_nan()[:, :3])
    assert unchanged(machine, before)


@pytest.mark.parametrize("name", ["fit", "fit_transform"])
def test_a_lack_of_memory_says_what_to_do(name, monkeypatch):
    def no_memory(*args, **kwargs):
        raise MemoryError("Unable to allocate 32.0 GiB")

    monkeypatch.setattr(Gaussian, "__call__", no_memory)
    monkeypatch.setattr(Gaussian, "resolve", no_memory)
    machine = Nystroem(n_components=5, random_state=0)
    with pytest.raises(MemoryError, match=r"^the fit ran out of memory .*32\.0 GiB\)\. Use fewer landmarks") as told:
        getattr(machine, name)(X)
    assert str(told.value).count("ran out of memory") == 1
