"""
The two algorithms of the paper
===============================

Algorithm 1 cuts the rank in the kernel of the landmarks, Algorithm 2 in the whole approximation. On points that a
quadratic kernel makes separable, two features of Algorithm 2 have the smallest error that four landmarks allow. The
error of Algorithm 1 depends on which landmarks are drawn.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import Nystroem

rng = np.random.default_rng(0)
n = 4000
inside = rng.random(n) < 0.5
X = rng.normal(size=(n, 2)) * np.where(inside, 0.3, 0.0)[:, None]
angle = rng.uniform(0, 2 * np.pi, n)
X += np.where(inside, 0.0, 1.5)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
X *= [1.0, 1.3]

figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.8), layout="constrained")
axes[0].scatter(*X.T, c=inside, s=2, cmap="coolwarm")
axes[0].set_title("the points")
for axis, factor, title in ((axes[1], "standard", "Algorithm 1"), (axes[2], "optimal", "Algorithm 2")):
    features = Nystroem(
        "polynomial",
        degree=2,
        coef0=0,
        n_components=2,
        n_landmarks=4,
        landmarks="uniform",
        factor=factor,
        random_state=16,
    )
    L = features.fit_transform(X)
    error = features.approximation_error(X).value
    axis.scatter(*L.T, c=inside, s=2, cmap="coolwarm")
    axis.set_title(f"{title}: error {error:.2f}")
plt.show()
