"""Duplicates: what is removed has a kept text near it, and no two kept ones are near."""

import numpy as np
import pytest

from bertflow.corpus import Law, Significance, find_duplicates, neighbours
from bertflow.errors import InputError

N, D = 300, 64


@pytest.fixture(scope="module")
def corpus():
    """Three hundred unrelated texts, of which every tenth has two near-duplicates, and one an exact copy."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((N, D))
    near = [vectors[row] + 0.1 * rng.standard_normal(D) for row in range(0, N, 10) for _ in range(2)]
    texts = [f"text {number}" for number in range(N + len(near))]
    lengthened = [text + " longer" * (number >= N) for number, text in enumerate(texts)]
    return [*lengthened, lengthened[3]], np.stack([*vectors, *near, vectors[3]])


@pytest.mark.parametrize("keep", ["first", "longest", "central"])
def test_kept_and_removed_share_out_the_texts(corpus, keep):
    texts, vectors = corpus
    found = find_duplicates(texts, vectors=vectors, keep=keep, expect_false=0.01)
    assert sorted([*found.kept, *(pair.first for pair in found.removed)]) == list(range(len(texts)))
    assert len(found.removed) == 61
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = rows @ rows.T - np.eye(len(rows))
    assert cosines[np.ix_(found.kept, found.kept)].max() < found.threshold
    for pair in found.removed:
        assert pair.second in found.kept
        assert cosines[pair.first, pair.second] >= found.threshold - 1e-6
        assert pair.cosine == pytest.approx(cosines[pair.first, pair.second], abs=1e-5)
    assert all(group[0] in found.kept for group in found.groups)
    assert sum(map(len, found.groups)) == len(found.groups) + 61


def test_which_text_of_a_group_is_kept(corpus):
    texts, vectors = corpus
    assert find_duplicates(texts, vectors=vectors, expect_false=0.01).kept == tuple(range(N))
    assert 0 not in find_duplicates(texts, vectors=vectors, keep="longest", expect_false=0.01).kept


def test_the_middle_of_a_chain_is_central():
    angles = np.radians([0, 10, 20])
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    vectors = np.hstack([np.zeros((3, D - 2)), 8 * chain])
    vectors = np.vstack([vectors, np.random.default_rng(1).standard_normal((200, D))])
    texts = [str(number) for number in range(203)]
    significance = Significance(Law(0.0, 1.0, 0.0, 0.2))
    between = significance.exceedance(np.cos(np.radians(15))) * 203 * 101
    options = {"vectors": vectors, "significance": significance, "expect_false": between}
    assert set(find_duplicates(texts, **options).kept[:2]) == {0, 2}
    assert find_duplicates(texts, keep="central", **options).kept[0] == 1


def test_pairs_come_nearest_first_with_how_many_false_ones_are_expected(corpus):
    texts, vectors = corpus
    found = find_duplicates(texts, vectors=vectors, expect_false=2)
    near = [pair for pair in found.pairs if pair.cosine < 1]
    assert [pair.cosine for pair in near] == sorted((pair.cosine for pair in near), reverse=True)
    assert all(pair.expected_false <= 2.001 for pair in found.pairs)
    assert (3, len(texts) - 1) in [(pair.first, pair.second) for pair in found.pairs]
    beyond = [pair for pair in found.borderline if pair.expected_false > 2.001]
    assert all(pair.expected_false <= 20.01 for pair in beyond)


def test_two_corpora_against_each_other(corpus):
    texts, vectors = corpus
    found = find_duplicates(
        texts[N:], vectors=vectors[N:], against=texts[:N], against_vectors=vectors[:N], expect_false=0.5
    )
    assert found.kept == ()
    assert [pair.second for pair in found.removed] == [*np.repeat(np.arange(0, N, 10), 2), 3]
    assert find_duplicates(
        texts[1:9], vectors=vectors[1:9], against=texts[10:N], against_vectors=vectors[10:N]
    ).kept == tuple(range(8))


def test_blocks_give_what_the_whole_gives(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    whole = neighbours.pairs_above(rows, 0.3), neighbours.pairs_above(rows, 0.3, rows[:20])
    best = neighbours.nearest_rows(rows, rows, 5, own=True)
    monkeypatch.setattr(neighbours, "BLOCK", 7)
    pieces = neighbours.pairs_above(rows, 0.3), neighbours.pairs_above(rows, 0.3, rows[:20])
    for a, b in zip(whole, pieces, strict=True):
        assert set(zip(*a[:2], strict=True)) == set(zip(*b[:2], strict=True))
    for a, b in zip(best, neighbours.nearest_rows(rows, rows, 5, own=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    cosines = rows @ rows.T - 2 * np.eye(50)
    np.testing.assert_allclose(best[0], -np.sort(-cosines, axis=1)[:, :5], atol=1e-5)
    assert len(whole[0].first) == (np.triu(rows @ rows.T, 1) >= 0.3).sum()


def test_too_many_pairs_are_refused_in_time(monkeypatch):
    monkeypatch.setattr(neighbours, "MOST_PAIRS", 10)
    with pytest.raises(InputError, match="fewer false pairs"):
        neighbours.pairs_above(np.ones((20, 2), dtype=np.float32), 0.5)


def test_unfit_input_is_one_sentence(corpus):
    texts, vectors = corpus
    for options, message in (
        ({"vectors": vectors[:5]}, "one each"),
        ({}, "give one of the two"),
        ({"vectors": vectors, "keep": "last"}, "'last'"),
        ({"vectors": vectors, "expect_false": 0}, "above 0"),
        ({"vectors": vectors, "expect_false": float("nan")}, "above 0"),
    ):
        with pytest.raises(InputError, match=message):
            find_duplicates(texts, **options)
    with pytest.raises(InputError, match="too few pairs"):
        find_duplicates(["a", "b"], vectors=np.eye(2))
    with pytest.raises(InputError, match="every text must be a str"):
        find_duplicates([1, 2], vectors=np.eye(2))
