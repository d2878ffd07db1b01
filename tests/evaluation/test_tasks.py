"""The contract that every kind of task keeps; a new kind is tested by being registered and having an example here."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from bertflow.errors import InputError
from bertflow.evaluation import KINDS, ClusterTask, PairSet, PairTask, SearchTask, difference, evaluate_task, load_own

TOPICS = ("cards", "rates", "trips", "bread")


def topic_texts(n=20):
    return [f"{topic} {i}" for topic in TOPICS for i in range(n)]


def example(kind):
    texts = topic_texts()
    if kind == "pairs":
        rng = np.random.default_rng(0)
        first, second = (rng.permutation(texts).tolist() for _ in range(2))
        gold = np.array([float(a.split()[0] == b.split()[0]) for a, b in zip(first, second, strict=True)])
        return PairTask("pairs", "spearman", {"all": PairSet(first, second, gold)}, texts)
    if kind == "search":
        documents = {f"d{i}": text for i, text in enumerate(texts)}
        queries = {f"q{i}": f"{topic} ask" for i, topic in enumerate(TOPICS)}
        relevant = {
            f"q{i}": {d: 1 for d, text in documents.items() if text.startswith(t)} for i, t in enumerate(TOPICS)
        }
        return SearchTask("search", queries, documents, relevant)
    return ClusterTask("clusters", texts, [text.split()[0] for text in texts])


def encoder(noise, seed=0):
    """Vectors that know the topic, under noise."""

    def encode(texts):
        log.append(texts)
        rows = [
            np.eye(8)[TOPICS.index(text.split()[0])]
            + noise * np.random.default_rng([seed, *map(ord, text)]).normal(size=8)
            for text in texts
        ]
        return np.array(rows, dtype=np.float32)

    log = []
    encode.log = log
    return encode


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


def test_every_kind_scores_good_vectors_above_bad_ones_and_says_how_sure(kind):
    task = example(kind)
    good, bad = (task.score(encoder(noise), resamples=200) for noise in (0.1, 2))
    assert 0 <= bad.value < good.value <= 100
    for score in (good, bad):
        assert score.low <= score.value <= score.high
        assert (score.metric, score.setting) == (task.metric, "all")
        assert score.size == {"pairs": 80, "queries": 4, "texts": 80}[score.unit]
        assert score.units.shape[-1] == score.size
        assert len(score.draws) == 200
    found = difference(good, bad)
    assert found.difference == pytest.approx(good.value - bad.value)
    assert found.p_value < 0.05
    back = difference(bad, good)
    assert (back.difference, back.low) == pytest.approx((-found.difference, -found.high))
    same = difference(good, task.score(encoder(0.1), resamples=200))
    assert (same.difference, same.p_value) == (0, 1)


def test_every_kind_is_deterministic_and_encodes_each_text_once(kind):
    task, encode = example(kind), encoder(0.5)
    one, two = (task.score(encode, resamples=50, seed=3) for _ in range(2))
    assert one == two
    np.testing.assert_array_equal(one.draws, two.draws)
    assert len(encode.log) == 2
    assert sorted(encode.log[0]) == sorted(set(encode.log[0])) == sorted(task.sentences)
    assert set(task.sentences) <= set(task.fit_sentences)
    assert evaluate_task(task, encode, resamples=0).value == one.value


def test_every_kind_writes_its_score_as_json(kind):
    score = example(kind).score(encoder(0.5), resamples=20)
    shown = json.loads(json.dumps(score.to_dict(), allow_nan=False))
    assert shown[score.unit] == score.size
    assert not {"units", "draws"} & set(shown)
    bare = example(kind).score(encoder(0.5), resamples=0)
    assert (bare.low, bare.high, bare.draws) == (None, None, None)
    with pytest.raises(InputError, match="needs resamples"):
        difference(score, bare)


def test_every_kind_is_judged_by_its_own_metrics(kind):
    task = example(kind)
    for metric in task.metrics:
        assert task.judged_by(metric, "wmean").score(encoder(0.5), resamples=0).metric == metric
    with pytest.raises(InputError, match="no metric 'kendall'"):
        task.judged_by("kendall")


def test_every_kind_refuses_vectors_that_are_not_one_a_text(kind):
    for wrong, message in ((np.ones((3, 4)), "gave 3 embeddings"), (np.full((3, 4), np.nan), "NaN")):
        with pytest.raises(InputError, match=message):
            example(kind).score(lambda texts, wrong=wrong: wrong)


def test_scores_of_different_tasks_are_not_compared():
    scores = [example(kind).score(encoder(0.5), resamples=20) for kind in KINDS]
    with pytest.raises(InputError, match="Only scores of one task"):
        difference(scores[0], scores[1])


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2\n")
    lines = [{"_id": f"d{i}", "title": "T" if i else "", "text": text} for i, text in enumerate("xyz")]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "x?"}\n{"_id": "q2", "text": "y?"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td0\t2\nq1\td1\t0\n")
    (tmp_path / "texts.csv").write_text('text,kind\n"a, b",one\nc,one\nd,two\n')
    return SimpleNamespace(
        pairs=tmp_path / "pairs.tsv",
        queries=tmp_path / "queries.jsonl",
        corpus=tmp_path / "corpus.jsonl",
        qrels=tmp_path / "qrels.tsv",
        texts=tmp_path / "texts.csv",
    )


def test_own_files_of_every_kind(files):
    pairs, search, clusters = load_own(**vars(files), labels="kind")
    assert pairs.sentences == ["a", "c", "b", "d"]
    assert search.documents == {"d0": "x", "d1": "T y", "d2": "T z"}
    assert (search.judged, search.relevant) == (["q1"], {"q1": {"d0": 2, "d1": 0}})
    assert set(search.fit_sentences) == {"x", "T y", "T z", "x?", "y?"}
    assert (clusters.texts, clusters.labels) == (["a, b", "c", "d"], ["one", "one", "two"])
    assert load_own(pairs=None, texts=None) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queries": "q", "corpus": "c"}, "--qrels is missing"),
        ({"texts": "t"}, "--labels is missing"),
        ({"images": "i"}, "No kind of task is read from images"),
    ],
)
def test_own_files_that_are_not_all_there(given, message):
    with pytest.raises(InputError, match=message):
        load_own(**given)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("qrels", "q\td\ts\nq9\td0\t1\n", "the query 'q9', which is not among the queries"),
        ("qrels", "q\td\ts\nq1\td9\t1\n", "the document 'd9' judged, which is not in the corpus"),
        ("qrels", "q\td\ts\nq1\td1\t0\n", "no query with a relevant document"),
        ("qrels", "q\td\ts\nq1\td1\tyes\n", "qrels.tsv, line 2, has the grade 'yes'"),
        ("qrels", "q\td\nq1\td1\n", "three were expected"),
        ("corpus", '{"_id": "d0", "text": "x"}\n{"_id": "d0", "text": "y"}\n', "'d0' a second time"),
        ("corpus", '{"_id": "d0", "body": "x"}\n', "'_id' and 'text' are needed"),
        ("texts", "text,sort\na,one\n", "no column 'kind'"),
        ("texts", "text,kind\na,one\n,two\n", "line 3, has the text ''"),
        ("texts", "text,kind\na,one\nb,one\n", "at least 2 labels are needed"),
        ("texts", "text,kind\na,one\nb,two\n", "more texts than labels"),
    ],
)
def test_own_files_that_are_wrong_are_explained(files, file, text, message):
    getattr(files, file).write_text(text)
    with pytest.raises(InputError, match=message):
        load_own(**vars(files), labels="kind")
