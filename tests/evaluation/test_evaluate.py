import numpy as np
import pytest
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from bertflow.errors import InputError
from bertflow.evaluation import PairSet, PairTask, evaluate_task, task_similarities


def made_up(sizes=(30, 12, 55), metric="spearman"):
    """A task with sub-sets of different difficulty, and vectors for its sentences, most of which occur often.

    No pair occurs twice and none is a sentence with itself: float32 would break such ties at random in the reference.
    """
    rng = np.random.default_rng(0)
    vectors = {f"sentence {i}": rng.normal(size=8).astype(np.float32) for i in range(60)}
    names = list(vectors)
    unique = [(names[i], names[j]) for i in range(60) for j in range(i)]
    drawn = iter(rng.permutation(len(unique)))
    subsets = {}
    for part, n in enumerate(sizes):
        one, two = (list(side) for side in zip(*(unique[next(drawn)] for _ in range(n)), strict=True))
        near = [1 - cosine(vectors[a], vectors[b]) for a, b in zip(one, two, strict=True)]
        noisy = np.array(near) * 2.5 + rng.normal(0, 0.4 * (part + 1), n)
        gold = (noisy > 0).astype(float) if metric == "auc" else noisy.round(1)
        subsets[f"part{part}"] = PairSet(one, two, gold)
    return PairTask("made up", metric, subsets, names), vectors


def embed_with(vectors, log=None):
    def embed(sentences):
        if log is not None:
            log.append(sentences)
        return np.stack([vectors[sentence] for sentence in sentences])

    return embed


def senteval(task, vectors):
    """SentEval's protocol, from its description: pair by pair, sub-set by sub-set, scipy's correlations."""
    results, pooled = {}, ([], [])
    for name, pairs in task.subsets.items():
        system = [
            np.nan_to_num(np.dot(vectors[a], vectors[b]) / (np.linalg.norm(vectors[a]) * np.linalg.norm(vectors[b])))
            for a, b in zip(pairs.sentences1, pairs.sentences2, strict=True)
        ]
        results[name] = [f(system, pairs.gold).statistic * 100 for f in (spearmanr, pearsonr)]
        pooled[0].extend(system)
        pooled[1].extend(pairs.gold)
    each = np.array(list(results.values()))
    return {
        "all": [f(*pooled).statistic * 100 for f in (spearmanr, pearsonr)],
        "mean": np.average(each, axis=0),
        "wmean": np.average(each, axis=0, weights=[len(pairs) for pairs in task.subsets.values()]),
    }


@pytest.mark.parametrize("setting", ["all", "mean", "wmean"])
@pytest.mark.parametrize(("column", "metric"), [(0, "spearman"), (1, "pearson")])
def test_numbers_agree_with_senteval_to_two_decimals(setting, column, metric):
    task, vectors = made_up()
    score = evaluate_task(task, embed_with(vectors), setting, metric=metric, resamples=20)
    assert round(score.value, 2) == round(senteval(task, vectors)[setting][column], 2)


def test_each_distinct_sentence_is_embedded_once():
    task, vectors = made_up()
    log = []
    evaluate_task(task, embed_with(vectors, log), resamples=0)
    assert len(log) == 1
    assert sorted(log[0]) == sorted(set(log[0])) == sorted(task.sentences)


def test_auc_tasks_are_judged_by_auc():
    task, vectors = made_up((200,), "auc")
    score = evaluate_task(task, embed_with(vectors), resamples=50)
    assert score.metric == "auc"
    assert 50 < score.low < score.value < score.high <= 100


def test_identical_sentences_tie_exactly_in_any_scale():
    _, vectors = made_up()
    names, rng = list(vectors), np.random.default_rng(1)
    same = PairTask("same", "spearman", {"all": PairSet(names, names, rng.normal(size=len(names)))}, names)
    for scale in (1e-3, 1, 7e4):
        scaled = {name: vector * np.float32(scale) for name, vector in vectors.items()}
        assert set(task_similarities(same, embed_with(scaled))["all"]) == {1.0}


def test_scale_does_not_matter_and_zero_vectors_are_allowed():
    task, vectors = made_up()
    bigger = {name: vector * (1 + i) for i, (name, vector) in enumerate(vectors.items())}
    values = [evaluate_task(task, embed_with(v), "wmean", resamples=0).value for v in (vectors, bigger)]
    assert values[0] == pytest.approx(values[1], abs=1e-3)
    vectors["sentence 0"] = np.zeros(8, np.float32)
    assert np.isfinite(np.concatenate(list(task_similarities(task, embed_with(vectors)).values()))).all()


@pytest.mark.parametrize(
    ("embed", "message"),
    [
        (lambda sentences: np.ones((3, 4)), "sentences gave 3 embeddings"),
        (lambda sentences: np.full((len(sentences), 4), np.nan), "NaN"),
        (lambda sentences: np.ones((len(sentences), 4)), "similarities are 1; spearman is undefined"),
        (lambda sentences: np.ones(len(sentences)), "two axes"),
    ],
)
def test_bad_embeddings_are_explained(embed, message):
    with pytest.raises(InputError, match=message):
        evaluate_task(made_up()[0], embed)


def test_lost_subsets_allow_only_the_pooled_setting():
    task, vectors = made_up((50,))
    copy = PairTask("STS12", "spearman", {"all": task.subsets["part0"]}, task.fit_sentences, subsets_lost=True)
    assert evaluate_task(copy, embed_with(vectors), "all", resamples=0).pairs == 50
    with pytest.raises(InputError, match="STS12 has no sub-sets"):
        evaluate_task(copy, embed_with(vectors), "wmean")
