"""Pseudo-pairs made from the text itself."""

import numpy as np
import pytest

from bertflow.evaluation.judgement.splices import FEWEST, MOST, make_splices, splice_score


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(1)
    words = [f"word{i}" for i in range(400)]
    return [" ".join(["the", *rng.choice(words, size=rng.integers(7, 14), replace=False)]) for _ in range(300)]


def test_a_splice_begins_like_its_sentence_and_ends_like_another(corpus):
    found = make_splices(corpus)
    assert FEWEST <= len(found) == len(corpus) // 3
    for text, splice, other in zip(
        found.sentences, found.splices, [*found.sentences[1:], found.sentences[0]], strict=True
    ):
        words = splice.split()
        cuts = range(len(words) + 1)
        assert any(
            text.split()[:i] == words[:i] and other.split()[len(other.split()) - len(words) + i :] == words[i:]
            for i in cuts
        )


def test_likeness_is_one_for_the_same_words_and_small_for_a_common_word_alone(corpus):
    found = make_splices(corpus)
    same = [a.split() == b.split() for a, b in zip(found.sentences, found.splices, strict=True)]
    assert found.gold[same].tolist() == pytest.approx([1.0] * sum(same))
    only_the = [set(a.split()) & set(b.split()) == {"the"} for a, b in zip(found.sentences, found.splices, strict=True)]
    assert any(only_the)
    assert found.gold[only_the].max() < 0.01
    assert found.gold.min() >= 0
    assert found.gold.max() <= 1


def test_the_same_seed_gives_the_same_splices(corpus):
    one, same, other = make_splices(corpus, 3), make_splices(corpus, 3), make_splices(corpus, 4)
    assert one.splices == same.splices
    np.testing.assert_array_equal(one.gold, same.gold)
    assert one.splices != other.splices


def test_large_corpora_give_so_many_and_short_sentences_none(corpus):
    many = [f"{text} {i}" for i in range(11) for text in corpus]
    assert len(make_splices(many)) == MOST
    assert make_splices(["too short to cut"] * 500) is None
    assert make_splices(corpus[: 3 * FEWEST - 1]) is None


def test_a_bag_of_words_orders_splices_well_and_noise_does_not(corpus):
    found = make_splices(corpus)
    index = {word: i for i, word in enumerate(sorted({word for text in corpus for word in text.split()}))}

    def bag(texts):
        rows = np.zeros((len(texts), len(index)))
        for row, text in zip(rows, texts, strict=True):
            row[[index[word] for word in set(text.split())]] = 1
        return rows

    noise = np.random.default_rng(0).normal(size=(2, len(found), 8))
    assert splice_score(found, bag(found.sentences), bag(found.splices)) > 95
    assert abs(splice_score(found, *noise)) < 30
    assert splice_score(found, np.ones((len(found), 4)), np.ones((len(found), 4))) == 0
