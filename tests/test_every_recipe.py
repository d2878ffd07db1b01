"""Every recipe of the table through everything that fits, judges or takes a fitted model; the exceptions stand here.

A recipe that is registered is tested by that. Where an exception is not in one of the sets below, it must work.
"""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi

from bertflow import (
    BertFlow,
    Encoder,
    InputError,
    SentenceVectors,
    analyze,
    find_outliers,
    judge,
    recipes,
    write_report,
)
from bertflow.arrays import unit_rows
from bertflow.encoders.base import encode_views
from bertflow.evaluation import PairSet, PairTask, evaluate_task
from bertflow.evaluation.comparison import compare_recipes
from bertflow.recipes import RAW, check_recipe, make_parts
from bertflow.runtime.portable import load_calibrator

EVERY = [*(name.replace("K", "4") for name in recipes()), "whitening-half@cls"]
FLOWS = {name for name in EVERY if name.startswith("flow")}  # densities
BESIDE = {name for name in EVERY if name.startswith("best")}  # several parts
TABLES = {"static", "static-4", "sif", "zipfian"}  # stock tables of tokens, whose vectors are normalised
PROMPTS = {name for name in EVERY if "prompt" in name}
WITHOUT_TORCH_FORM = {"mean-direction", "usif", *PROMPTS}  # neither affine nor a flow; divided by a norm of its tokens
AFFINE = set(EVERY) - FLOWS - BESIDE - {"mean-direction"}
TEXTS = ["the cat sat on the mat", "a red house", "tea", "a bird sings, and then?", "?!", "unknown zebra"]


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def fitted(encoder, sentences):
    """Return a model by its recipe, fitted once; do not change it."""

    @cache
    def model(name: str) -> BertFlow:
        return BertFlow.fit(sentences, encoder, recipe=name, random_state=0)

    return model


