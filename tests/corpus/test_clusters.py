"""Groups: as many as asked for or as there are, named, the same for a seed."""

import numpy as np
import pytest
from sklearn.metrics import v_measure_score

from bertflow.corpus import find_clusters
from bertflow.corpus.clusters import cluster_rows
from bertflow.errors import InputError

TOPICS = ("card", "transfer", "cash", "rate", "top-up", "refund")
D = 40


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((len(TOPICS), D))
    sizes = (90, 80, 70, 60, 50, 40)
    kind = np.repeat(np.arange(len(TOPICS)), sizes)
    vectors = centres[kind] + 0.4 * rng.standard_normal((len(kind), D))
    texts = [f"my {TOPICS[one]} number {number}" for number, one in enumerate(kind)]
    return texts, vectors, kind


def test_as_many_groups_as_asked_for(corpus):
    texts, vectors, kind = corpus
    found = find_clusters(texts, vectors=vectors, k=6)
    assert v_measure_score(kind, found.labels) == pytest.approx(1)
    assert not found.found
    assert len(find_clusters(texts, vectors=vectors, k=17).groups) == 17
    assert len(find_clusters(texts[:5], vectors=vectors[:5], k=5).groups) == 5


def test_the_number_of_groups_is_found(corpus):
    texts, vectors, kind = corpus
    found = find_clusters(texts, vectors=vectors)
    assert found.found
    assert len(found.groups) == 6
    assert v_measure_score(kind, found.labels) == pytest.approx(1)
    assert len(find_clusters(texts, vectors=vectors, apart=0.9).groups) <= 6


def test_groups_are_named_and_largest_first(corpus):
    texts, vectors, _ = corpus
    found = find_clusters([*texts, texts[-1]], vectors=np.concatenate([vectors, vectors[-1:]]), k=6)
    assert [group.size for group in found.groups] == [90, 80, 70, 60, 50, 41]
    assert [group.number for group in found.groups] == list(range(6))
    for group, topic in zip(found.groups, TOPICS, strict=True):
        assert topic.split("-")[0] in group.words
        assert group.name.startswith(" · ".join(group.words[:2]))
        assert len(group.central) == 3
        assert all(found.labels[row] == group.number for row in group.central)
        assert 0 < group.cohesion <= 1


def test_the_same_for_a_seed(corpus):
    texts, vectors, _ = corpus
    assert find_clusters(texts, vectors=vectors, k=9, random_state=3) == find_clusters(
        texts, vectors=vectors, k=9, random_state=3
    )


def test_every_row_has_a_group_even_where_all_are_equal():
    labels = cluster_rows(np.ones((30, 4), dtype=np.float32) / 2, 3)
    assert labels.shape == (30,)


def test_unfit_input_is_one_sentence(corpus):
    texts, vectors, _ = corpus
    for options, message in (
        ({"k": 1}, "k is 1"),
        ({"k": 10**6}, "different texts"),
        ({"apart": 0}, "between 0 and 1"),
    ):
        with pytest.raises(InputError, match=message):
            find_clusters(texts, vectors=vectors, **options)
    with pytest.raises(InputError, match="too few pairs"):
        find_clusters(texts[:4], vectors=vectors[:4])
