"""Model cards as the hub's own client reads them."""

import pytest
import yaml
from huggingface_hub import ModelCard

from bertflow.errors import InputError
from bertflow.evaluation import Score
from bertflow.storage.cards import is_hub_id, measured, merged, model_card, renewed

CALIBRATOR = {"class": "Whitening", "params": {"n_components": None, "shrinkage": 0.1}, "n_features_in": 8}
PART = {"view": {"class": "Pooled", "params": {"pooling": None}, "dim": 8}, "calibrator": CALIBRATOR}
CONFIG = {
    "encoder": {"name": "someone/some-bert", "pooling": "mean"},
    "parts": [PART],
    "training": {"sentences": 4000, "sentences_sha256": "abc123", "steps": 7},
}
SCORE = Score(61.25, 58.5, 63.75, "wmean", "spearman", 1379, {"a": 60.0, "b": 62.0}, 0.95)
RESULTS = [measured("STS-B", SCORE), measured("My pairs: tea | coffee", SCORE, split=None)]


def front(card: str) -> dict:
    start, text, body = card.split("---\n", 2)
    assert start == ""
    assert body.strip()
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("mini", None),
        ("mini-1", None),
        ("bert-base-uncased", "bert-base-uncased"),
        ("someone/some-model.v2", "someone/some-model.v2"),
        ("/somewhere/local", None),
        ("./local", None),
        ("C: # 'odd' \"name\" [x]", None),
    ],
)
def test_front_matter_for_every_kind_of_encoder(name, base):
    card = model_card({**CONFIG, "encoder": {"name": name}}, "my-model")
    data = front(card)
    assert data["library_name"] == "bertflow"
    assert data["pipeline_tag"] == "sentence-similarity"
    assert {"bert-flow", "sentence-similarity", "feature-extraction", "Whitening"} <= set(data["tags"])
    assert data.get("base_model") == base
    assert is_hub_id(name) == (base is not None)
    assert "license" not in data
    assert "model-index" not in data
    assert "None" not in card


