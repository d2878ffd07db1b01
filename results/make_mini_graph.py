"""Write the ONNX graph of the mini encoder, whose weights stay in the model.safetensors beside it.

    python results/make_mini_graph.py

Each weight of the graph is "external data": a place in model.safetensors. They are float16 there; the graph turns them into
float32, and onnxruntime does so once, when it opens the graph. To be run again whenever the mini encoder is replaced: a test
says so.
"""

from __future__ import annotations

import json
import struct
from itertools import product
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from bertflow import POOLINGS, Encoder
from bertflow.data import mini_folder
from bertflow.runtime.graph import GRAPH, SETTINGS, WEIGHTS, describe_reader
from bertflow.storage.atomic import atomic_file

FUSED = "com.microsoft"  # onnxruntime's own operators: several steps of a transformer in one
OPSET, IR_VERSION = 18, 8


class Graph:
    """An ONNX graph in the making."""

    def __init__(self, weights: Path) -> None:
        with weights.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            self.known: dict[str, Any] = json.loads(file.read(size))
        self.start = 8 + size
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; return its output's name."""
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, domain=domain, **attributes))
        return output

    def number(self, name: str, values: list[int]) -> str:
        """Add a small constant."""
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Add a weight of the safetensors file, in float32."""
        begin, end = self.known[name]["data_offsets"]
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=self.known[name]["shape"])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": WEIGHTS, "offset": self.start + begin, "length": end - begin}.items():
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        single = self.add("Cast", [name], f"{name}.float32", to=TensorProto.FLOAT)
        return self.add("Transpose", [single], f"{name}.transposed", perm=[1, 0]) if transposed else single


def build(config: dict[str, Any], weights: Path) -> Any:
    """Return the graph from (input_ids, attention_mask) to all hidden states, as a BERT computes them."""
    graph = Graph(weights)
    states = [_embed(graph, config)]
    mask = graph.add("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    for i in range(config["num_hidden_layers"]):
        states.append(_layer(graph, config, f"bert.encoder.layer.{i}", states[-1], mask, f"hidden_{i + 1}"))
    axes, width = ["batch", "tokens"], config["hidden_size"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [*axes, width]) for name in states]
    whole = helper.make_graph(graph.nodes, "mini", inputs, outputs, graph.weights)
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(whole, opset_imports=versions, ir_version=IR_VERSION)


def _embed(graph: Graph, config: dict[str, Any]) -> str:
    room = "bert.embeddings"
    words = graph.add("Gather", [graph.weight(f"{room}.word_embeddings.weight"), "input_ids"], "words")
    places = graph.weight(f"{room}.position_embeddings.weight")
    size = graph.add("Shape", ["input_ids"], "size", start=1, end=2)
    found = graph.add("Slice", [places, graph.number("zero", [0]), size], "places")
    kinds = graph.add(
        "Gather", [graph.weight(f"{room}.token_type_embeddings.weight"), graph.number("first", [0])], "kind"
    )
    both = graph.add("Add", [found, kinds], "places_and_kind")
    scale = {"epsilon": config["layer_norm_eps"], "axis": -1}
    norm = [graph.weight(f"{room}.LayerNorm.{name}") for name in ("weight", "bias")]
    return graph.add("LayerNormalization", [graph.add("Add", [words, both], "sum"), *norm], "hidden_0", **scale)


def _layer(graph: Graph, config: dict[str, Any], room: str, x: str, mask: str, output: str) -> str:
    parts = [f"{room}.attention.self.{name}" for name in ("query", "key", "value")]
    kernel = graph.add("Concat", [graph.weight(f"{p}.weight", transposed=True) for p in parts], f"{room}.qkv", axis=1)
    bias = graph.add("Concat", [graph.weight(f"{p}.bias") for p in parts], f"{room}.qkv_bias", axis=0)
    heads = {"num_heads": config["num_attention_heads"]}
    seen = graph.add("Attention", [x, kernel, bias, mask], f"{room}.seen", FUSED, **heads)
    x = _add_and_norm(graph, config, f"{room}.attention.output", seen, x, f"{room}.attended")
    dense = f"{room}.intermediate.dense"
    wide = graph.add("MatMul", [x, graph.weight(f"{dense}.weight", transposed=True)], f"{room}.wide")
    wide = graph.add("BiasGelu", [wide, graph.weight(f"{dense}.bias")], f"{room}.gelu", FUSED)
    return _add_and_norm(graph, config, f"{room}.output", wide, x, output)


def _add_and_norm(graph: Graph, config: dict[str, Any], room: str, x: str, before: str, output: str) -> str:
    wide = graph.add("MatMul", [x, graph.weight(f"{room}.dense.weight", transposed=True)], f"{room}.product")
    rest = [graph.weight(f"{room}.{name}") for name in ("LayerNorm.weight", "LayerNorm.bias", "dense.bias")]
    scale = {"epsilon": config["layer_norm_eps"]}
    return graph.add("SkipLayerNormalization", [wide, before, *rest], output, FUSED, **scale)


def fingerprints() -> list[str]:
    """Return the fingerprints of the mini encoder with every pooling."""
    encoder, found = Encoder("mini", device="cpu"), []
    for encoder.pooling, encoder.words_only in product(POOLINGS, (False, True)):
        encoder.__dict__.pop("fingerprint", None)
        found.append(encoder.fingerprint)
    return found


def main() -> None:
    """Write the graph and what is needed to read text for it."""
    folder = mini_folder()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    graph = build(config, folder / WEIGHTS)
    settings = describe_reader(Encoder("mini", device="cpu"), range(config["num_hidden_layers"] + 1))
    settings |= {"weights": WEIGHTS, "fingerprints": fingerprints()}
    with atomic_file(folder / GRAPH) as file:
        file.write_bytes(graph.SerializeToString(deterministic=True))
    with atomic_file(folder / SETTINGS) as file:
        file.write_text(
            json.dumps(settings, indent=1) + "\n",
            encoding="utf-8",
        )
    onnx.checker.check_model(str(folder / GRAPH))


if __name__ == "__main__":
    main()
