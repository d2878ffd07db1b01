"""nDCG, MRR and recall against their definitions, worked out by hand and written out."""

import numpy as np
import pytest

from bertflow.evaluation import SearchTask


def search(cosines, relevant, metric="ndcg@10"):
    """A task of one-dimensional-looking geometry: query q finds document d with the given cosine."""
    documents = {f"d{i}": f"document {i}" for i in range(len(cosines))}
    task = SearchTask("made", {"q": "query"}, documents, {"q": relevant}, metric)
    vectors = {"query": [1.0, 0.0]} | {
        text: [c, np.sqrt(1 - c * c)] for text, c in zip(documents.values(), cosines, strict=True)
    }
    return task.score(lambda texts: np.array([vectors[text] for text in texts]), resamples=0)


def test_ndcg_by_hand():
    score = search([0.9, 0.8, 0.7], {"d1": 2, "d2": 1, "d0": 0})
    dcg, ideal = 2 / np.log2(3) + 1 / np.log2(4), 2 / np.log2(2) + 1 / np.log2(3)
    assert score.value == pytest.approx(100 * dcg / ideal)
    assert score.also == pytest.approx({"mrr@10": 50, "recall@100": 100})


def test_the_ideal_counts_relevant_documents_that_were_not_found():
    cosines = np.linspace(0.99, 0.01, 30)
    score = search(cosines, {"d0": 1, "d20": 1})
    assert score.value == pytest.approx(100 / (1 + 1 / np.log2(3)))
    assert score.also["mrr@10"] == 100


def test_recall_looks_at_a_hundred_documents():
    cosines = np.linspace(0.99, 0.01, 150)
    score = search(cosines, {"d99": 1, "d100": 1}, "recall@100")
    assert score.value == pytest.approx(50)
    assert score.also == pytest.approx({"ndcg@10": 0, "mrr@10": 0})


def test_a_query_that_is_a_document_does_not_find_itself_but_one_that_shares_its_id_only_does_no_harm():
    vectors = {"a": [1.0, 0.0], "b": [0.9, 0.1], "c": [0.0, 1.0]}

    def encode(texts):
        return np.array([vectors[text] for text in texts])

    same = SearchTask("own", {"1": "a"}, {"1": "a", "2": "b", "3": "c"}, {"1": {"2": 1}})
    assert same.score(encode, resamples=0).value == 100
    other = SearchTask("other", {"3": "a"}, {"1": "a", "2": "b", "3": "c"}, {"3": {"1": 1}})
    assert other.score(encode, resamples=0).value == 100


def test_all_documents_are_searched_whatever_is_held_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    documents = {f"d{i}": f"d{i}" for i in range(300)}
    queries = {f"q{i}": f"q{i}" for i in range(25)}
    relevant = {query: {f"d{i}": 1 for i in rng.integers(300, size=5)} for query in queries}
    table = {text: rng.normal(size=6) for text in [*documents, *queries]}
    task = SearchTask("made", queries, documents, relevant)

    def encode(texts):
        return np.array([table[text] for text in texts])

    whole = task.score(encode, resamples=0)
    monkeypatch.setattr("bertflow.evaluation.tasks.search._CELLS", 700)
    np.testing.assert_allclose(task.score(encode, resamples=0).units, whole.units)
    unit = {text: row / np.linalg.norm(row) for text, row in table.items()}
    expected = []
    for query in queries:
        order = sorted(documents, key=lambda d: -unit[query] @ unit[d])
        gains = [d in relevant[query] for d in order[:10]]
        ideal = sum(1 / np.log2(i + 2) for i in range(min(10, len(relevant[query]))))
        expected.append(100 * sum(gain / np.log2(i + 2) for i, gain in enumerate(gains)) / ideal)
    np.testing.assert_allclose(whole.units, expected)
