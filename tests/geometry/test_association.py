import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry.association import columns, quantile_groups, spearman


def test_spearman_is_of_ranks():
    assert spearman([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(100)
    assert spearman([1, 2, 3, 4], [-np.inf, 1, 2, 3]) == pytest.approx(100)
    assert spearman([1, 2, 3], [5, 5, 5]) is None
    assert spearman([1], [2]) is None


def test_groups_are_of_equal_size_and_none_is_empty():
    groups = quantile_groups([5, 1, 4, 2, 3], 2)
    assert [group.tolist() for group in groups] == [[1, 3, 4], [2, 0]]
    assert len(quantile_groups([1, 2], 5)) == 2
    with pytest.raises(InputError, match="0 groups"):
        quantile_groups([1, 2], 0)


@pytest.mark.parametrize("arrays", [([1, 2], [1]), ([],), ([[1, 2]],), ([1, np.nan],)])
def test_columns_that_do_not_belong_together(arrays):
    with pytest.raises(InputError):
        columns(*arrays)
