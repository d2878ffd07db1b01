import numpy as np
import pytest
from sklearn.metrics import v_measure_score

from bertflow.errors import InputError
from bertflow.evaluation import ClusterTask
from bertflow.evaluation.bootstrap import resampled
from bertflow.evaluation.tasks.clusters import _v_measure


@pytest.mark.parametrize(("labels", "clusters"), [(3, 4), (10, 2), (1, 3), (1, 1)])
def test_resampled_v_measure_is_that_of_the_resample_written_out(labels, clusters):
    rng = np.random.default_rng(labels)
    of_label, of_cluster = rng.integers(labels, size=60), rng.integers(clusters, size=60)
    counts = rng.multinomial(60, np.full(60, 1 / 60), size=30).astype(float)
    expected = [v_measure_score(*(np.repeat(x, c.astype(int)) for x in (of_label, of_cluster))) for c in counts]
    np.testing.assert_allclose(_v_measure(of_label, of_cluster)(counts), expected, atol=1e-9)


def test_the_score_is_the_mean_over_seeds_of_kmeans():
    rng = np.random.default_rng(0)
    texts = [f"text {i}" for i in range(90)]
    labels = [str(i % 3) for i in range(90)]
    table = {text: rng.normal(size=4) + 2 * np.eye(4)[int(label)] for text, label in zip(texts, labels, strict=True)}

    def score(seeds):
        task = ClusterTask("made", texts, labels, seeds)
        return task.score(lambda asked: np.array([table[text] for text in asked]), resamples=0)

    each = [score((seed,)) for seed in range(3)]
    whole = score((0, 1, 2))
    assert whole.value == pytest.approx(np.mean([one.value for one in each]))
    assert whole.units.shape == (3, 90)
    written_out = 100 * np.mean([v_measure_score(labels, clusters) for clusters in whole.units])
    assert whole.value == pytest.approx(written_out)


def test_the_length_of_vectors_does_not_matter():
    rng = np.random.default_rng(1)
    texts = [f"text {i}" for i in range(40)]
    task = ClusterTask("made", texts, [str(i % 4) for i in range(40)])
    rows = rng.normal(size=(40, 5)) + np.repeat(np.eye(5)[:4], 10, axis=0)
    longer = rows * rng.uniform(0.5, 9, size=(40, 1))
    scores = [task.score(lambda _, v=v: v, resamples=0).value for v in (rows, longer)]
    assert scores[0] == pytest.approx(scores[1])


def test_labels_and_texts_must_match():
    with pytest.raises(InputError, match="each text needs a label"):
        ClusterTask("made", ["a", "b"], ["one"])


def test_the_interval_is_as_wide_as_scores_of_other_texts_are_spread():
    """Fixed clusters of an endless population; each sample's bootstrap against the spread over samples."""
    rng = np.random.default_rng(0)
    scores, spreads = [], []
    for _ in range(60):
        labels = rng.integers(12, size=300)
        clusters = np.where(rng.random(300) < 0.6, labels, rng.integers(12, size=300))
        measure = _v_measure(labels, clusters)
        scores.append(measure(np.ones((1, 300)))[0])
        spreads.append(resampled(measure, 300, 100, 0).std())
    assert np.mean(spreads) == pytest.approx(np.std(scores), rel=0.3)
