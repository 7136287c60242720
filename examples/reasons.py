"""
Explaining predictions with Shapley values
==========================================

``explain`` gives exact Shapley values. The first column acts through its square, the second and third only together,
and the fourth does nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

import nystrom
from nystrom.explanation import interactions

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(2000, 4))
y = X[:, 0] ** 2 + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=2000)
model = nystrom.KernelRidge(alpha="auto", n_landmarks=300, random_state=0).fit(X, y)
reasons = nystrom.explain(model, X[:400], background=X)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
reasons.plot(kind="swarm", ax=axes[0])
axes[0].set_title("400 rows, exact values")
reasons.plot(row=3, ax=axes[1])
axes[1].set_title("one row")
interactions(model, X).plot(ax=axes[2])
axes[2].set_title("columns that act together")
plt.show()
