"""
Probabilities and a decision boundary
=====================================

Kernel logistic regression gives the probability of each class. Between the spirals, no class is certain.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import KernelLogisticRegression

rng = np.random.default_rng(0)
n = 3000
turn, label = rng.uniform(0.5, 3.2, n), rng.integers(3, size=n)
angle = 2.2 * turn + label * 2 * np.pi / 3
X = turn[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.15 * rng.normal(size=(n, 2))

model = KernelLogisticRegression(C=10.0, gamma=2.0, n_landmarks=200, random_state=0).fit(X, label)
grid = np.stack(np.meshgrid(*[np.linspace(-3.7, 3.7, 200)] * 2), axis=-1)
proba = model.predict_proba(grid.reshape(-1, 2)).reshape(200, 200, 3)

figure, axis = plt.subplots(figsize=(5, 5), layout="constrained")
axis.imshow(0.3 + 0.7 * proba, origin="lower", extent=(-3.7, 3.7, -3.7, 3.7))
axis.scatter(*X[::4].T, c=np.array(["darkred", "darkgreen", "darkblue"])[label[::4]], s=4)
axis.set_title(f"accuracy {model.score(X, label):.3f}; colour is probability")
plt.show()
