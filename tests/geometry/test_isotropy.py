import tracemalloc
from math import exp, log, sqrt

import numpy as np
import pytest

from bertflow.arrays import unit_rows
from bertflow.errors import InputError
from bertflow.geometry.dimensions import rogue_dimensions
from bertflow.geometry.isotropy import (
    effective_rank,
    gaussian_isotropy,
    iso_score,
    isotropy,
    mean_cosine,
    partition_ratio,
    singular_spectrum,
)
from bertflow.geometry.normality import normality
from bertflow.geometry.rows import moments_of
from bertflow.geometry.sphere import uniform_value


def noise(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def by_steps(variances):
    """IsoScore as its authors define it, step by step."""
    d = len(variances)
    scaled = variances * sqrt(d) / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / sqrt(2 * (d - sqrt(d)))
    phi = (d - defect**2 * (d - sqrt(d))) ** 2 / d**2
    return (d * phi - 1) / (d - 1)


def test_a_single_ray():
    ray = np.linspace(1, 2, 30)[:, None] * np.array([0.6, 0.8, 0.0, 0.0])
    found = isotropy(ray, neighbours=3)
    assert found.mean_cosine == pytest.approx(1)
    assert found.mean_cosine_error == pytest.approx(0, abs=1e-7)
    assert found.effective_rank == pytest.approx(1)
    assert found.iso_score == pytest.approx(0, abs=1e-9)
    assert found.uniformity == pytest.approx(0, abs=1e-9)
    assert found.mean_share == pytest.approx(1.5**2 / (ray**2).sum(1).mean())
    assert partition_ratio(unit_rows(ray), moments_of(unit_rows(ray))[0]) == pytest.approx(exp(-2))


def test_an_isotropic_gaussian():
    found = isotropy(noise(20_000, 24), sample=1500)
    assert abs(found.mean_cosine) < 4 * found.mean_cosine_error
    assert found.mean_share < 0.01
    assert found.effective_rank == pytest.approx(24, abs=0.1)
    assert found.iso_score == pytest.approx(1, abs=0.02)
    assert found.partition_ratio == pytest.approx(1, abs=0.03)
    assert found.uniformity == pytest.approx(uniform_value(24), abs=0.02)
    assert found.spectrum == pytest.approx([1] * 24, abs=0.06)
    assert found.to_dict()["rows"] == 20_000
    assert found == gaussian_isotropy(20_000, 24, sample=1500)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_mean_cosine_is_that_of_all_pairs_and_its_error_that_of_repetition(shift):
    values, errors = [], []
    for seed in range(300):
        x = noise(40, 6, seed) + shift
        value, error = mean_cosine(moments_of(x)[1])
        values.append(value)
        errors.append(error)
        if seed < 3:
            cosines = unit_rows(x) @ unit_rows(x).T
            assert value == pytest.approx(cosines[~np.eye(40, dtype=bool)].mean())
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.15)


def test_zero_rows_have_cosine_zero():
    x = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert mean_cosine(moments_of(x)[1])[0] == pytest.approx(1 / 3)


def test_a_known_spectrum():
    scales = np.array([4.0, 2.0, 1.0, 1.0])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T  # every corner of a cube: covariance exactly I
    plain, _ = moments_of(signs * scales + 7.0)
    np.testing.assert_allclose(singular_spectrum(plain), scales)
    shares = scales / 8
    assert effective_rank(scales) == pytest.approx(exp(-sum(p * log(p) for p in shares)))
    assert iso_score(scales**2) == pytest.approx(by_steps(scales**2))
    uncentred = singular_spectrum(plain, centred=False)
    np.testing.assert_allclose(uncentred, np.linalg.svd(signs * scales + 7.0)[1] / 4)


@pytest.mark.parametrize(("k", "d"), [(1, 5), (2, 5), (5, 5), (3, 100)])
def test_equal_directions_among_dead_ones(k, d):
    spectrum = np.array([2.0] * k + [0.0] * (d - k))
    assert effective_rank(spectrum) == pytest.approx(k)
    assert iso_score(spectrum) == pytest.approx((k - 1) / (d - 1))
    assert iso_score(spectrum) == pytest.approx(by_steps(spectrum), abs=1e-9)


def test_partition_function_against_its_definition_and_its_overflow():
    x = noise(60, 4) + np.eye(4)[0]
    plain, _ = moments_of(x)
    directions = np.linalg.eigh(x.T @ x)[1].T
    totals = [np.exp(x @ c).sum() for c in [*directions, *-directions]]
    assert partition_ratio(x, plain) == pytest.approx(min(totals) / max(totals))
    assert partition_ratio(x, plain, scale=1e4) == pytest.approx(0)
    corners = np.concatenate([np.eye(3), -np.eye(3)])
    assert partition_ratio(corners, moments_of(corners)[0]) == pytest.approx(1)


def test_scale_does_not_matter_and_rotation_neither():
    x = noise(200, 8) * np.arange(1, 9) + 1
    rotation = np.linalg.qr(noise(8, 8, seed=1))[0]
    first, second = isotropy(x), isotropy(50 * x @ rotation)
    for name in (
        "mean_cosine",
        "mean_share",
        "effective_rank",
        "iso_score",
        "partition_ratio",
        "uniformity",
        "hubness",
    ):
        assert getattr(second, name) == pytest.approx(getattr(first, name), rel=1e-6), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: isotropy(np.ones((5, 3))), "the same"),
        (lambda: iso_score(np.ones(1)), "one dimension"),
        (lambda: isotropy(np.ones((1, 3))), "at least two"),
    ],
)
def test_what_has_no_shape_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


class Stream:
    """Batches made when they are asked for: nothing but the measure itself can hold them all."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return (noise(2048, 32, seed) + 0.3 for seed in range(self.batches))


@pytest.mark.parametrize("measure", [isotropy, normality, rogue_dimensions])
def test_memory_does_not_grow_with_the_rows(measure):
    options = {} if measure is rogue_dimensions else {"sample": 200}
    measure(Stream(2), **options)  # imports and caches

    def peak(batches):
        tracemalloc.start()
        found = measure(Stream(batches), **options)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.dim == 32
        return top

    assert peak(24) < 1.2 * peak(3)


def test_a_memory_map_is_not_read_whole(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, noise(80_000, 32).astype(np.float32))
    held = np.load(path, mmap_mode="r")
    tracemalloc.start()
    isotropy(held, sample=200)
    top = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert top < held.nbytes  # a few blocks of 4 096 rows in float64; all rows in float64 would be twice as much
