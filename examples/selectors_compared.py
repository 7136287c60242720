"""
Landmark selectors compared
===========================

The error of the kernel matrix against the number of landmarks, for some of the selectors. Means of clusters beat rows
drawn at random; the default, which clusters a sample, is as good as k-means on all rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from nystrom import Nystroem

X, _ = load_digits(return_X_y=True)
sizes = (20, 40, 80, 160)

figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name in ("uniform", "leverage", "rpcholesky", "sketched-kmeans", "kmeans", "auto"):
    errors = [
        Nystroem(n_components=m // 2, n_landmarks=m, landmarks=name, random_state=0).fit(X).approximation_error(X).value
        for m in sizes
    ]
    axis.plot(sizes, errors, "o-", label=name)
axis.set(xscale="log", yscale="log", xlabel="landmarks", ylabel="relative error (Frobenius)")
axis.set_xticks(sizes, sizes)
axis.set_yticks((0.05, 0.1, 0.2, 0.3), ("0.05", "0.1", "0.2", "0.3"))
axis.minorticks_off()
axis.legend()
plt.show()
