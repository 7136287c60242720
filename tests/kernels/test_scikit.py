"""Gaussian process kernels of scikit-learn have the same values here, by kernels of this library where it has them."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as gp

from nystrom.kernels import FromCallable, Gaussian, InMetric, Matern, Polynomial, from_scikit, make_kernel

X = np.random.default_rng(0).normal(size=(40, 3))

TRANSLATED = {
    "rbf": (gp.RBF(0.7), Gaussian(0.5 / 0.7**2)),
    "rbf, a length per column": (gp.RBF([0.5, 1.0, 4.0]), InMetric(Gaussian(0.5), [2.0, 1.0, 0.25])),
    "rbf, a list of one": (gp.RBF([2.0]), Gaussian(0.125)),
    "matern 1/2": (gp.Matern(2.0, nu=0.5), Matern(0.5, 0.25)),
    "matern 3/2, a length per column": (gp.Matern([1.0, 2.0, 4.0], nu=1.5), InMetric(Matern(1.5, 1.0), [1, 0.5, 0.25])),
    "matern 5/2": (gp.Matern(2.0, nu=2.5), Matern(2.5, 0.25)),
    "matern, infinitely smooth": (gp.Matern(2.0, nu=np.inf), Gaussian(0.125)),
    "dot product": (gp.DotProduct(3.0), Polynomial(1, 1.0, 9.0)),
    "a multiple of a sum": (
        3.0 * (gp.RBF(2.0) + gp.DotProduct(1.0)),
        3.0 * (Gaussian(0.125) + Polynomial(1, 1.0, 1.0)),
    ),
    "product": (gp.RBF(2.0) * gp.Matern(1.0, nu=0.5), Gaussian(0.125) * Matern(0.5, 1.0)),
    "power": (gp.DotProduct(1.0) ** 2, Polynomial(1, 1.0, 1.0) * Polynomial(1, 1.0, 1.0)),
}
CALLED = {
    "rational quadratic": gp.RationalQuadratic(),
    "periodic": gp.ExpSineSquared(),
    "constant": gp.ConstantKernel(2.0),
    "two constants": gp.ConstantKernel(2.0) * gp.ConstantKernel(3.0),
    "matern 7/2": gp.Matern(nu=3.5),
    "root": gp.RBF() ** 0.5,
    "pairwise": gp.PairwiseKernel(metric="laplacian"),
    "noise": gp.RBF() + gp.WhiteKernel(),
    "scaled": 2.0 * gp.RationalQuadratic() * gp.RBF(),
}


@pytest.mark.parametrize(("kernel", "same"), TRANSLATED.values(), ids=TRANSLATED)
def test_kernels_of_this_library_take_their_place(kernel, same):
    assert from_scikit(kernel) == make_kernel(kernel) == same
    assert same.is_psd
    np.testing.assert_allclose(same(X, X[:9]), kernel(X, X[:9]), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(same.diag(X), kernel.diag(X), rtol=1e-13)


@pytest.mark.parametrize("kernel", CALLED.values(), ids=CALLED)
def test_all_others_are_called(kernel):
    np.testing.assert_allclose(from_scikit(kernel)(X, X[:9]), kernel(X, X[:9]), rtol=1e-13, atol=1e-13)


def test_a_subclass_is_called_for_it_may_mean_something_else():
    class Twice(gp.RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 2 * super().__call__(X, Y)

    assert from_scikit(Twice()) == FromCallable(Twice())
    np.testing.assert_allclose(make_kernel(Twice())(X, X), 2 * Gaussian(0.5)(X, X))
