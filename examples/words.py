"""
Classifying words with a string kernel
======================================

Rows may be objects of any kind. Made-up words of two languages are classified with a kernel of subsequences: two words
are similar if they share letters in the same order, gaps allowed. Each word is compared with 60 landmarks only.
"""

import matplotlib.pyplot as plt
import numpy as np

from nystrom import KernelPCA, KernelRidgeClassifier

rng = np.random.default_rng(0)
syllables = (["ka", "mi", "to", "ra", "shi", "no"], ["ven", "dor", "la", "bel", "tri", "no"])


def subsequences(a, b, decay=0.6):
    """Return the sum over pairs of letters that both words have in this order, less for each letter between them."""
    codes_a, codes_b = np.frombuffer(a.encode(), np.uint8), np.frombuffer(b.encode(), np.uint8)
    same = (codes_a[:, None] == codes_b).astype(float)
    below = sum(decay**k * (np.eye(len(a), k=k).T @ same) for k in range(1, len(a)))
    below = sum(decay**k * (below @ np.eye(len(b), k=k)) for k in range(1, len(b)))
    return float(np.sum(same * below)) + 0.1 * float(same.sum())


def kernel(a, b):
    return subsequences(a, b) / np.sqrt(subsequences(a, a) * subsequences(b, b))


language = rng.integers(2, size=600)
words = ["".join(rng.choice(syllables[label], rng.integers(2, 5))) for label in language]
model = KernelRidgeClassifier(alpha=1.0, kernel=kernel, n_landmarks=60, random_state=0).fit(words[:400], language[:400])
accuracy = model.score(words[400:], language[400:])
plane = KernelPCA(2, kernel=kernel, n_landmarks=60, random_state=0).fit_transform(words[400:])

figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
axis.scatter(*plane.T, c=np.array(["tab:blue", "tab:orange"])[language[400:]], s=8)
labelled = []
for word, (x, y) in zip(words[400:], plane, strict=True):
    if all(abs(x - left) > 0.16 or abs(y - bottom) > 0.06 for left, bottom in labelled):
        axis.annotate(word, (x, y), fontsize=8)
        labelled.append((x, y))
axis.set_title(f"two components of 200 words; accuracy {accuracy:.2f}")
plt.show()
