"""Outliers: what has nothing near it comes first."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bertflow import BertFlow, FlowCalibrator
from bertflow.corpus import find_outliers
from bertflow.corpus.novelty import novelty_scores
from bertflow.errors import InputError

D = 48


def around(centres, each, seed, spread=0.6):
    rng = np.random.default_rng(seed)
    return np.concatenate([centre + spread * rng.standard_normal((each, D)) for centre in centres])


@pytest.fixture(scope="module")
def kinds():
    """A corpus of forty kinds, new texts of the same kinds, and texts of none."""
    centres = np.random.default_rng(0).standard_normal((40, D))
    corpus, known = around(centres, 12, 1), around(centres, 2, 2)
    return corpus, known, np.random.default_rng(3).standard_normal((30, D))


def texts_of(rows, name):
    return [f"{name} {number}" for number in range(len(rows))]


def test_new_kinds_come_before_known_ones(kinds):
    corpus, known, new = kinds
    vectors = np.concatenate([known, new])
    found = find_outliers(
        texts_of(vectors, "new"), vectors=vectors, against=texts_of(corpus, "old"), against_vectors=corpus, top=110
    )
    assert [entry.rank for entry in found.entries] == list(range(1, 111))
    is_new = [entry.row >= len(known) for entry in found.entries]
    assert roc_auc_score(is_new, -np.arange(110)) > 0.99
    assert {entry.unrelated for entry in found.entries[:10]} == {True}
    assert {entry.unrelated for entry in found.entries[-40:]} == {False}
    assert found.unrelated == sum(entry.unrelated for entry in found.entries)
    for entry in found.entries:
        assert entry.unrelated == (entry.nearest_cosine < found.threshold) == (entry.expected >= 1)
        assert entry.nearest_text == f"old {entry.nearest}"


def test_a_corpus_alone_is_its_own_measure(kinds):
    corpus, _, new = kinds
    vectors = np.concatenate([corpus, new[:3]])
    texts = [*texts_of(corpus, "old"), *texts_of(new[:3], "new")]
    found = find_outliers([*texts, texts[-1]], vectors=np.concatenate([vectors, vectors[-1:]]), top=3)
    assert {entry.text for entry in found.entries} == {"new 0", "new 1", "new 2"}
    assert {entry.text: entry.times for entry in found.entries} == {"new 0": 1, "new 1": 1, "new 2": 2}
    assert found.texts == found.corpus == len(texts)
    assert all(entry.nearest != entry.row and entry.z is None for entry in found.entries)


def test_vectors_far_too_long_are_odd_even_where_neighbours_are_near(kinds):
    corpus, known, _ = kinds
    vectors = np.concatenate([known, 4 * known[:3]])
    texts = texts_of(vectors, "new")
    found = find_outliers(
        texts, vectors=vectors, against=texts_of(corpus, "old"), against_vectors=corpus, top=len(texts)
    )
    longest = [entry for entry in found.entries if entry.row >= len(known)]
    assert {entry.why for entry in longest} == {"length"}
    assert max(entry.rank for entry in longest) <= 10
    assert [entry.share for entry in found.entries] == sorted(entry.share for entry in found.entries)
    assert all(0 < entry.share <= 1 for entry in found.entries)


def test_scores_are_those_of_the_nearest(kinds):
    corpus, known, _ = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in kinds)
    expected = 1 - np.sort(known @ corpus.T, axis=1)[:, -10:].mean(axis=1)
    np.testing.assert_allclose(novelty_scores(known.astype(np.float32), corpus.astype(np.float32)), expected, atol=1e-5)


def test_density_stands_beside_where_there_is_a_flow(sentences, tiny_bert):
    model = BertFlow.fit(sentences, tiny_bert, calibrator=FlowCalibrator(epochs=2, random_state=0), device="cpu")
    found = find_outliers(sentences, model, top=3)
    assert all(isinstance(entry.z, float) for entry in found.entries)
    assert found == find_outliers(sentences, model, top=3)


def test_unfit_input_is_one_sentence(kinds):
    corpus = kinds[0]
    texts = texts_of(corpus, "old")
    for options, message in (
        ({"top": 0}, "1 or more"),
        ({"neighbours": 0}, "1 or more"),
        ({"against": ["a"]}, "give one of the two"),
        ({"against": [], "against_vectors": corpus}, "empty"),
    ):
        with pytest.raises(InputError, match=message):
            find_outliers(texts, vectors=corpus, **options)
    with pytest.raises(InputError, match="too few pairs"):
        find_outliers(["one text"], vectors=corpus[:1])
