"""
A Gaussian process on a million rows
====================================

The band of a Gaussian process fitted to a million rows, in seconds. Where there are no rows, it widens to the prior.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import GaussianProcessRegressor

n = 1_000_000
rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(0, 3, n // 2), rng.uniform(7, 10, n // 2)])
y = np.sin(2 * x) + 0.3 * x + 0.4 * rng.normal(size=n)

model = GaussianProcessRegressor(gamma=2.0, n_landmarks=100, normalize_y=True, random_state=0).fit(x[:, None], y)
grid = np.linspace(-1, 11, 400)
mean, std = model.predict(grid[:, None], return_std=True)

figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
axis.scatter(x[:: n // 1500], y[:: n // 1500], s=3, color="0.6", label="some of the rows")
axis.plot(grid, mean, label="mean")
axis.fill_between(grid, mean - 2 * std, mean + 2 * std, alpha=0.3, label="two standard deviations of f")
axis.legend()
plt.show()
