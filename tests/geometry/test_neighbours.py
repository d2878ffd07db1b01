import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry import neighbours as module
from bertflow.geometry.neighbours import hubness, nearest, neighbour_distances


@pytest.mark.parametrize("cells", [1, 100, 2**22])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_against_brute_force(monkeypatch, metric, cells):
    monkeypatch.setattr(module, "_CELLS", cells)
    x = np.random.default_rng(0).normal(size=(40, 5))
    distances, indices = nearest(x, 3, metric)
    for i, row in enumerate(x):
        if metric == "euclidean":
            all_of = np.linalg.norm(x - row, axis=1)
        else:
            all_of = 1 - x @ row / np.linalg.norm(x, axis=1) / np.linalg.norm(row)
        all_of[i] = np.inf
        np.testing.assert_allclose(distances[i], np.sort(all_of)[:3])
        assert indices[i].tolist() == np.argsort(all_of)[:3].tolist()


def test_points_on_a_line():
    line = np.arange(6.0)[:, None] * [3.0, 4.0] + 1e6  # five apart, far from the origin
    np.testing.assert_allclose(neighbour_distances(line, 2), [7.5, 5, 5, 5, 5, 7.5])


def test_a_ring_has_no_hubs():
    angles = 2 * np.pi * np.arange(12) / 12
    assert hubness(np.stack([np.cos(angles), np.sin(angles)], axis=1), k=2) == 0


def test_a_hub():
    hub = np.ones((1, 9))  # nearer to each axis than the axes are to each other
    x = np.concatenate([hub, np.eye(9)])
    occurrences = np.bincount(nearest(x, 1, "cosine")[1].ravel(), minlength=10)
    assert occurrences[0] == 9
    assert occurrences.sum() == 10
    centred = np.array([9, 1, *[0] * 8]) - 1.0
    assert hubness(x, k=1) == pytest.approx((centred**3).mean() / (centred**2).mean() ** 1.5)


@pytest.mark.parametrize("k", [0, 3, 10])
def test_too_many_neighbours_are_refused(k):
    with pytest.raises(InputError, match=f"no {k} neighbours"):
        nearest(np.eye(3), k)