@pytest.fixture(scope="module")
def task(sentences):
    """Pairs that share words, the more the higher their score."""
    rng = np.random.default_rng(0)
    first, other, gold = sentences[:60], sentences[60:120], rng.integers(0, 6, size=60)
    kept = [len(text.split()) * score // 5 for text, score in zip(first, gold, strict=True)]
    second = [" ".join(a.split()[:k] + b.split()[k:]) for a, b, k in zip(first, other, kept, strict=True)]
    return PairTask("Made", "spearman", {"all": PairSet(first, second, gold.astype(float))}, [])


def same(found, expected, digits: float = 1e-5) -> None:
    """Equal but for rounding, which whitened vectors have in proportion to their largest entry."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=digits * max(1, np.abs(expected).max()))


def copied(model: BertFlow, folder: Path) -> BertFlow:
    return BertFlow.from_pretrained(model.save_pretrained(folder), device="cpu")


every = pytest.mark.parametrize("name", EVERY)


# --- the model itself


@every
def test_vectors(fitted, name):
    model = fitted(name)
    vectors = model.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), model.dim)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert model.recipe == check_recipe(name)
    same(np.stack([model.encode(text) for text in TEXTS]), vectors)
    same(model.similarity(TEXTS, TEXTS), unit_rows(vectors) @ unit_rows(vectors).T)
    same(model.similarity_pairwise(TEXTS[:3], TEXTS[3:]), np.diag(model.similarity(TEXTS[:3], TEXTS[3:])))
    assert model.encode(TEXTS, precision="int8").dtype == np.int8


@every
def test_saved_loaded_and_fitted_again_it_is_the_same(fitted, encoder, sentences, tmp_path, name):
    model, expected = fitted(name), fitted(name).encode(TEXTS)
    loaded = copied(model, tmp_path / "model")
    same(loaded.encode(TEXTS), expected)  # perhaps without torch
    assert (loaded.fingerprint, loaded.recipe, loaded.dim) == (model.fingerprint, model.recipe, model.dim)
    if name not in FLOWS:  # whose training has tests of its own, and takes its time
        assert BertFlow.fit(sentences, encoder, recipe=name, random_state=0).fingerprint == model.fingerprint


@every
def test_a_density_is_a_flow_s_alone(fitted, name):
    if name in FLOWS:
        assert fitted(name).score_samples(TEXTS).shape == (len(TEXTS),)
    else:
        with pytest.raises(InputError, match="is not a density; fit a flow for that: recipe='flow'"):
            fitted(name).score_samples(TEXTS)


# --- what takes a fitted model


@every
def test_search_index(fitted, sentences, tmp_path, name):
    pytest.importorskip("faiss", reason="needs pip install 'bertflow[faiss]'")
    from bertflow.integrations.faiss import SearchIndex, build_index, pretransform

    model = fitted(name)
    index = build_index(model, sentences[:50])
    assert index.index.d == (model.parts[0].view.dim if name in AFFINE else model.dim)
    (hits,) = index.search(sentences[7], 5).hits
    assert hits[0].text == sentences[7]
    same([hit.cosine for hit in hits], model.similarity([sentences[7]], [hit.text for hit in hits])[0], 1e-3)
    index.save(tmp_path / "index")
    assert SearchIndex.load(tmp_path / "index", device="cpu").search(sentences[7], 5).hits == [hits]
    if len(model.parts) == 1 and name not in AFFINE:
        with pytest.raises(InputError, match="is no affine map, so that FAISS cannot hold it"):
            pretransform(model.calibrator)


@every
def test_sentence_transformers(fitted, name):
    pytest.importorskip("sentence_transformers", reason="needs pip install 'bertflow[sentence-transformers]'")
    from bertflow.integrations.sentence_transformers import to_sentence_transformer

    model = fitted(name)
    if name in WITHOUT_TORCH_FORM:
        with pytest.raises(InputError, match=r"no module can stand for it|an export takes one|cannot be exported"):
            to_sentence_transformer(model)
        return
    exported = to_sentence_transformer(model)
    stock = all(type(module).__module__.startswith("sentence_transformers") for module in exported)
    assert stock == (name in AFFINE)
    same(exported.encode(TEXTS), model.encode(TEXTS, normalize_embeddings=name in TABLES))


@every
def test_onnx(fitted, name):
    """What is exported, in torch; tests/integrations/test_onnx.py runs it in onnxruntime, which takes seconds each."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="ONNX needs pip install 'bertflow[onnx]'")
    from bertflow.integrations.onnx_graph import WholeModel

    model, tokenizer = fitted(name), fitted(name).encoder.tokenizer
    if name in WITHOUT_TORCH_FORM:
        with pytest.raises(InputError, match=r"cannot be exported|an export takes one"):
            WholeModel(model, tokenizer.pad_token_id)
        return
    batch = tokenizer([*TEXTS, ""], padding=True, return_tensors="pt")
    with torch.inference_mode():
        found = WholeModel(model, tokenizer.pad_token_id).eval()(batch["input_ids"], batch["attention_mask"])
    same(found.numpy(), model.encode([*TEXTS, ""]))


@every
def test_numpy_alone(fitted, tmp_path, name):
    model = fitted(name)
    views = encode_views([part.view for part in model.parts], TEXTS)
    calibrator = load_calibrator(model.save_pretrained(tmp_path / "model"))
    same(calibrator.transform(np.hstack(views)), model.encode(TEXTS))


@every
def test_push(fitted, tmp_path, monkeypatch, name):
    def upload(self, *, folder_path, **_):
        loaded = BertFlow.from_pretrained(folder_path, device="cpu")
        same(loaded.encode(TEXTS), fitted(name).encode(TEXTS))
        assert "someone/model" in (Path(folder_path) / "README.md").read_text()
        return SimpleNamespace(commit_url="address", pr_url=None)

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: SimpleNamespace(repo_id=repo_id))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    assert fitted(name).push_to_hub("someone/model", bundle_encoder=True) == "address"


