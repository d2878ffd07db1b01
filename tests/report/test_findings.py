"""What the report shows is right: maps, thresholds, pairs, ranks, verdicts."""

import importlib.util
import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bertflow import Encoder, InputError, write_report
from bertflow.evaluation import PairSet, PairTask
from bertflow.geometry import BeforeAfter, make_spaces
from bertflow.report import findings as findings_module
from bertflow.report import gather
from bertflow.report.cosines import best_threshold, random_cosines
from bertflow.report.maps import LEVELS, frequency_levels, quantile_levels, sentence_map, word_space
from bertflow.report.pairs import Pairs, grade, largest_moves, neighbour_pairs, random_ends
from bertflow.report.payload import page_data, safe_json, shortened, spectrum_points


def test_maps_show_each_sentence_where_its_vectors_are(tiny_spaces):
    found = sentence_map(tiny_spaces)
    assert found.labels == tiny_spaces.sentences
    for points, vectors in ((found.before, tiny_spaces.before), (found.after, tiny_spaces.after)):
        lengths = np.linalg.norm(points, axis=1)
        assert (lengths <= np.linalg.norm(vectors, axis=1) + 1e-4).all()
        singular = np.linalg.svd(vectors.astype(np.float64), compute_uv=False)
        assert np.square(points).sum() == pytest.approx(np.square(singular[:2]).sum(), rel=1e-6)
    assert found.before[:, 0].mean() > 0, "a cloud off the origin lies to its right"
    densest, sparsest = found.values.argmax(), found.values.argmin()
    assert (found.levels[densest], found.levels[sparsest]) == (LEVELS - 1, 0)


def test_a_large_corpus_is_sampled_and_says_so(tiny_spaces):
    found = sentence_map(tiny_spaces, limit=50)
    assert len(found.labels) == len(found.before) == len(found.values) == 50
    assert found.total == len(tiny_spaces.sentences)


@pytest.fixture(scope="module")
def whitened(tiny_bert, tiny_spaces):
    return make_spaces(tiny_spaces.sentences, Encoder(tiny_bert, device="cpu"), recipe="whitening")


def test_without_a_density_colour_is_nearness(whitened):
    assert "nearest" in sentence_map(whitened).shade


def test_words_get_a_calibrator_of_their_own(tiny_spaces, whitened):
    found = word_space(whitened)
    words = Counter(word for text in tiny_spaces.sentences for word in text.split())
    assert words[found.map.labels[0]] == found.map.values[0], "no word of the tiny models is cut into pieces"
    assert (np.diff(found.map.values) <= 0).all(), "the most frequent first"
    assert found.counts == "this corpus"
    fitted = whitened.after
    assert found.map.after.shape == (len(found.map.labels), 2)
    assert not np.allclose(found.map.after[:2], fitted[:2, :2])


def test_levels_use_all_shades_and_keep_order():
    values = np.random.default_rng(0).normal(size=1000) ** 3
    levels = quantile_levels(values)
    assert set(levels) == set(range(LEVELS))
    assert (np.diff(levels[values.argsort()]) >= 0).all()
    ranks = frequency_levels(5000)
    assert (ranks[0], ranks[-1]) == (LEVELS - 1, 0)
    assert (np.diff(ranks) <= 0).all()


def test_thresholds_let_through_what_they_say(tiny_spaces, task):
    found = random_cosines(tiny_spaces, grade(tiny_spaces, task).pairs)
    n = len(tiny_spaces.sentences)
    assert found.pairs == n * (n - 1) // 2, "few enough to take them all"
    units = tiny_spaces.after / np.linalg.norm(tiny_spaces.after, axis=1, keepdims=True)
    cosines = (units @ units.T)[np.triu_indices(n, 1)]
    after = found.spread.after
    assert (cosines > after.similar).mean() == pytest.approx(0.01, abs=1e-3)
    assert (cosines > after.very_similar).mean() == pytest.approx(0.001, abs=2e-4)
    assert after.mean == pytest.approx(cosines.mean(), abs=1e-5)
    assert after.shares.sum() == pytest.approx(1)
    assert after.labelled_shares.sum() == pytest.approx(1)
    assert found.alike == (grade(tiny_spaces, task).pairs.gold >= found.alike_from).sum() > 0


