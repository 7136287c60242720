"""scikit-learn's Gaussian process kernels, translated into kernel, amplitude and noise.

``ConstantKernel() * RBF() + WhiteKernel()`` is a covariance: what it leaves free is found by the marginal likelihood,
within its bounds; what it fixes stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nystrom.kernels import FromCallable, Gaussian, Kernel, Matern

Bounds = tuple[float, float]
ANYWHERE: Bounds = (0.0, float("inf"))

# An object of sklearn.gaussian_process.kernels, which ships no types.
ScikitKernel: TypeAlias = Any


@dataclass(frozen=True)
class Variance:
    """The noise or the amplitude: a number, or None for one to be found within ``bounds``."""

    value: float | None = None
    bounds: Bounds = ANYWHERE


@dataclass(frozen=True)
class Covariance:
    """``amplitude · kernel + noise · I``; ``gamma_bounds`` is None where the kernel's bandwidth is given."""

    kernel: Kernel
    gamma_bounds: Bounds | None
    amplitude: Variance
    noise: Variance


def is_scikit_kernel(kernel: object) -> bool:
    """Return whether the object is one of scikit-learn's Gaussian process kernels; imports nothing."""
    module = sys.modules.get("sklearn.gaussian_process.kernels")
    return module is not None and isinstance(kernel, module.Kernel)


def fixed(kernel: ScikitKernel) -> ScikitKernel:
    """Return the kernel with all its parameters fixed."""
    found = kernel.clone_with_theta(kernel.theta)
    return found.set_params(**{f"{each.name}_bounds": "fixed" for each in kernel.hyperparameters})


def translate(kernel: ScikitKernel, *, alpha: float | None, amplitude: float | None) -> Covariance:
    """Return the covariance that a kernel of scikit-learn stands for.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        A sum of WhiteKernels and one signal: a product of ConstantKernels and an RBF, a Matern, or any kernel all of
        whose parameters are fixed.
    alpha, amplitude : float or None
        The estimator's own, where they are numbers: a noise that is added to that of the WhiteKernels, and the
        amplitude of a signal without ConstantKernel.

    Raises
    ------
    ValueError
        If it cannot be translated; says what to write instead.
    """
    white: list[ScikitKernel] = []
    signals: list[ScikitKernel] = []
    amplitudes: list[ScikitKernel] = []
    gamma_bounds: Bounds | None = None
    for term in _parts(kernel, "Sum"):
        (white if _is(term, "WhiteKernel") else signals).append(term)
    if not signals:
        raise ValueError(f"kernel={kernel} is noise alone; add what is to be learned, such as RBF().")
    if len(signals) > 1:
        base = _fixed_or_refuse(sum(signals[1:], signals[0]), kernel)
    else:
        base, gamma_bounds, amplitudes = _signal(signals[0], kernel)
    if amplitudes and amplitude is not None:
        raise ValueError(
            f"amplitude={amplitude!r} and the ConstantKernel of kernel={kernel} both set the amplitude: leave "
            f"amplitude='auto', or leave the ConstantKernel out."
        )
    # Without a ConstantKernel the covariance of scikit-learn's kernels is 1 at distance 0.
    found = _joined(amplitudes, "constant_value") if amplitudes else Variance(1.0 if amplitude is None else amplitude)
    return Covariance(base, gamma_bounds, found, _noise(white, alpha))


def _parts(kernel: ScikitKernel, joint: str) -> Iterator[ScikitKernel]:
    """Yield the terms of a sum, or the factors of a product."""
    if _is(kernel, joint):
        yield from _parts(kernel.k1, joint)
        yield from _parts(kernel.k2, joint)
    else:
        yield kernel


def _is(kernel: ScikitKernel, name: str) -> bool:
    # Exact classes: a subclass may mean something else than its base.
    return type(kernel) is getattr(sys.modules["sklearn.gaussian_process.kernels"], name)


