"""
Denoising images
================

Kernel PCA is fitted to clean digits. Noisy digits are projected on its components and mapped back, which removes most
of the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nystrom import KernelPCA

X, _ = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
train, clean = X[:1500], X[1500:]
noisy = clean + rng.normal(scale=4.0, size=clean.shape)

model = KernelPCA(n_components=60, n_landmarks=600, gamma=3e-4, fit_inverse_transform=True, alpha=1e-3, random_state=0)
restored = model.fit(train).inverse_transform(model.transform(noisy))


def distance(images: np.ndarray) -> float:
    """Return the root of the mean squared difference to the clean images."""
    return float(np.sqrt(np.mean((images - clean) ** 2)))


figure, axes = plt.subplots(3, 8, figsize=(6.4, 3), layout="constrained")
titles = ("clean", f"noisy: {distance(noisy):.1f}", f"restored: {distance(restored):.1f}")
for row, images, title in zip(axes, (clean, noisy, restored), titles, strict=True):
    row[0].set_title(title, loc="left", fontsize="medium")
    for axis, image in zip(row, images, strict=False):
        axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        axis.axis("off")
plt.show()
