import numpy as np
import pytest
from scipy.stats import chi2, jarque_bera, kstest

from bertflow.errors import InputError
from bertflow.geometry.normality import normality


def noise(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def test_a_standard_gaussian_passes():
    found = normality(noise(8000, 40))
    assert found.skewness < 0.05
    assert abs(found.kurtosis) < 0.03
    assert found.rejected < 0.2
    assert found.rejected_together == 0
    assert found.squared_radius == pytest.approx(1, abs=0.02)
    assert found.radius_gap < 0.03
    assert found.mardia == pytest.approx(1, abs=0.01)


def test_the_test_is_jarque_and_beras():
    x = np.random.default_rng(1).gamma(30, size=(500, 20))
    p_values = np.array([jarque_bera(column).pvalue for column in x.T])
    for level in (0.2, 0.01, 1e-4):
        found = normality(x, level=level)
        assert found.rejected == pytest.approx((p_values < level).mean())
        assert found.rejected_together == pytest.approx((p_values < level / 20).mean())
    radii = np.square(x).sum(axis=1)
    assert found.radius_gap == pytest.approx(kstest(radii, chi2(20).cdf).statistic)


def test_known_higher_moments():
    uniform = np.random.default_rng(0).uniform(size=(20_000, 6))
    assert normality(uniform).kurtosis == pytest.approx(-1.2, abs=0.03)
    exponential = np.random.default_rng(0).exponential(size=(40_000, 6))
    assert normality(exponential).skewness == pytest.approx(2, abs=0.1)


def test_mardia_sees_what_no_linear_map_changes():
    x = noise(20_000, 8) * np.where(np.arange(20_000) % 2, 1.0, 2.0)[:, None]  # a Gaussian of two sizes
    expected = (1 + 16) / 2 / (2.5**2)  # E s⁴ / (E s²)²
    found = normality(x)
    assert found.mardia == pytest.approx(expected, rel=0.03)
    mapped = normality(x @ noise(8, 8, seed=1) + 5)
    assert mapped.mardia == pytest.approx(found.mardia, rel=1e-6)


def test_dead_dimensions_are_left_out():
    x = np.concatenate([noise(500, 3), np.full((500, 1), 4.0)], axis=1)
    assert normality(x).dim == 3
    assert normality(x).squared_radius == pytest.approx(normality(x[:, :3]).squared_radius)


def test_few_rows_have_no_mardia_and_equal_rows_nothing():
    assert normality(noise(30, 10)).mardia is None
    with pytest.raises(InputError, match="the same"):
        normality(np.ones((4, 3)))
