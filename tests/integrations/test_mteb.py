"""MTEB scores our models, and scores them right: against our own scorer, and whatever its cache holds."""

import json

import numpy as np
import pytest

from bertflow import BertFlow, Encoder, FlowCalibrator, InputError, Whitening
from bertflow.evaluation import PairSet, PairTask, evaluate_task, find_data, load_task
from bertflow.evaluation.sts import COUNTS, hub_file

mteb = pytest.importorskip("mteb", reason="needs pip install 'bertflow[mteb]'")

from bertflow.integrations.mteb import MTEBEncoder  # noqa: E402
from bertflow.integrations.mteb_runs import evaluate, evaluate_recipes  # noqa: E402
from bertflow.integrations.mteb_tasks import LOCAL, load_tasks, local_task, pairs_task  # noqa: E402


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Nothing is read from or written to the user's own folders."""
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path / "bertflow"))
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb"))


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


def make_pairs(sentences, seed=0, n=150):
    """Pairs that share words, the more the higher their score; some are two equal sentences."""
    rng = np.random.default_rng(seed)
    firsts = [sentences[i] for i in rng.integers(len(sentences), size=n)]
    gold = rng.integers(0, 6, size=n)
    seconds = []
    for first, score in zip(firsts, gold, strict=True):
        words, other = first.split(), sentences[rng.integers(len(sentences))].split()
        kept = round(len(words) * score / 5)
        seconds.append(" ".join(words[:kept] + other[kept:]) or first)
    return PairSet(firsts, seconds, gold.astype(float))


@pytest.fixture(scope="module")
def pairs(sentences):
    return make_pairs(sentences)


def ours(pairs, embed):
    """Our own score, setting ``all``, as MTEB counts: from 0 to 1."""
    return evaluate_task(PairTask("Made", "spearman", {"all": pairs}, []), embed, "all", resamples=0).value / 100


def fitted(encoder, sentences, calibrator):
    return BertFlow(encoder, calibrator.fit(encoder.encode(sentences)))


@pytest.mark.parametrize("kind", ["raw", "whitening", "flow"])
def test_agrees_with_our_all_to_four_decimals(encoder, small_model, sentences, pairs, kind):
    assert any(a == b for a, b in zip(pairs.sentences1, pairs.sentences2, strict=True))
    model = {"raw": encoder, "flow": small_model}.get(kind) or fitted(encoder, sentences, Whitening())
    result = mteb.evaluate(MTEBEncoder(model), pairs_task("Made", pairs), cache=None, show_progress_bar=False)
    scores = result.task_results[0].scores["test"][0]
    assert scores["cosine_spearman"] == pytest.approx(ours(pairs, model.encode), abs=5e-5)
    assert scores["main_score"] == scores["cosine_spearman"]


@pytest.mark.filterwarnings("ignore::bertflow.errors.TruncationWarning")  # the tiny model spells real words by letters
def test_agrees_on_real_data(encoder):
    try:
        task = load_task("STS16", find_data(), raw=True)
    except InputError as error:
        pytest.skip(f"needs the data sets: {error}")
    (score,) = evaluate(encoder, load_tasks(["STS16"]))
    assert score.score == pytest.approx(evaluate_task(task, encoder.encode, "all", resamples=0).value / 100, abs=5e-5)
    assert score.data.startswith("local-")


def test_one_cache_and_one_name_do_not_mix_up_two_calibrators(encoder, sentences, pairs, tmp_path):
    """The trap: MTEB looks results up by name and revision, and gives the second model the first one's score."""
    cache = mteb.ResultCache(tmp_path / "shared")
    task = pairs_task("Made", pairs)
    models = [
        fitted(encoder, sentences, Whitening(4)),
        fitted(encoder, sentences, FlowCalibrator(epochs=1, random_state=0)),
        fitted(encoder, sentences, FlowCalibrator(epochs=1, random_state=1)),
    ]
    for model in models * 2:  # the second time from the cache
        wrapped = MTEBEncoder(model, name="someone/one-name")
        result = mteb.evaluate(wrapped, task, cache=cache, show_progress_bar=False).task_results[0]
        assert result.get_score() == pytest.approx(ours(pairs, model.encode), abs=5e-5)
    assert len(list((tmp_path / "shared" / "results" / "someone__one-name").iterdir())) == 3
    assert len({round(ours(pairs, model.encode), 4) for model in models}) == 3


