"""Advice on encoders of which the right answer is known."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bertflow
from bertflow import BertFlow, Encoder, InputError, Whitening, advise
from bertflow.advice.candidates import Candidate, choose_poolings, own_pooling
from bertflow.advice.rule import EVEN, SLOPE, WORTH, choose_by_rule, expected_gain
from bertflow.data import sample_sentences

QUICK = ("none", "natsv-1", "whitening")


def test_a_crowded_space_is_calibrated(crowded, corpus):
    advice = advise(corpus, crowded, calibrators=QUICK)
    assert not advice.leave_it
    assert advice.choice.calibrator in QUICK[1:]
    assert advice.basis == "splices"
    assert advice.gain.low < advice.gain.value < advice.gain.high
    assert advice.options[0].candidate == advice.choice
    assert "expected gain +" in advice.headline
    assert any("estimate" in reason for reason in advice.reasons)


def test_an_even_space_is_left(even, corpus):
    advice = advise(corpus, even, calibrators=QUICK)
    assert advice.leave_it
    assert advice.headline.startswith("Leave it")
    assert advice.gain.value == 0
    assert {option.gain for option in advice.options} == {None}
    assert advice.code == "encoder.encode(sentences)"
    assert advice.command() is None


def test_calibrated_vectors_are_left(crowded, corpus):
    raw = np.tile(crowded.encode(corpus), (4, 1)) + np.random.default_rng(0).normal(size=(1600, 24)) / 50
    assert not advise(raw).leave_it
    assert advise(raw).code == "FlowCalibrator(random_state=0).fit_transform(vectors)"
    assert advise(Whitening().fit_transform(raw)).leave_it


def test_few_vectors_are_left_whatever_their_shape(crowded, corpus):
    wide = np.tile(crowded.encode(corpus), 10)
    advice = advise(wide)
    assert advice.leave_it
    assert any("too few" in reason for reason in advice.reasons)
    assert advise(wide.tolist()) == advice


def test_labelled_pairs_decide(crowded, even, corpus, pairs):
    advice = advise(corpus, crowded, pairs, calibrators=QUICK)
    assert advice.basis == "pairs"
    assert not advice.leave_it
    assert advice.gain.low > 0
    assert "measured gain" in advice.headline
    assert advise(corpus, even, pairs, calibrators=QUICK).leave_it


def test_the_same_seed_gives_the_same_advice_and_json_takes_it(crowded, corpus):
    one, same = (advise(corpus, crowded, calibrators=QUICK, random_state=5) for _ in range(2))
    assert one == same
    assert json.loads(json.dumps(one.to_dict()))["choice"]["calibrator"] == one.choice.calibrator


def test_a_sample_is_drawn_and_said(crowded, corpus):
    advice = advise(corpus, crowded, calibrators=QUICK, sample=150)
    assert advice.sentences == 150
    assert advice.notes[0] == "Judged on 150 sentences, drawn at random from 400."
    assert "150 sentences are few" in advice.notes[1]


def test_sentences_that_cannot_be_spliced_are_judged_by_geometry(even):
    advice = advise([f"w{i}" for i in range(100)], even)
    assert advice.basis == "geometry"
    assert advice.options == ()


def test_the_lines_do_what_is_advised():
    sentences = sample_sentences()[::40]
    advice = advise(sentences, "mini", poolings=["mean", "first-last-avg"], calibrators=QUICK, device="cpu")
    assert len(advice.options) == 2 * len(QUICK)
    assert advice.baseline == Candidate("mean", "none")
    advice = replace(advice, choice=Candidate("first-last-avg", "natsv-1"))
    model = eval(advice.code, {**vars(bertflow), "BertFlow": BertFlow, **_calibrators(), "sentences": sentences})
    assert (model.encoder.pooling, model.encoder.name) == (advice.choice.pooling, "mini")
    assert advice.command("my text.txt").startswith("bertflow fit 'my text.txt' --encoder mini --pooling ")
    left = replace(advice, choice=advice.baseline)
    assert left.code == "Encoder('mini', pooling='mean').encode(sentences)"
    assert left.command() == "bertflow embed your-sentences.txt --encoder mini --pooling mean --raw --output vectors"


def test_a_preset_is_weighed_beside_the_poolings(tiny_bert, corpus, pairs):
    best = Candidate(None, "best")
    for labelled in (None, pairs):
        advice = advise(corpus, tiny_bert, labelled, poolings=["mean"], calibrators=["none", "best"], device="cpu")
        assert {option.candidate for option in advice.options} == {Candidate("mean", "none"), best}
    chosen = replace(advice, choice=best, encoder="mini")
    assert "Use the preset best" in chosen.headline
    assert chosen.code == "BertFlow.fit(sentences, 'mini', preset='best')"
    assert chosen.command() == "bertflow fit your-sentences.txt --encoder mini --preset best --output my-model"


def test_presets_are_for_encoders_that_have_tokens(crowded, corpus):
    advice = advise(corpus, crowded, calibrators=[*QUICK, "best", "static"])
    assert {option.candidate.calibrator for option in advice.options} == set(QUICK)


def _calibrators():
    return {
        name: getattr(bertflow, name) for name in ("FlowCalibrator", "RemoveTopComponents", "Standardize", "Whitening")
    }


def test_an_encoder_keeps_its_pooling(mini):
    assert choose_poolings(mini, None) == (mini.pooling,)
    assert isinstance(mini, Encoder)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode": "weightedmean"}, None),
    ],
)
def test_a_folder_may_say_its_pooling(tmp_path, config, pooling):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert own_pooling(tmp_path) == pooling
    assert choose_poolings(str(tmp_path), None)[0] == (pooling or "mean")
    assert own_pooling("mini") is None


def test_the_rule():
    raw, good = Candidate("mean", "none"), Candidate("mean", "flow")
    assert expected_gain(95, 90).value == pytest.approx(SLOPE / 2)
    assert choose_by_rule({raw: 90, good: 95}, raw, EVEN + 0.01) == good
    assert choose_by_rule({raw: 90, good: 95}, raw, EVEN) == raw
    barely = 90 + 10 * 0.9 * WORTH / SLOPE
    assert choose_by_rule({raw: 90, good: barely}, raw, -1) == raw


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sentences": ["one", "two"]}, "at least 50"),
        ({"sentences": "one text"}, "as a list"),
        ({"sentences": [1, 2, 3]}, "every text must be a str"),
        ({"calibrators": ["glow"]}, "Unknown calibrator 'glow'"),
        ({"calibrators": "flow"}, "is a list"),
        ({"encoder": "mini", "poolings": ["median"]}, "Unknown pooling 'median'"),
        ({"encoder": "mini", "poolings": "mean"}, "is a list"),
        ({"poolings": ["mean"]}, "brings its own pooling"),
        ({"sample": 10}, "sample is 10"),
        ({"sentences": np.zeros((99, 3, 2))}, "type ndarray"),
    ],
)
def test_what_cannot_be_used_is_said(crowded, corpus, change, words):
    given = {"sentences": corpus, "encoder": crowded, **change}
    with pytest.raises(InputError, match=words):
        advise(given.pop("sentences"), **given)


def test_vectors_have_no_pairs(crowded, corpus, pairs):
    with pytest.raises(InputError, match="not vectors"):
        advise(crowded.encode(corpus), pairs=pairs)
