"""From torch to ONNX: any module, made with torch's exporter made quiet, and a transformer's hidden states beside a model."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertflow.data import sample_sentences
from bertflow.errors import InputError, TruncationWarning, require
from bertflow.runtime.graph import GRAPH, POOLINGS, SETTINGS, TOKENIZER, GraphEncoder, GraphReading, describe_reader
from bertflow.runtime.sessions import import_onnxruntime

OPSET, IR_VERSION = 18, 8  # old enough for onnxruntime 1.16, which was tried
ONE_FILE = 2_000_000_000  # bytes of weights that fit into one file; protobuf ends at 2 GiB
HEAD = "calibrator/"  # how the names of the calibrator's nodes begin
TOLERANCE = 1e-5  # of a vector's length


class _States(nn.Module):
    """Token ids (n, tokens) and their mask → hidden states, each (n, tokens, d)."""

    def __init__(self, model: nn.Module, numbers: Sequence[int]) -> None:
        super().__init__()
        self.model, self.numbers = model, numbers

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True).hidden_states
        return tuple(found[number] for number in self.numbers)


def graph_writer(views: Sequence[Any]) -> Callable[[Path], None]:
    """Return what writes the graph of the views' encoder into a folder, checked against torch; refuse what has none.

    Args:
        views: Fitted; those that run no encoder do not matter.
    """
    for module in ("onnx", "onnxscript"):
        require(module, "onnx")
    import_onnxruntime()
    running = [view for view in views if view.needs_encoder]
    encoder, readings = running[0].encoder, [view.reading for view in running]
    if not hasattr(encoder, "encode_views") or not encoder.tokenizer.is_fast:
        raise InputError(f"{encoder.name!r} is no transformer with a fast tokenizer, so it runs in torch alone.")
    for view, reading in zip(running, readings, strict=True):
        if reading.templates or reading.layers or reading.pooling not in POOLINGS:
            raise InputError(f"{view!r} runs in torch alone: leave out runtime='onnx'.")
    wanted = [GraphReading(reading.pooling, reading.words_only) for reading in readings]

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        _write(encoder, wanted, folder)
        difference = _difference(encoder, readings, GraphEncoder(folder), wanted)
        if not difference <= TOLERANCE:
            raise InputError(
                f"In onnxruntime a vector of {encoder.name!r} differs from torch's by {difference:.0e} of its length: nothing "
                "was saved. Leave out runtime='onnx'."
            )

    return write


def _write(encoder: Any, readings: Sequence[GraphReading], folder: Path) -> None:
    count = int(encoder.model.config.num_hidden_layers)
    numbers = sorted({layer % (count + 1) for one in readings for layer in POOLINGS[one.pooling].layers})
    module = _States(copy.deepcopy(encoder.model).float().cpu(), numbers)
    inputs = {name: torch.ones((2, 3), dtype=torch.long) for name in ("input_ids", "attention_mask")}
    names = [f"hidden_{number}" for number in numbers]
    write_graph(module, inputs, ("batch", "tokens"), folder / GRAPH, encoder.name, names)
    tokenizer = copy.deepcopy(encoder.tokenizer.backend_tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / TOKENIZER))
    (folder / SETTINGS).write_text(json.dumps(describe_reader(encoder, numbers), indent=1) + "\n", encoding="utf-8")


def _difference(encoder: Any, readings: Sequence[Any], graph: GraphEncoder, wanted: Sequence[GraphReading]) -> float:
    """Largest distance of two vectors as a share of their typical length, on texts of all lengths."""
    sentences = sample_sentences()
    texts = ["", "a", "Grüße, привет, こんにちは 🙂", "!?", *sentences[::400], " ".join(sentences[:40])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        pairs = zip(graph.encode_views(texts, wanted), encoder.encode_views(texts, readings), strict=True)
    return max(float(np.linalg.norm(a - b, axis=1).max() / np.sqrt(np.square(b).sum(1).mean())) for a, b in pairs)


def write_graph(
    module: nn.Module,
    inputs: dict[str, Tensor],
    axes: tuple[str, ...],
    path: Path,
    name: str,
    outputs: Sequence[str] = ("latent",),
) -> None:
    """Export a module to one file, with free sizes along the first axes of every input.

    Args:
        module: Takes the inputs in their order and returns the outputs.
        inputs: Examples by name; none of their free sizes may be 0 or 1, which torch takes for fixed.
        axes: Names of the axes whose size is free, from the first on.
        path: Where to; weights beyond 2 GB go to a second file beside it.
        name: What is exported, for the error message.
        outputs: Names of what it returns.
    """
    try:
        with quiet_exporter(), torch.no_grad():
            program: Any = torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                dynamo=True,
                dynamic_shapes=tuple(dict(enumerate(axes)) for _ in inputs),
                input_names=list(inputs),
                output_names=list(outputs),
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:  # the exporter raises many kinds, with many lines each
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"torch {torch.__version__} cannot express {name!r} in ONNX ({first}). Its calibrator alone can be exported."
        ) from error
    fixed = [
        axes[i] for value in program.model.graph.inputs for i in range(len(axes)) if isinstance(value.shape[i], int)
    ]
    if fixed:
        raise InputError(f"{name!r} can be expressed in ONNX only with a fixed {fixed[0]} size, which is of no use.")
    _tidy(program.model)
    size = sum(tensor.nbytes for tensor in module.state_dict().values())
    with quiet_exporter():
        program.save(path, external_data=size > ONE_FILE)


def _tidy(model: Any) -> None:
    """Give the calibrator's nodes their prefix, and drop the exporter's notes: stack traces with this machine's paths."""
    model.ir_version = IR_VERSION
    for node in model.graph:
        if "'head" in node.metadata_props.get("pkg.torch.onnx.name_scopes", ""):
            node.name = HEAD + node.name
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Torch tells of skipped operators and of its own deprecations; what matters is checked, or raised, afterwards.

    The quantiser logs to the root logger, which would set one up that has no handler yet.
    """
    loggers = [logging.getLogger(name) for name in (None, "torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    silence = logging.NullHandler()
    loggers[0].addHandler(silence)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        loggers[0].removeHandler(silence)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
