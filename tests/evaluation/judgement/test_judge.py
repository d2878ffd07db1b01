"""The judgement on encoders of which the right answer is known."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from bertflow import BertFlow, InputError, judge
from bertflow.data import sample_sentences
from bertflow.evaluation.judgement import RECIPES, Gain, judge_model, judge_scores, write_pairs_to_label
from bertflow.evaluation.judgement.evidence import Evidence, share_of_copies, share_unknown
from bertflow.evaluation.judgement.result import PURPOSES, RAW
from bertflow.evaluation.judgement.rule import Precedent, decide, precedents

QUICK = ("natsv-1", "whitening")


@pytest.fixture(scope="module")
def found(crowded, corpus):
    return judge(corpus, crowded, recipes=QUICK)


@pytest.fixture(scope="module")
def measured(crowded, corpus, pairs):
    return judge(corpus, crowded, labels=pairs, recipes=QUICK)


def test_without_labels_it_is_an_estimate(found, corpus):
    assert not found.measured
    assert {one.recipe for one in found.ranking} == {RAW, *QUICK}
    assert [one.gain.value for one in found.ranking] == sorted((one.gain.value for one in found.ranking), reverse=True)
    assert found.gain.low <= found.gain.value <= found.gain.high
    assert found.sentences == len(corpus)
    assert "no labels" in found.paragraph
    assert found.purpose == "similarity"


def test_labelled_pairs_decide(measured, even, corpus, pairs):
    assert measured.measured
    assert measured.verdict == "use"
    assert measured.recipe in QUICK
    assert measured.gain.low > 0
    assert "measured gain +" in measured.headline
    assert measured.needed is None
    assert f"{measured.labels} labelled pairs" in measured.paragraph
    left = judge(corpus, even, labels=pairs, recipes=QUICK)
    assert (left.verdict, left.recipe) == ("leave", RAW)
    assert left.headline.startswith("Leave it")


def test_too_few_labels_are_said_and_not_used(crowded, corpus, pairs):
    few = replace(
        pairs, subsets={"all": replace(pairs.subsets["all"], sentences1=["a"], sentences2=["b"], gold=np.ones(1))}
    )
    found = judge(corpus, crowded, labels=few, recipes=QUICK)
    assert not found.measured
    assert "1 labels came" in found.reasons[0]


def test_too_little_text_is_a_verdict(crowded):
    found = judge(["One.", "Two."], crowded)
    assert found.verdict == "too little text"
    assert found.recipe == RAW
    assert "2 different sentences" in found.paragraph


def test_the_same_seed_gives_the_same_judgement_and_json_takes_it(found, crowded, corpus):
    again = judge(corpus, crowded, recipes=QUICK)
    assert again == found
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["verdict"] == found.verdict
    assert plain["paragraph"] == found.paragraph
    assert set(plain["evidence"]["spaces"]) == {RAW, *QUICK}


def test_a_sample_is_drawn_and_said(crowded, corpus):
    found = judge(corpus, crowded, recipes=QUICK, sample=150)
    assert found.sentences == 150
    assert found.reasons[0] == "Judged on 150 sentences, drawn at random from 400."


def test_vectors_are_judged_by_themselves(crowded, even, corpus):
    crowd = judge(crowded.encode(corpus), recipes=QUICK)
    assert crowd.kind == "vectors"
    assert crowd.command() is None
    spread = judge(even.encode(corpus).tolist(), recipes=QUICK)
    assert spread.verdict == "leave"
    assert "spread evenly" in spread.reasons[0]
    assert spread.code == "vectors"


def test_recipes_of_tokens_are_for_encoders_that_have_tokens(crowded, corpus):
    assert {one.recipe for one in judge(corpus, crowded).ranking} == set(RECIPES) - {"static", "best"}


def test_the_lines_do_what_is_advised(tiny_bert, sentences):
    found = judge(sentences, str(tiny_bert), recipes=["whitening-half"], device="cpu")
    used = replace(found, verdict="use", recipe="whitening-half", encoder="mini", gain=Gain(8.0, 3.0, 13.0))
    assert used.headline == "Use whitening-half: expected gain +8.0 points (+3.0 to +13.0)."
    assert used.code == "BertFlow.fit(sentences, 'mini', recipe='whitening-half')"
    assert used.command("my text.txt") == (
        "bertflow fit 'my text.txt' --encoder mini --recipe whitening-half --output my-model"
    )
    assert (
        replace(used, recipe=RAW).command() == "bertflow embed your-sentences.txt --encoder mini --raw --output vectors"
    )


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_paragraph_has_no_jargon(found, purpose):
    for verdict in ("use", "leave", "cannot tell"):
        text = replace(found, purpose=purpose, verdict=verdict).paragraph
        assert text.endswith(".")
        for word in ("spearman", "cosine", "isotrop", "cross-validation", "bootstrap", "AUC", "nDCG"):
            assert word.lower() not in text.lower()


def test_pairs_to_label_are_of_different_sentences(found, crowded, corpus, tmp_path):
    write_pairs_to_label(found, corpus, crowded, tmp_path / "to-label.tsv", 40)
    with (tmp_path / "to-label.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    texts = [row[side] for row in rows for side in ("sentence1", "sentence2")]
    assert len(rows) == 40
    assert len(set(texts)) == 80
    assert set(texts) <= set(corpus)
    assert {row["score"] for row in rows} == {""}
    with pytest.raises(InputError, match=r"written as \.tsv"):
        write_pairs_to_label(found, corpus, crowded, tmp_path / "to-label.doc", 4)


def test_precedents_decide_without_labels(found):
    evidence = Evidence(**{**found.evidence, "spaces": _spaces(found), "tuned": False})

    def known(*gains, tuned=False):
        return [Precedent(f"e{i}", "t", "similarity", tuned, {"whitening": gain}) for i, gain in enumerate(gains)]

    assert decide(evidence, "similarity", known(8, 9, 10)).recipe == "whitening"
    assert decide(evidence, "similarity", known(0.1, 0.2, 0.0)).verdict == "leave"
    assert decide(evidence, "similarity", known(-20, 20, 10)).verdict == "cannot tell"
    assert decide(evidence, "similarity", known(8, 9, tuned=True)).verdict == "cannot tell", "nothing like it is known"
    assert decide(replace(evidence, unknown=0.9), "similarity", known(8, 9, 10)).verdict == "cannot tell"
    tuned = decide(replace(evidence, tuned=True), "similarity", known(-8, -9, tuned=True))
    assert tuned.verdict == "leave"


def _spaces(found):
    from bertflow.evaluation.judgement.evidence import SpaceEvidence

    return {name: SpaceEvidence(**one) for name, one in found.evidence["spaces"].items()}


def test_what_ships_knows_every_purpose_and_recipe():
    known = precedents()
    assert {one.purpose for one in known if not one.tuned} == set(PURPOSES)
    assert all(set(one.gains) >= set(RECIPES) - {RAW} for one in known)


def test_a_tokenizer_that_does_not_know_the_text_is_noticed(mini):
    assert share_unknown(mini.tokenizer, ["今天天气很好", "我喜欢喝茶"]) > 0.5
    assert share_unknown(mini.tokenizer, sample_sentences()[:50]) < 0.05


def test_copies_are_counted():
    texts = ["one two three four five six", "one two three four five six!", *(f"w{i} x{i}" for i in range(8))]
    vectors = np.eye(10)
    vectors[1] = vectors[0] + 0.01
    assert share_of_copies(texts, vectors) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sentences": "one text"}, "as a list"),
        ({"sentences": [1, 2, 3]}, "must be a str"),
        ({"recipes": ["glow"]}, "Unknown recipe 'glow'"),
        ({"recipes": "flow"}, "is a list"),
        ({"sample": 10}, "sample is 10"),
        ({"purpose": "fun"}, "no purpose 'fun'"),
    ],
)
def test_what_cannot_be_used_is_said(crowded, corpus, change, words):
    given = {"sentences": corpus, "encoder": crowded, **change}
    with pytest.raises(InputError, match=words):
        judge(given.pop("sentences"), **given)


def test_scores_that_are_there_are_judged(crowded, corpus, pairs):
    encodes = {RAW: crowded.encode, "whitening": BertFlow.fit(corpus, crowded, recipe="whitening").encode}
    scores = {name: pairs.score(encode, resamples=300) for name, encode in encodes.items()}
    found = judge_scores(scores, "mine", "similarity", len(corpus))
    assert (found.verdict, found.recipe) == ("use", "whitening")
    assert found.ranking[0].score == scores["whitening"].value
    assert judge_scores({RAW: scores[RAW]}, "mine", "similarity", 0).verdict == "leave"


def test_a_fitted_model_is_judged_at_a_glance(small_model, sentences):
    small = BertFlow(small_model.encoder, parts=small_model.parts, recipe="whitening-half")
    found = judge_model(small, sentences)
    assert {one.recipe for one in found.ranking} == {RAW, "whitening-half"}
    assert found.sentences == len(sentences)
    assert judge_model(small, sentences[:9]).verdict == "too little text"


def test_vectors_have_no_labels(crowded, corpus, pairs):
    with pytest.raises(InputError, match="not vectors"):
        judge(crowded.encode(corpus), labels=pairs)
