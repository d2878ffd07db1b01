import copy
import json
import os
import shutil
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import bertflow
from bertflow import (
    POOLINGS,
    BertFlow,
    Encoder,
    FlowCalibrator,
    Identity,
    InputError,
    MissingExtraError,
    ModelFolderError,
    Part,
    Pooled,
    Standardize,
    TokenTable,
    Whitening,
)
from bertflow.calibrators.base import Calibrator
from bertflow.data import sample_sentences
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.recipes import make_parts

st = pytest.importorskip("sentence_transformers", reason="pip install 'bertflow[sentence-transformers]'")

from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer  # noqa: E402

from bertflow.integrations.sentence_transformers import (  # noqa: E402
    FlowModule,
    attach,
    to_sentence_transformer,
)

OLD = Path(__file__).parents[1] / "fixtures" / "version-0.1"
AFFINE = ["raw", "sn", "natsv-2", "sn+natsv-2", "whitening", "whitening-5"]
TEXTS = ["the cat sat on the mat", "a red house", "", " a bird sings  and then", "tea " * 90, "zebra ünïcode 😀"]


@pytest.fixture(autouse=True)
def quiet():
    """The library's own bars and reports, on saving and loading, are not what is looked at here."""
    with quiet_transformers():
        yield


@pytest.fixture(scope="module")
def tiny_flow(small_model) -> BertFlow:
    return small_model


@pytest.fixture(scope="module")
def encoder(tiny_bert) -> Encoder:
    return Encoder(tiny_bert, "mean", device="cpu")


@pytest.fixture(scope="module")
def vectors(encoder, sentences) -> np.ndarray:
    return encoder.encode(sentences)


@pytest.fixture
def stock(tiny_bert):
    """A SentenceTransformer as anyone has it: a transformer and the mean."""
    return st.SentenceTransformer(modules=[Transformer(str(tiny_bert)), Pooling(16, "mean")], device="cpu")


def make(name: str) -> Calibrator:
    calibrator = make_parts(name)[0].calibrator
    return calibrator.set_params(epochs=1, device="cpu") if name == "flow" else calibrator


def encoded(model: BertFlow) -> np.ndarray:
    with pytest.warns(bertflow.TruncationWarning):
        return model.encode(TEXTS)


def load(folder: Path, **options):
    return st.SentenceTransformer(str(folder), device="cpu", local_files_only=True, **options)


def flow_weights(model) -> dict[str, torch.Tensor]:
    return {name: value.cpu() for name, value in model[-1].flow.state_dict().items()}


def assert_same_flow(model, other):
    theirs = flow_weights(other)
    for name, value in flow_weights(model).items():
        assert value.dtype == theirs[name].dtype
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=0)


@pytest.mark.parametrize("name", [*AFFINE, "flow"])
def test_vectors_survive_export_save_load_and_saving_again(encoder, vectors, tmp_path, name):
    model = BertFlow(encoder, make(name).fit(vectors))
    exported = to_sentence_transformer(model)
    np.testing.assert_allclose(exported.encode(TEXTS), encoded(model), atol=1e-5)
    assert exported.get_embedding_dimension() == model.dim
    flag = {"trust_remote_code": True} if name == "flow" else {}
    for number in range(2):
        exported.save_pretrained(str(tmp_path / str(number)))
        loaded = load(tmp_path / str(number), **flag)
        np.testing.assert_array_equal(loaded.encode(TEXTS), exported.encode(TEXTS))
        assert loaded.get_embedding_dimension() == model.dim
        assert loaded.similarity_fn_name == "cosine"
        exported = loaded


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_made_of_stock_modules(tiny_bert, sentences, tmp_path, pooling):
    encoder = Encoder(tiny_bert, pooling, device="cpu")
    model = BertFlow(encoder, Identity().fit(encoder.encode(sentences)))
    to_sentence_transformer(model).save_pretrained(str(tmp_path / "model"))
    types = [module["type"] for module in json.loads((tmp_path / "model" / "modules.json").read_text())]
    assert all(kind.startswith("sentence_transformers.") for kind in types)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "trust_remote_code" not in card
    assert ("Encode in one process" in card) == (len(POOLINGS[pooling].layers) > 1)
    np.testing.assert_allclose(load(tmp_path / "model").encode(TEXTS), encoded(model), atol=1e-5)