def test_a_local_folder_is_no_base_model_and_its_path_stays_private(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "base_model" not in front(model_card({**CONFIG, "encoder": {"name": "here"}}, "m"))
    card = model_card({**CONFIG, "encoder": {"name": str(tmp_path / "here")}}, "m")
    assert str(tmp_path) not in card
    assert "`here`" in card


def test_settings_and_training_data_are_told():
    card = model_card(CONFIG, "my-model")
    assert "| shrinkage | 0.1 |" in card
    assert "| steps | 7 |" in card
    assert "n_components" not in card  # not set, not worth a line
    assert "4000 different sentences" in card
    assert card.count("abc123") == 1
    assert "Training data" not in model_card({**CONFIG, "training": {}}, "my-model")


def test_every_part_is_told_with_its_view():
    tokens = {"view": {"class": "TokenTable", "params": {"features": 1024}, "dim": 1024}, "calibrator": CALIBRATOR}
    flow = {"class": "FlowCalibrator", "params": {"preset": "paper"}, "n_features_in": 8}
    pooled = {"class": "Pooled", "params": {"pooling": "first-last-avg", "words_only": True}, "dim": 8}
    both = [tokens, {"view": pooled, "calibrator": flow}]
    card = model_card(CONFIG | {"recipe": "best", "parts": both}, "my-model")
    assert {"Whitening", "FlowCalibrator"} <= set(front(card)["tags"])
    assert "# some-bert + best" in card
    assert "(TokenTable beside pooling: first-last-avg)" in card
    for row in (
        "| recipe | best |",
        "| part 1: features | 1024 |",
        "| part 1: shrinkage | 0.1 |",
        "| part 2: preset | paper |",
    ):
        assert row in card
    assert "# some-bert + Whitening beside FlowCalibrator" in model_card(CONFIG | {"parts": both}, "my-model")
    assert "(pooling: mean)" in model_card(CONFIG, "my-model")  # the encoder's own


def test_results_are_a_model_index_that_the_hub_reads():
    card = ModelCard(model_card({**CONFIG, "results": RESULTS}, "me/my-model"))
    assert card.data.model_name == "my-model"
    first, second = card.data.eval_results
    assert (first.task_type, first.dataset_name, first.dataset_type) == ("sentence-similarity", "STS-B", "sts-b")
    assert (first.dataset_split, first.metric_type, first.metric_value) == ("test", "cos_sim_spearman", 61.25)
    assert first.metric_name == "Spearman ×100 of cosines, wmean"
    assert (second.dataset_type, second.dataset_split) == ("my-pairs-tea-coffee", None)
    assert "| STS-B | test | Spearman ×100 of cosines | wmean | 61.25 | 58.50 – 63.75 (95%) | 1379 pairs |" in card.text
    assert r"tea \| coffee" in card.text


def test_search_and_clusters_are_results_too():
    search = Score(31.5, 25.0, 38.0, "all", "ndcg@10", 76, {}, 0.95, "queries")
    clusters = Score(60.25, 58.0, 62.5, "all", "v-measure", 3080, {}, 0.95, "texts")
    results = [measured("cisi", search), measured("banking77", clusters)]
    card = ModelCard(model_card({**CONFIG, "results": results}, "me/my-model"))
    kinds = [(r.task_type, r.metric_type) for r in card.data.eval_results]
    assert kinds == [("retrieval", "ndcg_at_10"), ("clustering", "v_measure")]
    assert "| 76 queries |" in card.text
    assert "| 3080 texts |" in card.text


def test_results_of_others_need_only_four_things():
    result = {"task": "text-classification", "dataset": "Tea", "metric": "accuracy", "value": 0.5}
    (read,) = ModelCard(model_card({**CONFIG, "results": [result]}, "m")).data.eval_results
    assert (read.task_type, read.metric_type, read.metric_value) == ("text-classification", "accuracy", 0.5)


def test_what_only_the_author_knows():
    data = front(model_card({**CONFIG, "card": {"license": "mit", "language": "en"}}, "m"))
    assert (data["license"], data["language"]) == ("mit", "en")


@pytest.mark.parametrize("lack", ["task", "dataset", "metric", "value"])
def test_a_result_that_lacks_something(lack):
    with pytest.raises(InputError, match=f"has no {lack}"):
        merged((), [{name: value for name, value in RESULTS[0].items() if name != lack}])


def test_a_new_measurement_replaces_the_old_one_in_its_place():
    again = {**RESULTS[0], "value": 70.0}
    other = {**RESULTS[0], "setting": "all"}
    assert merged(RESULTS, [again, other]) == [again, RESULTS[1], other]


def test_an_untouched_card_is_written_anew():
    new = {**CONFIG, "results": RESULTS}
    assert renewed(model_card(CONFIG, "a"), CONFIG, new) == model_card(new, "a")
    assert renewed(model_card(CONFIG, "a"), CONFIG, CONFIG, "b/c") == model_card(CONFIG, "b/c")


def test_own_text_and_own_results_stay():
    old = {**CONFIG, "results": RESULTS[:1]}
    own = ModelCard(model_card(old, "a") + "\nMy own words.\n")
    own.data.license = "mit"
    own.data.eval_results[0].metric_value = 1.0
    mine = {"task": "retrieval", "dataset": "Mine", "metric": "ndcg", "value": 0.7}
    own = ModelCard(str(own))
    own.data.eval_results += ModelCard(model_card({**CONFIG, "results": [mine]}, "a")).data.eval_results
    assert renewed(str(own), old, old, "b/c") == str(own)
    card = ModelCard(renewed(str(own), old, {**CONFIG, "results": RESULTS}))
    assert "My own words." in card.text
    assert card.data.license == "mit"
    assert {(r.dataset_name, r.metric_value) for r in card.data.eval_results} == {
        ("Mine", 0.7),
        ("STS-B", 61.25),
        ("My pairs: tea | coffee", 61.25),
    }


def test_a_calibrator_alone():
    card = model_card({"calibrator": CALIBRATOR}, "me/white")
    assert front(card)["pipeline_tag"] == "feature-extraction"
    assert "base_model" not in front(card)
    assert 'Calibrator.from_pretrained("me/white")' in card
    assert "8 dimensions" in card