def test_revision_follows_what_the_vectors_depend_on(small_model, encoder, tiny_bert, sentences, tmp_path):
    def revision(model):
        return MTEBEncoder(model).mteb_model_meta.revision

    small_model.save_pretrained(tmp_path / "model")
    assert revision(BertFlow.from_pretrained(tmp_path / "model", device="cpu")) == revision(small_model)
    assert revision(Encoder(tiny_bert, device="cpu")) == revision(encoder)
    others = [encoder, small_model, fitted(encoder, sentences, Whitening()), Encoder(tiny_bert, "cls", device="cpu")]
    others += [fitted(encoder, sentences[:200], Whitening()), fitted(others[3], sentences, Whitening())]
    assert len({revision(model) for model in others}) == len(others)


def test_results_of_other_data_are_not_taken(encoder, sentences, pairs, tmp_path):
    other = make_pairs(sentences, seed=1)
    for data in (pairs, other, pairs):
        (score,) = evaluate(encoder, [pairs_task("Made", data)], cache=tmp_path / "shared")
        assert score.score == pytest.approx(ours(data, encoder.encode), abs=5e-5)


def test_results_are_kept_where_mteb_looks_for_them(encoder, pairs, tmp_path, monkeypatch):
    task = pairs_task("Made", pairs)
    (first,) = evaluate(encoder, [task], cache=tmp_path / "out")
    wrapped = MTEBEncoder(encoder)
    stored = mteb.ResultCache(tmp_path / "out").load_task_result("Made", wrapped.mteb_model_meta)
    assert stored.get_score() == pytest.approx(first.score, abs=1e-6)
    assert stored.dataset_revision == first.data == task.metadata.revision
    monkeypatch.setattr(MTEBEncoder, "encode", None)
    (again,) = evaluate(wrapped, [task], cache=tmp_path / "out")
    assert again.score == pytest.approx(first.score, abs=1e-6)
    with pytest.raises(TypeError):
        evaluate(wrapped, [task], cache=tmp_path / "out", overwrite=True)


def test_metadata_is_whole(small_model, encoder):
    meta = MTEBEncoder(small_model, training_datasets=["STS12"]).mteb_model_meta
    assert meta.name == "bertflow/bert-flow"
    assert meta.embed_dim == 16
    assert meta.max_tokens == encoder.max_length
    assert meta.n_parameters > encoder.model.num_parameters() > meta.n_embedding_parameters > 0
    assert meta.memory_usage_mb > 0
    assert meta.training_datasets == {"STS12"}
    assert json.dumps(meta.to_dict(), default=str)
    assert MTEBEncoder(encoder).mteb_model_meta.name == "bertflow/bert"


def test_reduced_dimensions_are_in_name_and_metadata(encoder, sentences):
    meta = MTEBEncoder(fitted(encoder, sentences, Whitening(5))).mteb_model_meta
    assert (meta.name, meta.embed_dim) == ("bertflow/bert-whitening-5", 5)


def test_a_sentence_transformer_brings_no_warnings(tiny_bert, pairs):
    library = pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
    model = library.SentenceTransformer(str(tiny_bert), device="cpu")
    wrapped = MTEBEncoder(model)  # every warning is an error here
    result = mteb.evaluate(wrapped, pairs_task("Made", pairs), cache=None, show_progress_bar=False)
    expected = ours(pairs, lambda texts: model.encode(texts, show_progress_bar=False))
    assert result.task_results[0].get_score() == pytest.approx(expected, abs=5e-5)
    assert wrapped.mteb_model_meta.framework == ["PyTorch", "Sentence Transformers"]


def test_a_text_has_one_vector_in_every_call(small_model, sentences):
    wrapped = MTEBEncoder(small_model)
    first = wrapped.encode([{"text": sentences[:50]}, {"text": sentences[50:60]}])
    second = wrapped.encode([{"text": [sentences[7], sentences[399], sentences[7]]}])
    assert first.shape == (60, 16)
    assert np.array_equal(second[0], first[7])
    assert np.array_equal(second[0], second[2])
    assert np.allclose(first, small_model.encode(sentences[:60]), atol=1e-5)


