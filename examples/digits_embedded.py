"""
Digits in the plane
===================

Two kernel principal components of the digits, with the landmarks that they come from.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from nystrom import KernelPCA

X, y = load_digits(return_X_y=True)
model = KernelPCA(n_components=2, n_landmarks=300, random_state=0).fit(X)
points, landmarks = model.transform(X), model.transform(model.landmarks_)

figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
scatter = axis.scatter(*points.T, c=y, s=8, cmap="tab10")
axis.scatter(*landmarks.T, marker="+", s=25, c="black", linewidths=0.6, label="landmarks")
axis.legend(*scatter.legend_elements(), title="digit", loc="upper left", fontsize="small", ncols=2)
axis.set(xlabel="first component", ylabel="second component")
plt.show()
