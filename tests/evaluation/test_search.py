import numpy as np
import pytest

from bertflow.arrays import unit_rows
from bertflow.errors import InputError
from bertflow.evaluation import score_search
from bertflow.evaluation.search import QUERIES_AT_ONCE, ranks

DOCUMENTS = ["a", "b", "c", "d"]
VECTORS = {"a": [1, 0], "b": [0.8, 0.6], "c": [0, 1], "d": [-1, 0], "near a": [1, 0.1], "near c": [0.3, 1]}


def embed(texts):
    return np.array([VECTORS[text] for text in texts], dtype=np.float32)


def test_what_comes_first_is_found():
    score = score_search(["near a", "near c"], ["a", "c"], DOCUMENTS, embed)
    assert (score.queries, score.documents) == (2, 4)
    assert (score.first, score.ten, score.mrr) == (100, 100, 100)


def test_ranks_are_counted_from_one():
    score = score_search(["near a", "near a"], ["b", "d"], DOCUMENTS, embed)  # second and last of four
    assert score.first == 0
    assert score.mrr == pytest.approx(100 * (1 / 2 + 1 / 4) / 2)


def test_a_query_does_not_find_itself():
    assert score_search(["a"], ["b"], DOCUMENTS, embed).first == 100


def test_the_length_of_vectors_does_not_matter():
    longer = score_search(
        ["near a"], ["b"], DOCUMENTS, lambda texts: embed(texts) * np.arange(1, len(texts) + 1)[:, None]
    )
    assert longer == score_search(["near a"], ["b"], DOCUMENTS, embed)


def test_repeated_documents_count_once():
    assert score_search(["near a"], ["b"], [*DOCUMENTS, "a", "a"], embed).mrr == 50


def test_ranks_agree_with_sorting_whatever_the_number_of_queries():
    draw = np.random.default_rng(0)
    queries, documents = (unit_rows(draw.normal(size=(n, 5))) for n in (QUERIES_AT_ONCE + 7, 40))
    wanted = draw.integers(40, size=len(queries))
    order = np.argsort(-(queries @ documents.T), axis=1)
    expected = 1 + np.argmax(order == wanted[:, None], axis=1)
    np.testing.assert_array_equal(ranks(queries, documents, wanted, np.full(len(queries), -1)), expected)


@pytest.mark.parametrize(("queries", "wanted"), [(["near a"], ["z"]), (["near a"], ["a", "b"]), ([], [])])
def test_each_query_needs_a_document(queries, wanted):
    with pytest.raises(InputError, match="each query needs one"):
        score_search(queries, wanted, DOCUMENTS, embed)
