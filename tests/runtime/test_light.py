"""Without torch: the same vectors for every recipe, nothing heavy imported, nothing trusted that a stranger wrote."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bertflow
from bertflow import BertFlow, Encoder, InputError, ModelFolderError, Pooled, TokenTable, TruncationWarning, recipes
from bertflow.data import mini_folder, sample_sentences
from bertflow.encoders.base import Reading
from bertflow.encoders.pooling import POOLINGS
from bertflow.runtime import graph, light, sessions
from bertflow.runtime.graph import GraphEncoder, GraphReading
from bertflow.runtime.tokens import CLASSES

onnxruntime = pytest.mark.skipif(not sessions.has_onnxruntime(), reason="needs pip install 'bertflow[onnx]'")
EVERY = [*(name.replace("K", "4") for name in recipes()), "whitening-half@cls"]
NEEDS_TORCH = {name for name in EVERY if "prompt" in name}
TEXTS = ["the cat sat on the mat", "a red house", "tea", "a bird sings, and then?", "?!", "", "tea " * 70]
HEAVY = {"torch", "transformers", "sklearn", "scipy", "pandas", "huggingface_hub", "onnx", "sentence_transformers"}


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch):
    monkeypatch.setattr(light, "has_accelerator", lambda: False)


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def exported(encoder, tmp_path_factory):
    """The graph of the tiny BERT with all that the recipes read."""
    pytest.importorskip("onnxscript", reason="needs pip install 'bertflow[onnx]'")
    from bertflow.runtime.graph_export import graph_writer

    views = [Pooled(name).fit(encoder, ()) for name in ("first-last-avg", "last2avg", "embedding-last-avg")]
    folder = tmp_path_factory.mktemp("exported") / "graph"
    graph_writer(views)(folder)
    return folder


@pytest.fixture
def one_graph(exported, monkeypatch):
    """Export it once for all tests."""
    monkeypatch.setattr(
        "bertflow.runtime.graph_export.graph_writer", lambda views: lambda folder: shutil.copytree(exported, folder)
    )


def same(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))


@onnxruntime
@pytest.mark.filterwarnings("ignore::bertflow.TruncationWarning")
@pytest.mark.parametrize("name", sorted(set(EVERY) - NEEDS_TORCH))
def test_every_recipe_has_the_vectors_of_torch(encoder, sentences, tmp_path, one_graph, name):
    model = BertFlow.fit(sentences, encoder, recipe=name, random_state=0)
    folder = model.save_pretrained(tmp_path / "model", runtime="onnx")
    without = BertFlow.from_pretrained(folder, runtime="light")
    expected = model.encode(TEXTS)
    same(without.encode(TEXTS), expected)
    same(np.stack([without.encode(text) for text in TEXTS]), expected)
    assert (without.dim, without.recipe, without.training) == (model.dim, model.recipe, model.training)
    assert without.fingerprint == model.fingerprint
    assert without.runtime == ("onnxruntime" if any(p.view.needs_encoder for p in model.parts) else "numpy")
    assert f"runtime={without.runtime!r}" in repr(without)


@pytest.mark.parametrize("name", sorted(NEEDS_TORCH))
def test_views_that_ask_the_model_run_in_torch(encoder, sentences, tmp_path, name):
    folder = BertFlow.fit(sentences, encoder, recipe=name).save_pretrained(tmp_path / "model")
    assert BertFlow.from_pretrained(folder, device="cpu").runtime == "torch"
    with pytest.raises(InputError, match="cannot run without torch: The view Prompt needs torch"):
        BertFlow.from_pretrained(folder, runtime="light")


@onnxruntime
@pytest.mark.filterwarnings("ignore::bertflow.TruncationWarning")
def test_mini_s_graph_has_the_vectors_of_mini_for_every_pooling(mini):
    texts = [*TEXTS, "Grüße, привет, こんにちは 🙂", "[CLS] <s>", *sample_sentences()[::300]]
    wanted = [(name, words) for name in POOLINGS for words in (False, True)]
    found = GraphEncoder(mini_folder()).encode_views(texts, [GraphReading(*one) for one in wanted])
    for a, b in zip(found, mini.encode_views(texts, [Reading(*one) for one in wanted]), strict=True):
        same(a, b)


def test_mini_s_graph_knows_its_fingerprints():
    """Whoever replaces mini runs results/make_mini_graph.py again."""
    known = GraphEncoder(mini_folder()).fingerprints
    for pooling, words in (("first-last-avg", False), ("cls", True)):
        assert Encoder("mini", pooling, words_only=words, device="cpu").fingerprint in known


def test_the_two_lists_of_poolings_agree():
    builtin = {name: pooling.layers for name, pooling in POOLINGS.items() if name in graph.POOLINGS}
    assert builtin == {name: pooling.layers for name, pooling in graph.POOLINGS.items()}


@pytest.fixture
def static(encoder, sentences, tmp_path):
    return BertFlow.fit(sentences, encoder, recipe="static").save_pretrained(tmp_path / "static")


def test_parts_are_loaded_when_they_are_asked_for(static):
    model = BertFlow.from_pretrained(static)
    assert isinstance(model, BertFlow)
    vectors = model.encode(TEXTS)
    assert model.runtime == "numpy"
    model.add_result("Tea", _score())
    flow = BertFlow.from_pretrained("mini-flow", device="cpu")
    sent = pickle.loads(pickle.dumps(flow))  # noqa: S301
    same(sent.encode(TEXTS[:3]), flow.encode(TEXTS[:3]))
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        np.testing.assert_array_equal(again.encode(TEXTS), vectors)
    assert isinstance(model.parts[0].view, TokenTable)
    assert model.runtime == "torch"
    same(model.encode(TEXTS), vectors)
    assert [result["dataset"] for result in model.results] == ["Tea"]
    assert not hasattr(model, "nonsense")


def _score():
    from bertflow.evaluation.scores import Score

    return Score(61.25, 58.5, 63.75, "all", "spearman", 30, {"all": 61.25}, 0.95)


def test_a_folder_that_changed_in_the_meantime_is_told(static, encoder, sentences):
    model = BertFlow.from_pretrained(static)
    BertFlow.fit(sentences[:200], encoder, recipe="static").save_pretrained(static)
    with pytest.raises(ModelFolderError, match="has changed since the model was loaded"):
        _ = model.parts


def test_the_user_decides(static):
    assert BertFlow.from_pretrained(static, runtime="torch").runtime == "torch"
    assert BertFlow.from_pretrained(static, runtime="light").runtime == "numpy"
    with pytest.raises(InputError, match="Unknown runtime 'jax'; choose 'light' or 'torch'"):
        BertFlow.from_pretrained(static, runtime="jax")


def test_why_torch_is_needed_is_said(small_model, tmp_path, monkeypatch):
    folder = small_model.save_pretrained(tmp_path / "model")
    assert BertFlow.from_pretrained(folder, device="cpu").runtime == "torch"
    with pytest.raises(InputError, match="saved without a graph: save it with runtime='onnx'"):
        BertFlow.from_pretrained(folder, runtime="light")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match="needs onnxruntime: run  pip install"):
        BertFlow.from_pretrained("mini-flow", runtime="light")
    assert BertFlow.from_pretrained("mini-flow", device="cpu").runtime == "torch"


@onnxruntime
def test_cut_texts_are_told_as_torch_tells_them():
    model = BertFlow.from_pretrained("mini-flow", runtime="light")
    with pytest.warns(TruncationWarning, match="1 of 2 texts have more than 128 tokens; only the first 128 of each"):
        model.encode(["tea " * 200, "tea"])


@onnxruntime
def test_many_threads_give_what_one_gives(monkeypatch):
    texts, reading = sample_sentences()[:300], [GraphReading("mean")]
    encoder = GraphEncoder(mini_folder())
    (alone,) = encoder.encode_views(texts, reading)
    monkeypatch.setattr(graph, "count_threads", lambda: 3)
    same(encoder.encode_views(texts, reading)[0], alone)


def test_threads_are_those_that_are_ours(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert sessions.count_threads() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(sessions, "_CGROUP", tmp_path / "cpu.max")
    assert sessions.count_threads() == 8
    for limit, expected in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)):
        (tmp_path / "cpu.max").write_text(limit, encoding="ascii")
        assert sessions.count_threads() == expected


# --- strangers


@onnxruntime
@pytest.mark.parametrize("place", ["../../secret", "/etc/passwd", "model.safetensors/../x"])
def test_a_graph_that_reaches_outside_is_refused(tmp_path, place):
    onnx = pytest.importorskip("onnx", reason="needs pip install 'bertflow[onnx]'")
    folder = shutil.copytree(mini_folder(), tmp_path / "mini")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    model.graph.initializer[-1].external_data[0].value = place
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelFolderError, match="takes weights from another file"):
        GraphEncoder(folder).encode_views(["tea"], [GraphReading("mean")])


@onnxruntime
@pytest.mark.parametrize("damage", [lambda graph: graph[:999], lambda graph: b"", lambda graph: b"\x00" + graph])
def test_a_damaged_graph_is_refused(tmp_path, damage):
    folder = shutil.copytree(mini_folder(), tmp_path / "mini")
    (folder / "model.onnx").write_bytes(damage((folder / "model.onnx").read_bytes()))
    with pytest.raises(ModelFolderError, match=r"does not run .*model\.onnx|takes weights from another file"):
        GraphEncoder(folder).encode_views(["tea"], [GraphReading("mean")])


def test_a_graph_that_the_model_does_not_vouch_for_is_left_alone(small_model, exported, tmp_path):
    folder = small_model.save_pretrained(tmp_path / "model")
    shutil.copytree(exported, folder / "graph")
    assert BertFlow.from_pretrained(folder, device="cpu").runtime == "torch"


def test_every_table_of_tokens_has_a_form_without_torch():
    kinds = {TokenTable, *_below(TokenTable)}
    assert {kind.__name__ for kind in kinds if kind.__module__.startswith("bertflow.")} == set(CLASSES)


def _below(kind):
    return {*kind.__subclasses__(), *(deeper for below in kind.__subclasses__() for deeper in _below(below))}


# --- from outside

WATCH = """
import json, socket, sys
def refuse(*arguments, **options):
    raise OSError("no network in this test")
