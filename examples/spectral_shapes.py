"""
Clusters of any shape
=====================

Spectral clustering of 20,000 points, where k-means on the points themselves cuts straight through.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons

from nystrom import SpectralClustering

X, _ = make_moons(20_000, noise=0.06, random_state=0)
labels = {
    "k-means": KMeans(2, n_init=1, random_state=0).fit_predict(X),
    "spectral, 300 landmarks": SpectralClustering(2, gamma=40.0, n_landmarks=300, random_state=0).fit_predict(X),
}

figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.8), layout="constrained", sharey=True)
for axis, (name, label) in zip(axes, labels.items(), strict=True):
    axis.scatter(*X[::10].T, c=label[::10], s=3, cmap="coolwarm")
    axis.set_title(name)
plt.show()
