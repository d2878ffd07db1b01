import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry.sentence_frequency import mean_log_frequency, sentence_frequency


def test_the_mean_of_logarithms():
    found = mean_log_frequency([[0, 0, 2], [2], []], [6, 0, 2])
    logs = np.log([6 / 8, 2 / 8])
    assert found[:2] == pytest.approx([(2 * logs[0] + logs[1]) / 3, logs[1]])
    assert found[2] == pytest.approx(found[:2].mean()), "a sentence without tokens gets the mean of the others"


def test_tokens_without_a_count_are_the_rarest_or_left_out():
    ids = [[0, 1], [1], [2]]
    assert mean_log_frequency(ids, [6, 0, 2])[1] == pytest.approx(np.log(2 / 8))
    found = mean_log_frequency(ids, [6, 0, 2], skip_uncounted=True)
    assert found == pytest.approx([np.log(6 / 8), np.log([6 / 8, 2 / 8]).mean(), np.log(2 / 8)])


@pytest.mark.parametrize(
    ("ids", "counts", "message"),
    [
        ([[0, 2]], [1, 1], "not among the 2 counts"),
        ([[], []], [1, 1], "No sentence has a counted token"),
        ([[0]], [0, 0], "No token is counted"),
    ],
)
def test_tokens_and_counts_that_do_not_go_together(ids, counts, message):
    with pytest.raises(InputError, match=message):
        mean_log_frequency(ids, counts)


def test_rare_words_far_out_and_sparse():
    frequency = -np.arange(100.0)
    found = sentence_frequency(frequency, norms=np.arange(100.0), distances=np.arange(100.0) ** 2, groups=4)
    assert found.norm_correlation == found.distance_correlation == pytest.approx(-100)
    assert [group.sentences for group in found.groups] == [25] * 4
    assert found.groups[0].log_frequency == pytest.approx(-87), "the rarest come first"
    assert found.groups[0].norm == pytest.approx(87)
    assert found.to_dict()["groups"][3]["norm"] == pytest.approx(12)


def test_no_correlation_where_nothing_differs():
    found = sentence_frequency([1, 1, 1], [1, 2, 3], [3, 2, 1], groups=9)
    assert found.norm_correlation is None
    assert len(found.groups) == 3
    with pytest.raises(InputError, match="one length"):
        sentence_frequency([1, 2], [1, 2, 3], [1, 2])
