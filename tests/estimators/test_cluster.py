"""Clustering: shapes that no plane separates, new rows placed, degrees that stay positive."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from nystrom.estimators import KernelKMeans, SpectralClustering
from nystrom.exceptions import AccuracyWarning, ApproximationWarning
from nystrom.rows import as_blocks


# One check sets n_components=1: all rows of a graph of rank one lie in one point, and the warning says so.
@pytest.mark.filterwarnings("ignore:2 clusters were asked for")
@parametrize_with_checks([KernelKMeans(n_clusters=3), SpectralClustering(n_clusters=3)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rings():
    return make_circles(1000, factor=0.4, noise=0.05, random_state=0)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(900, centers=3, cluster_std=0.5, random_state=0)


def test_rings_are_cut_where_plain_k_means_fails(rings):
    X, y = rings
    model = SpectralClustering(n_clusters=2, gamma=20.0, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert adjusted_rand_score(y, KMeans(2, n_init=3, random_state=0).fit_predict(X)) < 0.1
    assert model.cut_values_[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_blobs_are_found_and_new_rows_placed(blobs, machine):
    X, y = blobs
    model = machine(n_clusters=3, n_components=30, random_state=0).fit(X[::2])
    assert adjusted_rand_score(y[::2], model.labels_) > 0.95
    assert adjusted_rand_score(y[1::2], model.predict(X[1::2])) > 0.95
    np.testing.assert_array_equal(model.predict(X[::2]), model.labels_)


def test_with_a_linear_kernel_it_is_k_means(blobs):
    X, _ = blobs
    ours = KernelKMeans(n_clusters=3, kernel="linear", n_components=None, random_state=0).fit(X)
    theirs = KMeans(3, n_init=5, random_state=0).fit(X)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)


def without_loops(X, gamma):
    """Return the eigenvalues and vectors of the graph of all rows, none of which is its own neighbour."""
    K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
    np.fill_diagonal(K, 0.0)
    roots = np.sqrt(K.sum(axis=1))
    values, vectors = np.linalg.eigh(K / np.outer(roots, roots))
    return values[::-1], vectors[:, ::-1] / roots[:, None]


@pytest.mark.parametrize("gamma", [0.5, 20.0, 100.0])
@pytest.mark.parametrize("seed", [30, 170])
def test_the_cut_is_that_of_the_whole_graph_without_self_loops(seed, gamma):
    X, _ = make_blobs(300, random_state=seed)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    values, vectors = without_loops(X, gamma)
    model = SpectralClustering(n_clusters=3, gamma=gamma, random_state=0).fit(X)
    assert len(model.landmarks_) == 300
    np.testing.assert_allclose(model.cut_values_, values[:3], atol=1e-4)
    assert model.n_clipped_ == 0
    dense = KMeans(3, n_init=10, random_state=0).fit_predict(vectors[:, :3])
    assert adjusted_rand_score(dense, model.labels_) > 0.98
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_narrow_kernel_is_given_the_landmarks_that_its_clusters_need():
    X, y = make_circles(2000, factor=0.5, noise=0.05, random_state=30)
    X = X / X.std()
    model = SpectralClustering(n_clusters=2, gamma=400.0, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert model.cut_values_.max() <= 1 + 1e-6
    with pytest.warns(ApproximationWarning, match="150 landmarks leave .* perhaps the links"):
        SpectralClustering(n_clusters=2, gamma=100.0, n_landmarks=150, random_state=0).fit(X)


@pytest.mark.parametrize("n_components", [None, 3, 50])
def test_more_components_than_clusters_do_no_harm(n_components):
    X, y = make_moons(1000, noise=0.05, random_state=0)
    model = SpectralClustering(2, gamma=20, n_components=n_components, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0


def test_fewer_components_than_clusters_are_taken(blobs):
    model = SpectralClustering(3, gamma=1.0, n_components=2, random_state=0).fit(blobs[0])
    assert model.cluster_centers_.shape == (3, 2)


def test_degrees_that_are_not_positive_are_clipped_with_a_warning(blobs):
    X, _ = blobs
    far = np.concatenate([X, [[500.0, 500.0], [-500.0, 500.0]]])
    model = SpectralClustering(n_clusters=3, gamma=0.5, landmarks=X[:60], n_components=20, random_state=0)
    with pytest.warns(AccuracyWarning, match="2 of 902 rows .* Raise n_landmarks"):
        model.fit(far)
    assert model.n_clipped_ == 2
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_every_container_gives_the_same_clusters(blobs, machine):
    X, _ = blobs
    model = machine(n_clusters=3, gamma=0.3, landmarks=X[:40], n_components=None, random_state=0)
    base = model.fit(X).labels_
    for form in (sp.csr_matrix(X), as_blocks(X, block_rows=64), X.astype(np.float32)):
        assert adjusted_rand_score(base, model.fit(form).labels_) == 1.0


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_features_that_do_not_fit_in_memory_are_computed_when_read(blobs, machine, monkeypatch):
    X, _ = blobs
    model = machine(n_clusters=3, random_state=0)
    held = model.fit(X).labels_
    monkeypatch.setattr("nystrom.estimators.cluster._HELD_BYTES", 0)
    np.testing.assert_array_equal(model.fit(X).labels_, held)


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_wrong_numbers_of_clusters_are_named(blobs, machine):
    with pytest.raises(ValueError, match="n_clusters=20 is more than the n_samples=10"):
        machine(n_clusters=20).fit(blobs[0][:10])
    with pytest.raises(ValueError, match="n_clusters must be a whole number"):
        machine(n_clusters=0).fit(blobs[0])


def test_the_residual_says_how_far_new_rows_are(blobs):
    model = KernelKMeans(n_clusters=3, random_state=0).fit(blobs[0])
    np.testing.assert_allclose(model.residual(blobs[0][:3] + 1000), 1.0)


@pytest.mark.parametrize("machine", [KernelKMeans, SpectralClustering])
def test_fewer_landmarks_than_the_default_rank_are_taken(blobs, machine):
    model = machine(n_clusters=3, n_landmarks=30, random_state=0).fit(blobs[0])
    assert len(model.landmarks_) == 30
    assert model.n_components_ <= 30
    assert adjusted_rand_score(blobs[1], model.labels_) > 0.9
    with pytest.raises(ValueError, match="n_landmarks must be a whole number of at least 1"):
        machine(n_clusters=3, n_landmarks=0).fit(blobs[0])


@pytest.mark.parametrize("seed", [0, 30])
def test_a_kernel_so_narrow_that_outliers_become_clusters_warns(seed):
    X, _ = make_blobs(1500, centers=3, random_state=seed)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.warns(ApproximationWarning, match="Lower gamma, or drop outliers"):
        model = SpectralClustering(3, gamma=400.0, random_state=0).fit(X)
    assert np.bincount(model.labels_).min() <= 5
    SpectralClustering(3, gamma=5.0, random_state=0).fit(X)  # no warning


def test_more_parts_without_links_than_clusters_warn():
    corners = 100.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    X = np.repeat(corners, 20, axis=0) + np.random.default_rng(0).normal(size=(80, 2))
    with pytest.warns(ApproximationWarning, match="at least 4 parts of the rows without links .* than the 3 clusters"):
        SpectralClustering(3, gamma=0.5, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SpectralClustering(4, gamma=0.5, random_state=0).fit(X)


@pytest.mark.filterwarnings("ignore:3 clusters were asked for")
def test_rows_that_no_landmark_explains_are_one_cluster_with_a_warning():
    X = 100.0 * np.arange(30)[:, None]
    model = SpectralClustering(n_clusters=3, gamma=1.0, landmarks=np.array([[-1e4]]))
    with pytest.warns(AccuracyWarning, match="30 of 30 rows are so far from all landmarks"):
        model.fit(X)
    np.testing.assert_array_equal(model.labels_, 0)
    assert model.cut_values_.size == 0