def test_other_kinds_of_tasks_run_too(small_model, sentences):
    """Classification of sentences by whether they speak of a cat."""
    import datasets

    rows = {"text": sentences, "label": [int("cat" in text.split()) for text in sentences]}
    metadata = mteb.get_task("Banking77Classification").metadata.model_copy(update={"name": "Cats"})
    kind = type(mteb.abstasks.AbsTaskClassification)(
        "Cats",
        (mteb.abstasks.AbsTaskClassification,),
        {"metadata": metadata, "n_experiments": 2, "samples_per_label": 60},
    )
    task = kind()
    task.dataset = datasets.DatasetDict(train=datasets.Dataset.from_dict(rows), test=datasets.Dataset.from_dict(rows))
    task.data_loaded = True
    (score,) = evaluate(small_model, [task])
    assert score.metric == "accuracy"
    assert score.score > 0.6
    with pytest.raises(InputError, match="no plain STS task"):
        evaluate_recipes(small_model.encoder, [task], ["whitening"])


def test_recipes_side_by_side(encoder, sentences, pairs):
    task = pairs_task("Made", pairs)
    target = evaluate_recipes(encoder, [task], ["none", "whitening", "sn", "best", "whitening@cls"])
    assert target["none"][0].score == pytest.approx(ours(pairs, encoder.encode), abs=5e-5)
    seen = list(dict.fromkeys(pairs.sentences1 + pairs.sentences2))
    expected = fitted(encoder, seen, Whitening())
    assert target["whitening"][0].score == pytest.approx(ours(pairs, expected.encode), abs=5e-5)
    general = evaluate_recipes(encoder, [task, task], ["whitening"], fit_on=sentences)
    expected = fitted(encoder, sentences, Whitening())
    assert [s.score for s in general["whitening"]] == pytest.approx([ours(pairs, expected.encode)] * 2, abs=5e-5)


@pytest.mark.parametrize("name", ["STSBenchmark", "SICK-R", "STS16"])
def test_local_copies_are_the_tasks_of_mteb(sentences, tmp_path, name):
    ours_name, splits = LOCAL[name]
    counts = {split: sum(parts.values()) for split, parts in COUNTS[ours_name].items()}
    if name == "SICK-R":
        counts = {"pooled": sum(counts.values())}
    for split, count in counts.items():
        path = hub_file(tmp_path, ours_name, split)
        path.parent.mkdir(parents=True, exist_ok=True)
        row = {"sentence1": f"{split} {sentences[0]}", "sentence2": sentences[1], "score": 2.5}
        path.write_text((json.dumps(row) + "\n") * count)
    task = local_task(name, tmp_path)
    assert {split: len(rows) for split, rows in task.dataset.items()} == {t: counts[o] for t, o in splits.items()}
    assert task.dataset["test"][0]["sentence1"].startswith(splits["test"])
    assert task.metadata.name == name
    assert task.metadata.revision.startswith("local-")
    assert mteb.get_task(name).metadata.revision != task.metadata.revision  # MTEB's own task is as it was


def test_without_data_and_without_network_it_says_so(tmp_path):
    with pytest.raises(InputError, match="BIOSSES could not be fetched from the Hugging Face hub"):
        load_tasks(["BIOSSES"])
    with pytest.raises(InputError, match="STS12 is not in"):
        load_tasks(["STS12"], tmp_path)
    with pytest.raises(InputError, match="STS12 could not be fetched"):
        load_tasks(["STS12"], tmp_path, hub=True)


def test_what_cannot_be_a_task_is_refused(pairs):
    with pytest.raises(InputError, match="Did you mean: 'STS12'"):
        load_tasks(["STS12x"])
    with pytest.raises(InputError, match="No task was named"):
        load_tasks([])
    with pytest.raises(InputError, match="BIOSSES has no local copy"):
        local_task("BIOSSES")
    with pytest.raises(InputError, match="nothing varies"):
        pairs_task("Flat", PairSet(["a", "b"], ["c", "d"], np.ones(2)))