socket.socket.connect = refuse
sys.argv = ["bertflow", *json.loads(sys.argv[1])]
from bertflow.cli import main
try:
    main()
except SystemExit as stop:
    sys.stderr.write(f"exit {stop.code}\\n")
sys.stderr.write(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def modules_of(folder: Path, *arguments: str) -> tuple[str, set[str]]:
    """Run the command in another interpreter with an empty home; return what it prints, and what it imported."""
    home = folder / "home"
    home.mkdir()
    env = os.environ | {"PYTHONPATH": str(Path(bertflow.__file__).parents[1]), "HOME": str(home), "COLUMNS": "99"}
    env = {name: value for name, value in env.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")}
    command = [sys.executable, "-c", WATCH, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=True)
    assert list(home.iterdir()) == [], "something was written into the home folder"
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["fti"], ["similarity", "--nope"], ["recipes"]])
def test_help_and_mistakes_import_nothing_heavy(tmp_path, arguments):
    assert not modules_of(tmp_path, *arguments)[1] & {*HEAVY, "onnxruntime", "numpy"}


def test_a_static_model_needs_numpy_alone(tmp_path, static):
    printed, modules = modules_of(tmp_path, "similarity", "-m", str(static), "the cat", "a dog")
    assert -1 <= float(printed) <= 1
    assert not modules & {*HEAVY, "onnxruntime"}


