"""A BERT that was exported to ONNX, back in a folder of transformers, and checked against onnxruntime."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import ModelProto, NodeProto, numpy_helper
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertConfig, BertModel

from bertflow.errors import BertflowError

from .float_graph import float_graph

SIZES = [
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "initializer_range", "pad_token_id"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob"),
]
CLOSE = 1e-3  # two computations of the same BERT in float32 are about 1e-5 apart
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


class Check(NamedTuple):
    """How far a folder is from its graph: the largest relative difference of a token's vector, in any layer.

    Args:
        exact: From the graph with float weights and no rounding.
        rounded: From the graph as it came, which rounds each activation if it is quantised.
        layers: How many layers were compared, with the embeddings.
        texts: On how many texts.
    """

    exact: float
    rounded: float
    layers: int
    texts: int

    def __str__(self) -> str:
        said = f"largest relative difference to onnxruntime {self.exact:.1e} ({self.layers} layers, {self.texts} texts)"
        if self.rounded > CLOSE:
            said += f"; the graph as it came rounds its activations to 8 bits and is {self.rounded:.1e} away"
        return said


def convert(source: Path, target: Path, texts: list[str], graph: str = "*.onnx") -> Check:
    """Write a folder of transformers in float32 from an exported BERT.

    Args:
        source: The folder with ``config.json``, the tokenizer's files and the graph.
        target: The new folder.
        texts: Sentences to compare on.
        graph: The graph's file below ``source``.

    Raises:
        BertflowError: When the graph is not the BERT that its configuration says, or when the folder's vectors are not the
            graph's.
    """
    (file,) = source.rglob(graph)
    original = onnx.load(file)
    plain = float_graph(original)
    write(source, target, weights(plain))
    check_tokenizer(source, target, texts)
    check = compare(target, original, plain, texts)
    if not check.exact <= CLOSE:
        raise BertflowError(f"What was made of {file.name} is not what the graph computes: {check}.")
    return check


def write(source: Path, target: Path, state: dict[str, torch.Tensor]) -> None:
    """Save weights, configuration and tokenizer."""
    said = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if said["model_type"] != "bert" or said.get("position_embedding_type", "absolute") != "absolute":
        raise BertflowError(f"The graph is said to be a {said['model_type']!r}, and only BERT is understood here.")
    model = BertModel(BertConfig(**{size: said[size] for size in SIZES if size in said}), add_pooling_layer=False)
    unknown, lacking = set(state) - set(model.state_dict()), set(model.state_dict()) - set(state)
    if lacking:
        raise BertflowError(f"The graph lacks {len(lacking)} of BERT's weights, such as {min(lacking)!r}.")
    model.load_state_dict({name: tensor for name, tensor in state.items() if name not in unknown})
    model.save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    tokenizer.backend_tokenizer.no_truncation()  # left from the export, with a length
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(target)


def check_tokenizer(source: Path, target: Path, texts: list[str]) -> None:
    """Refuse a tokenizer that does not read texts as the one that came with the graph."""
    theirs = Tokenizer.from_file(str(source / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    ours = AutoTokenizer.from_pretrained(target, trust_remote_code=False)
    for text in texts:
        if ours(text)["input_ids"] != theirs.encode(text).ids:
            raise BertflowError(f"The folder's tokenizer reads {text!r} in another way than the one of the export.")


def weights(model: ModelProto) -> dict[str, torch.Tensor]:
    """Return a float graph's weights under the names of ``BertModel``.

    Embeddings, biases and layer norms have kept their names. A product's weight has lost its own, so the name of the node
    that multiplies by it says where it belongs; there it is (inputs, outputs), in transformers (outputs, inputs).
    """
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    state = {}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in tensors:
            module = node.name.rpartition("/")[0].strip("/").replace("/", ".")
            state[f"{module}.weight"] = numpy_helper.to_array(tensors[node.input[1]]).T
    for name, tensor in tensors.items():
        if tensor.data_type == onnx.TensorProto.FLOAT:
            state[name.removesuffix("_quantized")] = numpy_helper.to_array(tensor)
    return {name.removeprefix("bert."): torch.from_numpy(value.copy()) for name, value in state.items()}


def compare(folder: Path, original: ModelProto, plain: ModelProto, texts: list[str]) -> Check:
    """Run a folder and two graphs over texts, one by one, and compare the vectors of all tokens in all layers."""
    model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    sessions = [session(graph) for graph in (plain, original)]
    apart = []
    for text in texts:
        ids = np.array([tokenizer.encode(text).ids])
        feed = dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
        with torch.inference_mode():
            given = {name: torch.from_numpy(value) for name, value in feed.items()}
            ours = np.stack([layer.numpy() for layer in model(**given, output_hidden_states=True).hidden_states])
        apart.append([relative(ours, np.stack(each.run(hidden_names(plain), feed))) for each in sessions])
    exact, rounded = np.max(apart, axis=0)
    return Check(float(exact), float(rounded), len(ours), len(texts))


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest distance of two vectors, as a share of the second's length.

    Args:
        ours: Vectors of shape (…, d).
        theirs: Of the same shape.
    """
    return float((np.linalg.norm(ours - theirs, axis=-1) / np.linalg.norm(theirs, axis=-1)).max())


def session(model: ModelProto) -> Any:
    """Open a graph in onnxruntime, with every layer's hidden states as its outputs."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it is read at the import
    import onnxruntime

    graph = ModelProto()
    graph.CopyFrom(model)
    del graph.graph.output[:]
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in hidden_names(model))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def hidden_names(model: ModelProto) -> list[str]:
    """Return the names of the hidden states in a graph: what comes out where a layer's last bias goes in."""
    last: dict[int, str] = {}
    for node in model.graph.node:
        number = layer_ended(node)
        if number is not None:
            last[number] = node.output[0]
    return [last[number] for number in sorted(last)]


def layer_ended(node: NodeProto) -> int | None:
    """Return which layer a node is the end of: 0 for the embeddings, then from 1; or None."""
    for name in node.input:
        path = name.removeprefix("bert.").split(".")
        if path == ["embeddings", "LayerNorm", "bias"]:
            return 0
        if path[:2] == ["encoder", "layer"] and path[3:] == ["output", "LayerNorm", "bias"]:
            return int(path[2]) + 1
    return None
