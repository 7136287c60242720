"""
Prediction intervals that follow the noise
==========================================

Here the noise grows to the right. The band of a Gaussian process has the same width everywhere. ``predict_interval``
follows the errors of rows that are left out of the fit, and contains about 90 % of the new targets everywhere.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import GaussianProcessRegressor, KernelRidge

rng = np.random.default_rng(0)


def draw(n):
    x = rng.uniform(0, 6, n)
    return x[:, None], np.sin(2 * x) + rng.normal(size=n) * (0.05 + 0.02 * x**2)


X, y = draw(800)
new, truth = draw(4000)
ridge = KernelRidge(alpha="auto", n_landmarks=60, random_state=0).fit(X, y)
process = GaussianProcessRegressor(n_landmarks=60, random_state=0).fit(X, y)
line = np.linspace(0, 6, 300)[:, None]

figure, axes = plt.subplots(2, 2, figsize=(9, 5), sharex=True, height_ratios=[2.2, 1], layout="constrained")


def show(column, title, interval):
    low, high = interval(line).T
    axes[0, column].scatter(X, y, s=3, color="grey")
    axes[0, column].fill_between(line[:, 0], low, high, alpha=0.3)
    axes[0, column].set_title(title)
    inside = (interval(new)[:, 0] <= truth) & (truth <= interval(new)[:, 1])
    edges = np.linspace(0, 6, 13)
    place = np.digitize(new[:, 0], edges) - 1
    covered = [inside[place == k].mean() for k in range(12)]
    axes[1, column].bar(edges[:-1], covered, width=0.45, align="edge")
    axes[1, column].axhline(0.9, color="black", linestyle=":")
    axes[1, column].set(ylim=(0.5, 1), xlabel="x", ylabel="share inside")


def band(rows):
    mean, deviation = process.predict(rows, return_std=True, include_noise=True)
    return np.column_stack([mean - 1.645 * deviation, mean + 1.645 * deviation])


show(0, "predict_interval, 90 %", ridge.predict_interval)
show(1, "band of a Gaussian process, 90 %", band)
plt.show()
