"""An ONNX graph with integer weights, rewritten with float ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

INTEGERS, SCALE, ZERO = (
    "_quantized",
    "_scale",
    "_zero_point",
)  # what onnxruntime's quantisation appends to a weight's name
TYPES = (TensorProto.INT8, TensorProto.UINT8)


def float_graph(model: ModelProto) -> ModelProto:
    """Return a copy of a dynamically quantised model that computes the same in float32, without any rounding.

    Integers become the real numbers that they stand for, and all scales become 1: a weight is multiplied by its own,
    activations are not quantised at all. What then multiplies by scales multiplies by 1.

    Args:
        model: As ``onnxruntime.quantization.quantize_dynamic`` writes it. One without integers stays as it is.
    """
    new = ModelProto()
    new.CopyFrom(model)
    graph = new.graph
    dequantise_weights(graph)
    nodes = [replacement for node in graph.node for replacement in in_floats(node)]
    del graph.node[:]
    graph.node.extend(nodes)
    return new


def dequantise_weights(graph: GraphProto) -> None:
    """Turn each integer initialiser into floats, in place, and its scale into 1."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for name, tensor in tensors.items():
        weight = name.removesuffix(INTEGERS)
        if not name.endswith(INTEGERS) or tensor.data_type not in TYPES or weight + SCALE not in tensors:
            continue
        scale, zero = (numpy_helper.to_array(tensors[weight + end]) for end in (SCALE, ZERO))
        values = dequantised(numpy_helper.to_array(tensor), scale, zero)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
        tensors[weight + SCALE].CopyFrom(numpy_helper.from_array(np.ones_like(scale), weight + SCALE))
        graph.initializer.remove(tensors[weight + ZERO])


def dequantised(integers: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Return ``(integers - zero) * scale`` in float32.

    Args:
        integers: Of shape (n, d).
        scale: One for all, or one for each of the d columns.
        zero: The integer that stands for 0, of the same shape.
    """
    return (integers.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale.astype(np.float32)


def in_floats(node: NodeProto) -> Iterator[NodeProto]:
    """Yield what stands for a node of integer arithmetic; other nodes as they are."""
    name, inputs, outputs = node.name, list(node.input), list(node.output)
    if node.op_type == "DynamicQuantizeLinear":
        one = numpy_helper.from_array(np.ones((), np.float32))
        yield helper.make_node("Identity", inputs, outputs[:1], name)
        yield helper.make_node("Constant", [], outputs[1:2], f"{name}{SCALE}", value=one)
    elif node.op_type == "MatMulInteger":
        yield helper.make_node("MatMul", inputs[:2], outputs, name)
    elif node.op_type == "DequantizeLinear":
        yield helper.make_node("Mul", inputs[:2], outputs, name)
    else:
        yield node