def _signal(term: ScikitKernel, whole: ScikitKernel) -> tuple[Kernel, Bounds | None, list[ScikitKernel]]:
    """Return the kernel of unit amplitude, the bounds of its bandwidth, and the constants it is multiplied with."""
    constants: list[ScikitKernel] = []
    others: list[ScikitKernel] = []
    for factor in _parts(term, "Product"):
        (constants if _is(factor, "ConstantKernel") else others).append(factor)
    if (
        len(others) == 1
        and (_is(others[0], "RBF") or _is(others[0], "Matern"))
        and np.size(others[0].length_scale) == 1
    ):
        found = _of_distance(others[0])
        if found is not None:
            return *found, constants
    if not others:
        return _fixed_or_refuse(term, whole), None, []
    product = others[0]
    for factor in others[1:]:
        product = product * factor
    return _fixed_or_refuse(product, whole), None, constants


def _of_distance(kernel: ScikitKernel) -> tuple[Kernel, Bounds | None] | None:
    """Return an RBF or Matern kernel as one of ours, with the bounds of gamma if it is free; None if there is none."""
    nu = np.inf if _is(kernel, "RBF") else kernel.nu
    if nu not in (0.5, 1.5, 2.5, np.inf):
        return None
    power = 0.5 if nu == np.inf else 1.0
    length = float(np.reshape(kernel.length_scale, ()) if np.ndim(kernel.length_scale) == 0 else kernel.length_scale[0])
    bounds = _bounds(kernel, "length_scale")
    gamma_bounds = None if bounds is None else (power / bounds[1] ** 2, power / bounds[0] ** 2)
    gamma: Any = "scale" if gamma_bounds else power / length**2
    return (Gaussian(gamma) if nu == np.inf else Matern(nu, gamma)), gamma_bounds


def _bounds(kernel: ScikitKernel, name: str) -> Bounds | None:
    """Return the bounds of a hyperparameter, None if it is fixed."""
    hyperparameter = getattr(kernel, f"hyperparameter_{name}")
    if hyperparameter.fixed:
        return None
    low, high = np.reshape(hyperparameter.bounds, (-1, 2))[0]
    return float(low), float(high)


def _fixed_or_refuse(part: ScikitKernel, whole: ScikitKernel) -> Kernel:
    """Return a kernel as a function of rows, or raise unless all its parameters are fixed."""
    if _contains(part, "WhiteKernel"):
        raise ValueError(f"in kernel={whole} a WhiteKernel is multiplied; write it as a term of its own.")
    if part.n_dims:
        raise ValueError(
            f"kernel={whole} cannot be optimised here: what is free must be the constant, the single length scale of "
            f"one RBF or Matern (nu 0.5, 1.5 or 2.5), and the noise of a WhiteKernel, as in "
            f"ConstantKernel() * RBF() + WhiteKernel(). Fix the parameters of {part} (such as "
            f"length_scale_bounds='fixed'), write kernel='gaussian' or 'matern', or divide the columns by their length "
            f"scales and give one for all."
        )
    return FromCallable(part)


def _contains(kernel: ScikitKernel, name: str) -> bool:
    inner = [getattr(kernel, attribute) for attribute in ("k1", "k2", "kernel") if hasattr(kernel, attribute)]
    return _is(kernel, name) or any(_contains(part, name) for part in inner)


def _joined(constants: list[ScikitKernel], name: str) -> Variance:
    """Return the product of constants: a number if all are fixed."""
    value, low, high, free = 1.0, 1.0, 1.0, False
    for constant in constants:
        here, bounds = float(getattr(constant, name)), _bounds(constant, name)
        value, free = value * here, free or bounds is not None
        low, high = low * (bounds or (here, here))[0], high * (bounds or (here, here))[1]
    return Variance(None, (low, high)) if free else Variance(value)


def _noise(white: list[ScikitKernel], alpha: float | None) -> Variance:
    """Return the sum of the noises and ``alpha``: a number if all are fixed."""
    value, low, high = (alpha or 0.0,) * 3
    free = alpha is None and not white
    for term in white:
        here, bounds = float(term.noise_level), _bounds(term, "noise_level")
        value, free = value + here, free or bounds is not None
        low, high = low + (bounds or (here, here))[0], high + (bounds or (here, here))[1]
    if not free:
        return Variance(value)
    return Variance(None, (low, high) if white else ANYWHERE)
