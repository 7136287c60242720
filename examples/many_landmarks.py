"""
Thousands of landmarks
======================

Where the target varies quickly, accuracy comes with landmarks. Conjugate gradients fit thousands of them without the
cost of the closed form.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import KernelRidge

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, size=(20_000, 2)).astype(np.float32)
y = np.sin(40 * X[:, 0] * X[:, 1]) + 0.1 * rng.normal(size=len(X))
fresh = rng.uniform(0, 1, size=(2000, 2)).astype(np.float32)
sizes, errors = (100, 200, 400, 800, 1600), []
for m in sizes:
    model = KernelRidge(0.01, gamma=200.0, n_landmarks=m, solver="cg", tol=1e-5, random_state=0).fit(X, y)
    errors.append(np.sqrt(np.mean((model.predict(fresh) - np.sin(40 * fresh[:, 0] * fresh[:, 1])) ** 2)))

figure, axes = plt.subplots(1, 2, figsize=(6.4, 3), layout="constrained")
axes[0].plot(sizes, errors, "o-")
axes[0].set(xscale="log", yscale="log", xlabel="landmarks", ylabel="test error")
axes[0].set_yticks((0.02, 0.05, 0.1, 0.2, 0.4), ("0.02", "0.05", "0.1", "0.2", "0.4"))
axes[0].minorticks_off()
axes[1].semilogy(model.residuals_)
axes[1].set(xlabel="step", ylabel="residual", title=f"{sizes[-1]} landmarks")
plt.show()