@pytest.mark.parametrize("kind", ["distilbert", "roberta", "gpt2", "t5"])
def test_other_families(tiny, kind):
    encoder = Encoder(tiny(kind), device="cpu", max_length=20)
    texts = [text for text in TEXTS if text]  # GPT-2 has no token for an empty one
    model = BertFlow(encoder, Identity().fit(np.random.default_rng(0).normal(size=(5, 16))))
    with pytest.warns(bertflow.TruncationWarning):
        expected = model.encode(texts)
    np.testing.assert_allclose(to_sentence_transformer(model).encode(texts), expected, atol=1e-5)


def test_affine_exports_load_without_bertflow(encoder, vectors, tmp_path):
    expected = {}
    for name in AFFINE:
        model = BertFlow(encoder, make(name).fit(vectors))
        to_sentence_transformer(model).save_pretrained(str(tmp_path / name))
        expected[name] = encoded(model)
    code = f"""
import sys
sys.modules["bertflow"] = None  # from now on its import fails
try:
    import bertflow
except ImportError:
    pass
else:
    raise SystemExit("bertflow could be imported")
import numpy as np
from sentence_transformers import SentenceTransformer
for name in {AFFINE!r}:
    model = SentenceTransformer({str(tmp_path)!r} + "/" + name, device="cpu", local_files_only=True)
    np.save({str(tmp_path)!r} + f"/{{name}}.npy", model.encode({TEXTS!r}))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert "MISSING" not in result.stderr
    for name in AFFINE:
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected[name], atol=1e-5)


def test_a_flow_is_loaded_with_the_flag_only_and_the_card_says_so(tiny_flow, tmp_path):
    to_sentence_transformer(tiny_flow).save_pretrained(str(tmp_path))
    (module,) = [entry for entry in json.loads((tmp_path / "modules.json").read_text()) if "bertflow" in entry["type"]]
    assert module["type"] == "bertflow.integrations.sentence_transformers.FlowModule"
    assert module["path"] == "3_FlowModule"
    with pytest.raises(ValueError, match="trust_remote_code"):
        load(tmp_path)
    loaded = load(tmp_path, trust_remote_code=True)
    attach(loaded, Standardize().fit(loaded.encode(TEXTS))).save_pretrained(str(tmp_path / "stacked"))
    assert "trust_remote_code=True" in (tmp_path / "stacked" / "README.md").read_text()
    card = (tmp_path / "README.md").read_text()
    assert "trust_remote_code=True" in card
    assert "pip install sentence-transformers bertflow" in card
    assert str(tmp_path.parent) not in card


def test_the_mini_encoder_cuts_long_texts_where_we_cut_them(mini, tmp_path):
    lines = sample_sentences()[:300]
    model = BertFlow(mini, FlowCalibrator(epochs=1, random_state=0, device="cpu").fit(mini.encode(lines)))
    texts = [*lines[:20], " ".join(lines)]
    with pytest.warns(bertflow.TruncationWarning):
        expected = model.encode(texts)
    to_sentence_transformer(model).save_pretrained(str(tmp_path))
    loaded = load(tmp_path, trust_remote_code=True)
    assert loaded.max_seq_length == mini.max_length
    np.testing.assert_allclose(loaded.encode(texts), expected, atol=1e-5)


def test_encode_has_all_its_options(tiny_flow, tmp_path):
    expected = encoded(tiny_flow)
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    model = to_sentence_transformer(tiny_flow)
    for batch_size in (1, 2, 100):
        np.testing.assert_allclose(model.encode(TEXTS, batch_size=batch_size), expected, atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS, normalize_embeddings=True), units, atol=1e-5)
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    assert tensor.dtype == torch.float32
    torch.testing.assert_close(tensor, torch.tensor(expected), rtol=0, atol=1e-5)
    one = model.encode(TEXTS[0])
    assert one.shape == (16,)
    np.testing.assert_allclose(one, expected[0], atol=1e-5)
    assert model.encode(TEXTS, truncate_dim=4).shape == (len(TEXTS), 4)
    torch.testing.assert_close(model.similarity(expected, expected), torch.tensor(units @ units.T), rtol=0, atol=1e-5)


def test_encoding_in_two_processes(tiny_flow, sentences, tmp_path):
    to_sentence_transformer(tiny_flow).save_pretrained(str(tmp_path))
    model = load(tmp_path, trust_remote_code=True)
    model.encode(sentences[:2])  # leaves hooks behind that cannot be pickled
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    try:
        found = model.encode(sentences, pool=pool, chunk_size=100)
    finally:
        model.stop_multi_process_pool(pool)
    np.testing.assert_allclose(found, tiny_flow.encode(sentences), atol=1e-5)
    np.testing.assert_allclose(model.encode(sentences), found, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_hidden_states_survive_the_way_to_another_process(tiny, kind, monkeypatch):
    encoder = Encoder(tiny(kind), device="cpu")
    model = to_sentence_transformer(BertFlow(encoder, Identity().fit(np.eye(16))))
    expected = model.encode(TEXTS)
    pickled = ForkingPickler.dumps(model.to("cpu"))
    known = pytest.importorskip("transformers.utils.output_capturing")._CAN_RECORD_REGISTRY
    for name in list(known):  # as it is there
        monkeypatch.delitem(known, name)
    arrived = ForkingPickler.loads(pickled)
    np.testing.assert_array_equal(arrived.encode(TEXTS), expected)
    np.testing.assert_array_equal(arrived.to("cpu").encode(TEXTS), expected)


def test_without_hidden_states_a_model_stops_rather_than_err(tiny_bert, vectors):
    exported = to_sentence_transformer(BertFlow(Encoder(tiny_bert, device="cpu"), Whitening().fit(vectors)))
    exported.config.output_hidden_states = False  # as it is for a stock model in another process
    with pytest.raises(KeyError, match="token_embeddings"):
        exported.encode(TEXTS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_moves_to_a_gpu_and_back(tiny_flow):
    model = to_sentence_transformer(tiny_flow)
    expected = model.encode(TEXTS)
    model.to("cuda")
    assert {value.device.type for value in model[-1].state_dict().values()} == {"cuda"}
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-4)
    np.testing.assert_allclose(model.to("cpu").encode(TEXTS), expected, atol=1e-5)


def test_it_moves_to_another_device_with_its_dtype(tiny_flow):
    model = to_sentence_transformer(tiny_flow).to("meta", torch.bfloat16)
    assert {(value.device.type, value.dtype) for value in model[-1].flow.parameters()} == {("meta", torch.float32)}
    assert {value.device.type for value in model[-1].flow.buffers()} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device_map", [None, "cpu"])
def test_the_flow_stays_float32_under_a_half_backbone(tiny_flow, tmp_path, dtype, device_map):
    if device_map:
        pytest.importorskip("accelerate", reason="a device_map needs it: pip install accelerate")
    exported = to_sentence_transformer(tiny_flow)
    exported.save_pretrained(str(tmp_path / "one"))
    options = {"dtype": dtype, **({"device_map": device_map} if device_map else {})}
    half = st.SentenceTransformer(
        str(tmp_path / "one"),
        model_kwargs=options,
        trust_remote_code=True,
        local_files_only=True,
        **({} if device_map else {"device": "cpu"}),
    )
    found = half.encode(TEXTS, convert_to_tensor=True)  # where a device_map rules, this casts once more
    assert half.dtype == dtype
    assert found.dtype == torch.float32
    assert_same_flow(half, exported)
    assert_same_flow(half.half().to(torch.bfloat16).float(), exported)
    half.save_pretrained(str(tmp_path / "two"))
    assert_same_flow(load(tmp_path / "two", trust_remote_code=True), exported)


def test_the_flow_computes_in_float32_for_half_vectors_and_under_autocast(tiny_flow):
    module = FlowModule(tiny_flow.calibrator)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = tiny_flow.calibrator.transform(x.float().numpy())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        latents = module({"sentence_embedding": x})["sentence_embedding"]
    np.testing.assert_allclose(latents.numpy(), expected, atol=1e-5, rtol=1e-5)


def test_the_flow_is_fixed_but_gradients_pass(tiny_flow):
    model = to_sentence_transformer(tiny_flow)
    assert not [name for name, _ in model.named_parameters() if name.startswith("3.")]
    assert any(name.startswith("3.flow.") for name in model.state_dict())
    model(model.preprocess(TEXTS[:2]))["sentence_embedding"].square().sum().backward()
    assert model[0].model.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_a_flow_fitted_in_float64_stays_so(stock, vectors, tmp_path):
    calibrator = FlowCalibrator(epochs=1, random_state=0, device="cpu").fit(vectors.astype(np.float64))
    attach(stock, calibrator).save_pretrained(str(tmp_path))
    loaded = load(tmp_path, trust_remote_code=True)
    assert next(loaded[-1].flow.parameters()).dtype == torch.float64
    found = loaded.encode(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, calibrator.transform(stock.encode(TEXTS)), atol=1e-5)


@pytest.mark.parametrize("name", ["whitening-5", "flow"])
@pytest.mark.parametrize("last", ["Pooling", "Normalize", "truncated", "prompted"])
def test_attach_does_what_bertflow_does(stock, sentences, tmp_path, name, last):
    if last == "Normalize":
        stock.append(Normalize())
    if last == "truncated":
        stock.truncate_dim = 10
    if last == "prompted":
        stock.prompts = {"query": "the red bird ", "document": ""}
        stock.default_prompt_name = "query"
    stock.similarity_fn_name = "dot"
    before, modules = stock.encode(TEXTS), len(stock)
    model = BertFlow.fit(sentences, encoder=stock, calibrator=make(name))
    attached = attach(stock, model.calibrator)
    np.testing.assert_allclose(attached.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert attached.similarity_fn_name == "cosine"
    assert attached.get_embedding_dimension() == model.dim == attached.encode(TEXTS).shape[1]
    assert attached.prompts == stock.prompts
    assert (len(stock), stock.similarity_fn_name) == (modules, "dot")
    np.testing.assert_array_equal(stock.encode(TEXTS), before)
    attached.save_pretrained(str(tmp_path))
    loaded = load(tmp_path, trust_remote_code=True)
    np.testing.assert_array_equal(loaded.encode(TEXTS), attached.encode(TEXTS))
    assert loaded.prompts == stock.prompts


def test_attach_takes_a_bertflow_and_copies_its_flow(stock, sentences):
    model = BertFlow.fit(sentences, encoder=stock, calibrator=FlowCalibrator(epochs=1, device="cpu"))
    weights = copy.deepcopy(model.calibrator.flow_.state_dict())
    attached = bertflow.attach(stock, model)
    attached.to("meta")
    for name, value in model.calibrator.flow_.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=0)
    assert isinstance(attached[-1], FlowModule)


def test_no_warning_where_another_loader_gives_the_same_vectors(stock, encoder, vectors, recwarn):
    attached = attach(stock, BertFlow(encoder, Whitening().fit(vectors)))
    assert isinstance(attached[-1], Dense)
    assert not recwarn.list


@pytest.mark.parametrize("pooling", ["cls", "first-last-avg", "embedding-last-avg"])
def test_another_encoder_is_warned_of_by_both_names(stock, tiny_bert, sentences, pooling):
    encoder = Encoder(tiny_bert, pooling, device="cpu")
    encoder.name = "the-other-one"
    model = BertFlow(encoder, Standardize().fit(encoder.encode(sentences)))
    with pytest.warns(UserWarning, match=f"'the-other-one'; '{tiny_bert}' gives other vectors"):
        attach(stock, model)


def test_the_whole_circle(tiny_flow, sentences, tmp_path):
    """Export, load, fit on its backbone, save, load, export."""
    to_sentence_transformer(tiny_flow).save_pretrained(str(tmp_path / "exported"))
    backbone = load(tmp_path / "exported", trust_remote_code=True)
    del backbone[-1]
    np.testing.assert_allclose(backbone.encode(sentences), tiny_flow.encoder.encode(sentences), atol=1e-5)
    backbone.save_pretrained(str(tmp_path / "backbone"))
    model = BertFlow.fit(sentences, encoder=load(tmp_path / "backbone"), calibrator=Whitening(5))
    model.save_pretrained(tmp_path / "model", bundle_encoder=True)
    again = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.encode(sentences), model.encode(sentences), atol=1e-6)
    final = to_sentence_transformer(again)
    final.save_pretrained(str(tmp_path / "final"))
    np.testing.assert_allclose(load(tmp_path / "final").encode(sentences), model.encode(sentences), atol=1e-5)
    stacked = BertFlow.fit(sentences, encoder=final, calibrator=Standardize())
    np.testing.assert_allclose(attach(final, stacked).encode(sentences), stacked.encode(sentences), atol=1e-5)


def test_a_saved_model_whose_encoder_has_gone_is_exported_from_memory(tiny_flow, tmp_path):
    tiny_flow.save_pretrained(tmp_path / "model", bundle_encoder=True)
    loaded = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    loaded.encoder.name = "someone/gone"
    exported = to_sentence_transformer(loaded)
    np.testing.assert_allclose(exported.encode(TEXTS), encoded(tiny_flow), atol=1e-5)
    assert exported.config._name_or_path == "someone/gone"


def test_export_is_repeatable_quiet_and_leaves_the_generator_alone(encoder, vectors, capfd):
    model = BertFlow(encoder, Whitening().fit(vectors))
    state = torch.random.get_rng_state()
    first, second = to_sentence_transformer(model), to_sentence_transformer(model)
    assert torch.equal(torch.random.get_rng_state(), state)
    others = second.state_dict()
    assert all(torch.equal(value, others[name]) for name, value in first.state_dict().items())
    assert capfd.readouterr() == ("", "")


def test_what_is_not_a_model_or_a_calibrator_is_refused(stock, vectors):
    with pytest.raises(InputError, match="loaded SentenceTransformer; got str"):
        attach("some-model", Whitening().fit(vectors))
    with pytest.raises(InputError, match="a fitted calibrator or a BertFlow; got str"):
        attach(stock, "whitening")
    with pytest.raises(NotFittedError, match="Whitening instance is not fitted yet"):
        attach(stock, Whitening())
    with pytest.raises(InputError, match=r"fitted on 12 dimensions, but the model '.*' gives 16: they do not belong"):
        attach(stock, Whitening().fit(vectors[:, :12]))

    class _Own(Calibrator):
        def fit(self, x, y=None):
            self.n_features_in_ = x.shape[1]
            return self

    with pytest.raises(InputError, match="_Own is neither affine nor a flow"):
        attach(stock, _Own().fit(vectors))


def test_word_vectors_are_refused(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("boat 1 2 3\nharbour 3 1 2\nsea 2 2 9\n")
    model = BertFlow(path, Identity().fit(np.eye(3)))
    with pytest.raises(InputError, match="'words' is a AveragedWordVectors; only a transformer"):
        to_sentence_transformer(model)


@pytest.mark.parametrize("recipe", ["static", "static-5"])
def test_a_table_of_tokens_is_a_stock_one(tiny_bert, sentences, tmp_path, recipe):
    model = BertFlow.fit(sentences, tiny_bert, recipe=recipe, device="cpu")
    to_sentence_transformer(model).save_pretrained(str(tmp_path))
    types = [module["type"].rpartition(".")[2] for module in json.loads((tmp_path / "modules.json").read_text())]
    assert types == ["StaticEmbedding", "Normalize"]
    assert "trust_remote_code" not in (tmp_path / "README.md").read_text()
    texts = ["the cat sat on a mat, red and blue!", "tea", "?!", *sentences[:50]]
    np.testing.assert_allclose(load(tmp_path).encode(texts), model.encode(texts, normalize_embeddings=True), atol=1e-5)
    assert not load(tmp_path).encode("").any()


def parts(name: str) -> list[Part]:
    """Models of several views, or of one that stock modules do not know."""
    flow = FlowCalibrator(epochs=1, random_state=0, device="cpu")
    words = Pooled("first-last-avg", words_only=True)
    return {
        "best of 0.1": [Part(TokenTable(), Whitening(shrinkage=0.5)), Part(words, flow)],
        "affine": [Part(TokenTable(), Whitening(8, alpha=0.75), weight=None), Part(words, Whitening(alpha=0.5))],
        "poolings": [Part(Pooled("cls"), Standardize()), Part(Pooled("last2avg"), Whitening(4)), Part(words, flow)],
        "last layer": [Part(TokenTable(), Identity()), Part(Pooled("mean", words_only=True), Identity())],
        "words alone": [Part(words, Standardize())],
        "table with a flow": [Part(TokenTable(32), flow)],
    }[name]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize(
    "name", ["best of 0.1", "affine", "poolings", "last layer", "words alone", "table with a flow"]
)
def test_parts_side_by_side_encode_the_same(tiny, family, name, sentences, tmp_path):
    sentences = [" ".join(text.split()[:4]) for text in sentences]  # few enough tokens for all of them
    model = BertFlow.fit(sentences, tiny(family), parts=parts(name), device="cpu")
    exported = to_sentence_transformer(model)
    texts = ["the cat, red and blue!", "tea", "?!", *sentences[:50]]
    if family != "gpt2":  # which has no token at all for an empty text
        texts.append("")
    expected = model.encode(texts)
    np.testing.assert_allclose(exported.encode(texts), expected, atol=1e-5 * max(1, np.abs(expected).max()))
    assert exported.get_embedding_dimension() == model.dim
    exported.save_pretrained(str(tmp_path))
    card = (tmp_path / "README.md").read_text()
    assert "trust_remote_code=True" in card
    assert " beside ".join(type(part.calibrator).__name__ for part in model.parts) in card
    again = load(tmp_path, trust_remote_code=True)
    np.testing.assert_array_equal(again.encode(texts), exported.encode(texts))
    before = {key: value.clone() for key, value in exported[-1].state_dict().items()}
    for key, value in again.half()[-1].state_dict().items():
        assert torch.equal(value, before[key])


def test_a_model_of_several_parts_in_a_pool_of_processes(tiny_bert, sentences):
    exported = to_sentence_transformer(BertFlow.fit(sentences, tiny_bert, parts=parts("poolings"), device="cpu"))
    expected = exported.encode(TEXTS)
    arrived = ForkingPickler.loads(ForkingPickler.dumps(exported.to("cpu")))
    np.testing.assert_array_equal(arrived.encode(TEXTS), expected)


def test_several_parts_on_a_sentence_transformer(stock, sentences, tmp_path):
    model = BertFlow.fit(sentences, stock, parts=[Part(Pooled(), Standardize()), Part(Pooled(), Whitening(3))])
    exported = to_sentence_transformer(model)
    np.testing.assert_allclose(exported.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    exported.save_pretrained(str(tmp_path))
    np.testing.assert_array_equal(load(tmp_path, trust_remote_code=True).encode(TEXTS), exported.encode(TEXTS))
    with pytest.raises(InputError, match=r"has 2 parts, and one calibrator is attached: to_sentence_transformer"):
        attach(stock, model)


def test_a_static_model_is_exported_without_its_encoder(tiny_bert, sentences, tmp_path):
    copied = shutil.copytree(tiny_bert, tmp_path / "bert")
    model = BertFlow.fit(sentences, copied, recipe="static", device="cpu")
    model.save_pretrained(tmp_path / "model")
    shutil.rmtree(copied)
    exported = to_sentence_transformer(BertFlow.from_pretrained(tmp_path / "model", device="cpu"))
    np.testing.assert_allclose(
        exported.encode(sentences[:9]), model.encode(sentences[:9], normalize_embeddings=True), atol=1e-5
    )


def test_best_that_version_0_1_exported_still_loads(tmp_path):
    texts = json.loads((OLD / "texts.json").read_text())
    expected = np.load(OLD / "vectors.npz")["best"]
    old = load(OLD / "best-as-sentence-transformer", trust_remote_code=True)
    np.testing.assert_allclose(old.encode(texts), expected, atol=1e-5)
    old.save_pretrained(str(tmp_path))
    np.testing.assert_array_equal(load(tmp_path, trust_remote_code=True).encode(texts), old.encode(texts))
    now = to_sentence_transformer(BertFlow.from_pretrained(OLD / "best", device="cpu"))
    np.testing.assert_allclose(now.encode(texts), expected, atol=1e-5)


def test_an_encoder_that_stock_modules_cannot_express_is_refused(encoder, vectors, monkeypatch):
    monkeypatch.setattr(encoder.model.config, "num_hidden_layers", 3)
    monkeypatch.setattr(encoder, "pooling", "last2avg")
    with pytest.raises(InputError, match="give other vectors than the encoder"):
        to_sentence_transformer(BertFlow(encoder, Identity().fit(vectors)))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_without_our_files_is_refused(tiny_flow, tmp_path, name):
    to_sentence_transformer(tiny_flow).save_pretrained(str(tmp_path))
    (tmp_path / "3_FlowModule" / name).unlink()
    with pytest.raises(ModelFolderError, match=f"3_FlowModule has no {name}, so there is no FlowModule"):
        load(tmp_path, trust_remote_code=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "newer version: run  pip install --upgrade bertflow"),
        ({"n_features_in": 17}, "has shape"),
        ({"class": "Unheard"}, "Unknown calibrator 'Unheard'"),
        ({"params": {"petals": 5}}, "not what this version wrote"),
    ],
)
def test_a_damaged_or_newer_flow_is_named(tiny_flow, tmp_path, change, message):
    FlowModule(tiny_flow.calibrator).save(str(tmp_path))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelFolderError, match=message):
        FlowModule.load(str(tmp_path))
    path.write_text("{")
    with pytest.raises(ModelFolderError, match="cannot be loaded"):
        FlowModule.load(str(tmp_path))


def test_an_exported_folder_is_not_taken_for_a_bertflow_model(tiny_flow, tmp_path):
    to_sentence_transformer(tiny_flow).save_pretrained(str(tmp_path))
    with pytest.raises(ModelFolderError, match="was not written by bertflow but by bert"):
        BertFlow.from_pretrained(tmp_path)


def test_without_the_library_the_pip_line_is_named(vectors, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bertflow\[sentence-transformers\]'"):
        bertflow.attach(None, Whitening().fit(vectors))
