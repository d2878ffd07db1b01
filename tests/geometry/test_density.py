import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry.density import density_profile, robust_z


def test_low_density_where_neighbours_are_far():
    distances = np.arange(50.0)
    found = density_profile(-(distances**2), distances, groups=5)
    assert found.correlation == pytest.approx(-100)
    assert [group.sentences for group in found.groups] == [10] * 5
    assert found.groups[0].distance == pytest.approx(4.5)
    assert found.groups[0].log_density == pytest.approx(-(np.arange(10.0) ** 2).mean())
    assert found.to_dict()["sentences"] == 50


def test_what_overflows_counts_as_the_lowest():
    found = density_profile([-1.0, -5.0, -np.inf], [1, 2, 3], groups=1)
    assert found.groups[0].log_density == pytest.approx(-11 / 3)
    with pytest.raises(InputError, match="finite log-density"):
        density_profile([-np.inf, -np.inf], [1, 2])
    with pytest.raises(InputError, match="NaN"):
        density_profile([np.nan, 1], [1, 2])


def test_robust_z_is_the_usual_one_for_a_gaussian_and_ignores_outliers():
    x = np.random.default_rng(0).normal(3, 2, size=20_000)
    np.testing.assert_allclose(robust_z(x), (x - 3) / 2, atol=0.15)
    assert robust_z([*x, -1e9])[:-1] == pytest.approx(robust_z(x), abs=1e-3)
    assert robust_z([1.0, 2.0, 3.0, -np.inf])[-1] == -np.inf
    assert robust_z([2.0, 2.0, 2.0]).tolist() == [0, 0, 0]