def test_best_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    cosines, alike = rng.normal(size=80).round(1), rng.random(80) < 0.4
    best = best_threshold(cosines, alike)

    def f1(threshold):
        taken = cosines >= threshold
        return 2 * (taken & alike).sum() / (taken.sum() + alike.sum())

    assert best.f1 == pytest.approx(max(map(f1, cosines)))
    assert f1(best.cosine) == pytest.approx(best.f1)
    assert best.f1 == pytest.approx(2 * best.precision * best.recall / (best.precision + best.recall))


def test_random_pairs_are_of_different_sentences():
    ends = random_ends(3, 1000, 0)
    assert (ends[:, 0] != ends[:, 1]).all()
    assert len(np.unique(ends, axis=0)) == 6


def test_moves_are_the_largest_and_know_better_from_worse():
    cosine = BeforeAfter(np.array([0.9, 0.8, 0.7, 0.1]), np.array([0.1, 0.8, 0.7, 0.9]))
    pairs = Pairs(list("abcd"), list("efgh"), cosine, np.array([1.0, 4.0, 3.0, 5.0]))
    first, second = largest_moves(pairs)
    assert (first.first, first.rank.before, first.rank.after, first.gold_rank, first.better) == ("a", 1, 4, 4, True)
    assert (second.first, second.change, second.better) == ("d", 3, True)
    assert largest_moves(replace(pairs, gold=None))[0].better is None


def test_neighbours_are_each_pair_once(tiny_spaces):
    found = neighbour_pairs(tiny_spaces)
    pairs = [frozenset(pair) for pair in zip(found.first, found.second, strict=True)]
    assert len(pairs) == len(set(pairs))
    assert set(found.first) | set(found.second) == set(tiny_spaces.sentences)
    assert all(len(pair) == 2 for pair in pairs)


def test_labelled_pairs_decide(findings):
    assert findings.judgement.unit == "pairs"
    assert findings.judgement.labels == len(findings.grades.pairs)
    assert "a change of" in findings.effect[0]
    assert f"{findings.grades.score.after.value:.1f}" in findings.effect[0]


def test_without_pairs_nothing_is_claimed(unlabelled):
    assert not unlabelled.judgement.measured
    assert "no labels" in unlabelled.judgement.paragraph
    assert "cannot prove" in unlabelled.effect[0]


def test_labels_of_zero_and_one_are_judged_by_auc(tiny_spaces, task):
    pairs = task.subsets["all"]
    binary = PairTask("own", "auc", {"all": PairSet(pairs.sentences1, pairs.sentences2, (pairs.gold >= 3) * 1.0)}, [])
    found = grade(tiny_spaces, binary)
    assert found.score.before.metric == "auc"
    assert random_cosines(tiny_spaces, found.pairs).alike == (pairs.gold >= 3).sum()


def test_without_rapidfuzz_the_rest_is_there(tiny_spaces, task, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(findings_module, "find_spec", lambda name: None if name == "rapidfuzz" else real(name))
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance.Levenshtein", None)
    found = gather(tiny_spaces, pairs=task)
    assert found.lexical is None
    assert found.grades is not None
    assert any("pip install 'bertflow[evaluation]'" in note for note in found.analysis.notes)
    assert page_data(found)["lexical"] is None


def test_long_texts_are_cut_to_fit_and_short_ones_are_not():
    texts = ["x" * 1000, "short", "日本語" * 400]
    assert shortened(texts) == texts
    cut = shortened(texts, 600)
    assert len(safe_json(cut).encode()) < 700
    assert cut[1] == "short"
    assert cut[0].endswith("…")


def test_json_is_exact_and_harmless(evil):
    text = safe_json([*evil, 1.5, None])
    assert json.loads(text) == [*evil, 1.5, None]
    assert not set("<>&\u2028\u2029") & set(text)


def test_spectrum_points_have_unit_mean_square():
    points = np.array(spectrum_points((4.0, 2.0, 1.0, 0.0)))
    assert points[:, 0].tolist() == [1, 2, 3], "a direction without spread has no place on a logarithmic axis"
    assert np.square(points[:, 1]).sum() / 4 == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"output": "report.pdf"}, "ends in .html"),
        ({"output": "r.html", "counts": "no-such-file"}, "no file 'no-such-file'"),
        ({"output": "r.html", "figures": __file__}, "is a file"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(options, sentence):
    if "figures" in options:
        pytest.importorskip("matplotlib", reason="figures need pip install 'bertflow[figures]'")
    with pytest.raises(InputError, match=sentence):
        write_report(["never encoded"], **options)