@onnxruntime
@pytest.mark.skipif(not Path("/dev").is_dir() or light.has_accelerator(), reason="torch runs on the GPU here")
def test_mini_flow_needs_onnxruntime_and_writes_nothing_at_home(tmp_path):
    (tmp_path / "texts.txt").write_text("A man is eating.\nSomeone has lunch.\n", encoding="utf-8")
    modules = modules_of(tmp_path, "embed", "texts.txt", "-m", "mini-flow", "-o", "vectors.npy")[1]
    assert "onnxruntime" in modules
    assert not modules & HEAVY
    assert np.load(tmp_path / "vectors.npy").shape == (2, 256)


# --- on the command line


@onnxruntime
def test_fit_puts_the_graph_beside_the_model_and_info_tells(run, tmp_path, tiny_bert, sentences, one_graph):
    (tmp_path / "texts.txt").write_text("\n".join(sentences), encoding="utf-8")
    options = ["--encoder", tiny_bert, "--recipe", "whitening", "--runtime", "onnx", "--quiet"]
    assert run("fit", tmp_path / "texts.txt", "--output", tmp_path / "model", *options)[0] == 0
    assert json.loads(run("info", tmp_path / "model", "--json")[1])["runtime"] == "onnxruntime"
    assert "onnxruntime" in run("info", tmp_path / "model")[1]
    code, _, said = run("fit", tmp_path / "texts.txt", "--output", tmp_path / "other", "--runtime", "jax")
    assert (code, said) == (1, "bertflow: --runtime is onnx, or left out; it was 'jax'.\n")
