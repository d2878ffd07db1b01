import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.geometry.decomposition import LogitDecomposer, decompose_logits

COUNTS = np.array([0, *(10**6 / np.arange(1, 2001)).astype(int)])  # Zipf's law, and a word that never occurs
LOG_P = np.log(COUNTS[1:] / COUNTS.sum())


def logits(slope=1.0, word=0.0, pmi=0.0, contexts=200, seed=0):
    """λ(c) + slope · log p(x) + a part of the word alone + a part of word and context."""
    rng = np.random.default_rng(seed)
    n = len(LOG_P)
    made = rng.normal(0, 50, (contexts, 1)) + slope * LOG_P + word * rng.standard_normal(n)
    made = made + pmi * rng.standard_normal((contexts, n))
    return np.concatenate([rng.normal(size=(contexts, 1)), made], axis=1)  # the uncounted word's say nothing


def test_nothing_but_frequency():
    found = decompose_logits(logits(slope=0.7), COUNTS)
    assert found.contexts == 200
    assert found.overall.words == 2000
    for part in (found.overall, *found.bins):
        assert (part.explained, part.constant) == pytest.approx((1, 1))
        assert part.slope == pytest.approx(0.7)
    assert [part.ranks for part in found.bins] == [(0, 100), (100, 500), (500, 2000)]
    heights = [part.logit for part in found.bins]
    assert heights == sorted(heights, reverse=True)


def test_shares_are_shares_of_variance():
    pmi, word = 1.5, 0.8
    found = decompose_logits(logits(word=word, pmi=pmi), COUNTS).overall
    of_frequency = LOG_P.var()
    total = of_frequency + word**2 + pmi**2
    assert found.explained == pytest.approx(of_frequency / total, abs=0.03)
    assert found.constant == pytest.approx((of_frequency + word**2) / total, abs=0.03)
    assert found.slope == pytest.approx(1, abs=0.06)


def test_frequency_that_plays_no_part():
    found = decompose_logits(logits(slope=0, pmi=1), COUNTS).overall
    assert found.explained < 0.001
    assert found.constant < 0.01
    assert found.slope == pytest.approx(0, abs=0.01)


def test_batches_give_what_the_whole_gives():
    made = logits(word=1, pmi=1)
    decomposer = LogitDecomposer(COUNTS)
    for start in range(0, 200, 32):
        decomposer.add(made[start : start + 32])
    whole = decompose_logits(made, COUNTS)
    assert decomposer.result().overall.explained == pytest.approx(whole.overall.explained)
    assert decomposer.result().to_dict()["bins"][1]["slope"] == pytest.approx(whole.bins[1].slope)


def test_words_that_do_not_differ_explain_nothing():
    found = decompose_logits(np.random.default_rng(0).normal(size=(5, 4)), [3, 3, 3, 3], bins=[(0, 1), (0, 4), (9, 12)])
    assert found.overall.explained is found.overall.slope is None
    assert 0 < found.overall.constant < 1
    assert found.bins[0].constant is None, "one word has no variance"
    assert len(found.bins) == 2, "an empty bin is left out"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decompose_logits(np.ones((2, 3)), [1, 1]), "3 words, the counts of 2"),
        (lambda: LogitDecomposer([0, 5, 0]), r"1 word\(s\) are counted"),
        (lambda: LogitDecomposer([1, 2]).result(), "No context"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