@every
def test_what_ray_sends_to_its_workers(fitted, tmp_path, name):
    """Ray itself takes seconds to start: tests/integrations/test_ray.py does."""
    pytest.importorskip("ray", reason="needs pip install 'bertflow[ray]'")
    from bertflow.integrations.ray import _packed

    for file, content in _packed(fitted(name)).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    there = BertFlow.from_pretrained(tmp_path, device="cpu")
    same(there.encode(TEXTS), fitted(name).encode(TEXTS))


# --- what fits a recipe, or judges it


@pytest.fixture(scope="module")
def scores(fitted, task):
    """Our own scores, by recipe."""
    return {name: evaluate_task(task, fitted(name).encode, "all", resamples=0).value for name in EVERY}


def test_compare(encoder, sentences, task, scores):
    result = compare_recipes(encoder, [task], EVERY, fit_on=sentences, setting="all", resamples=0)
    assert list(result.results) == EVERY
    for name, score in scores.items():
        assert result.results[name]["Made"].value == pytest.approx(score, abs=0.1)


def test_mteb(encoder, sentences, task, scores, tmp_path, monkeypatch):
    pytest.importorskip("mteb", reason="needs pip install 'bertflow[mteb]'")
    from bertflow.integrations.mteb_runs import evaluate_recipes
    from bertflow.integrations.mteb_tasks import pairs_task

    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    made = pairs_task("Made", task.subsets["all"])
    found = evaluate_recipes(encoder, [made], EVERY, fit_on=sentences)
    assert len({rows[0].model for rows in found.values()}) == len(EVERY)
    assert len({rows[0].revision for rows in found.values()}) == len(EVERY)
    for name, score in scores.items():
        assert 100 * found[name][0].score == pytest.approx(score, abs=0.1)


@every
def test_analyze_and_outliers(fitted, sentences, name):
    found = analyze(sentences[:100], model=fitted(name))
    assert (found.density is not None) == (name in FLOWS)
    odd = find_outliers([*sentences[:100], "zebra xylophone"], fitted(name), top=3)
    assert len(odd.entries) == 3


def test_judge(encoder, sentences, task):
    measured = judge(sentences, encoder, recipes=EVERY, labels=task)
    assert {option.recipe for option in measured.ranking} == {*EVERY}
    assert judge(sentences, encoder, recipes=["sn", "best"]).verdict


@pytest.mark.parametrize("name", ["flow", "best"])  # each takes seconds
def test_report(fitted, sentences, tmp_path, name):
    write_report(sentences[:120], tmp_path / "report.html", model=fitted(name))
    assert (tmp_path / "report.html").stat().st_size > 10_000


@every
def test_scikit_learn(fitted, tiny_bert, sentences, name):
    if name in FLOWS:
        pytest.skip("A flow takes its time to fit; tests/integrations/test_sklearn.py has one.")
    step = SentenceVectors(str(tiny_bert), recipe=name, device="cpu").fit(sentences)
    same(step.transform(TEXTS), fitted(name).encode(TEXTS))


@pytest.mark.parametrize("name", ["bets", "whitening-x", "best@cls", "whitening@clas", "staticc"])
def test_a_recipe_that_does_not_exist_is_refused_before_any_model_is_loaded(sentences, task, name):
    nowhere = "no/such-encoder"
    for call in (
        lambda: BertFlow.fit(sentences, nowhere, recipe=name),
        lambda: SentenceVectors(nowhere, recipe=name).fit(sentences),
        lambda: make_parts(name),
    ):
        with pytest.raises(InputError, match=r"nknown recipe|brings its own pooling|Unknown pooling|known are"):
            call()


def test_raw_is_the_encoder_s_own(fitted, encoder):
    np.testing.assert_array_equal(fitted(RAW).encode(TEXTS), encoder.encode(TEXTS))
