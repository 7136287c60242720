"""
Calibrated probabilities and sets of classes
============================================

``predict_proba`` turns the scores of a support vector machine into probabilities, calibrated on rows that are left out
of the fit. ``predict_set`` returns the classes that a row may have: one where the answer is clear, several where it is
not.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import KernelSVC

rng = np.random.default_rng(0)
centres = np.array([[0.0, 1.6], [-1.4, -0.8], [1.4, -0.8]])


def draw(n):
    label = rng.integers(3, size=n)
    return centres[label] + rng.normal(size=(n, 2)), label


X, y = draw(1500)
new, truth = draw(20_000)
model = KernelSVC(C=1.0, n_landmarks=150, random_state=0).fit(X, y)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
grid = np.stack(np.meshgrid(*[np.linspace(-4, 4, 160)] * 2), axis=-1).reshape(-1, 2)
size = model.predict_set(grid, coverage=0.9).sum(axis=1).reshape(160, 160)
picture = left.contourf(size, levels=[-0.5, 0.5, 1.5, 2.5, 3.5], extent=(-4, 4, -4, 4), cmap="Blues")
left.scatter(*X[::3].T, c=np.array(["tab:red", "tab:green", "tab:purple"])[y[::3]], s=5)
sets = model.predict_set(new, coverage=0.9)
left.set_title(f"classes per set; {sets[np.arange(len(truth)), truth].mean():.1%} of new rows covered")
figure.colorbar(picture, ax=left, ticks=[0, 1, 2, 3])

proba = model.predict_proba(new)
confidence, hit = proba.max(axis=1), proba.argmax(axis=1) == truth
parts = np.array_split(np.argsort(confidence), 12)
right.plot([0.4, 1], [0.4, 1], color="grey", linestyle=":")
right.plot([confidence[part].mean() for part in parts], [hit[part].mean() for part in parts], "o-")
right.set(xlabel="probability of the class named", ylabel="share of rows where it is right")
right.set_title(f"calibration error of left-out rows: {model.calibration_error():.3f}")
plt.show()
