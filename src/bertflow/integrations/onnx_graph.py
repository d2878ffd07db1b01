"""From torch modules to one ONNX file: what is exported, and torch's exporter made quiet."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertflow.calibrators import Calibrator
from bertflow.errors import InputError
from bertflow.flows.folded import COUPLINGS, FoldedFlow, fold_arrays
from bertflow.flows.folding import TORCH
from bertflow.model import BertFlow
from bertflow.parts import Part

OPSET, IR_VERSION = 18, 8  # old enough for onnxruntime 1.16, which was tried
ONE_FILE = 2_000_000_000  # bytes of weights that fit into one file; protobuf ends at 2 GiB
HEAD = "calibrator/"  # how the names of the calibrator's nodes begin


class WholeModel(nn.Module):
    """Token ids (n, tokens) and their attention mask → calibrated sentence vectors (n, k).

    Args:
        model: Its encoder, where it needs one, in float32 and on the CPU.
        pad_token_id: The token that stands where a text has none at all.
    """

    def __init__(self, model: BertFlow, pad_token_id: int) -> None:
        super().__init__()
        needed = any(part.view.needs_encoder for part in model.parts)
        self.transformer = getattr(model.encoder, "model", None) if needed else None
        self.pools_itself = not hasattr(model.encoder, "encode_views") if needed else False
        self.head = _Head(model.parts, pad_token_id)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode, view, calibrate."""
        return self.head(self._states(input_ids, attention_mask), input_ids, attention_mask)

    def _states(self, ids: Tensor, mask: Tensor) -> Any:
        if self.transformer is None:
            return ()
        if self.pools_itself:
            return self.transformer({"input_ids": ids, "attention_mask": mask})["sentence_embedding"]
        return self.transformer(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states


class _Head(nn.Module):
    """Views with their calibrators, side by side."""

    def __init__(self, parts: Sequence[Part], pad_token_id: int) -> None:
        super().__init__()
        self.views = nn.ModuleList(part.view.as_module(pad_token_id) for part in parts)
        self.calibrators = nn.ModuleList(calibrator_module(part.calibrator) for part in parts)
        self.scales = [part.scale for part in parts]

    def forward(self, states: Any, ids: Tensor, mask: Tensor) -> Tensor:
        found = [
            scale * calibrator(view(states, ids, mask))
            for scale, view, calibrator in zip(self.scales, self.views, self.calibrators, strict=True)
        ]
        return torch.cat(found, dim=1) if len(found) > 1 else found[0]


def _put(x: Tensor, columns: slice, part: Tensor) -> Tensor:
    return torch.cat((x[:, : columns.start], part, x[:, columns.stop :]), dim=1)


#: As ``TORCH``, but nothing changes in place, which ONNX could express only by slow nodes.
GRAPH = SimpleNamespace(
    **vars(TORCH) | {"put": _put, "add_product": lambda x, columns, a, b: _put(x, columns, x[:, columns] + a @ b)}
)


class _Flow(nn.Module):
    """A folded flow: log-determinants are not exported."""

    def __init__(self, flow: FoldedFlow) -> None:
        super().__init__()
        self.names = flow.map(self._register)

    def _register(self, array: Any) -> str:
        name = f"array{len(self._buffers)}"
        self.register_buffer(name, _float32(array) if array.dtype.kind == "f" else torch.tensor(array))
        return name

    def forward(self, x: Tensor) -> Tensor:
        return self.names.map(self.get_buffer)(x, GRAPH)


def calibrator_module(calibrator: Calibrator) -> nn.Module:
    """Return a fitted calibrator as a float32 module from (n, d) to (n, k)."""
    coupling = getattr(calibrator, "coupling", None)  # of a flow; one that has no folded form goes layer by layer
    if coupling in COUPLINGS:
        return _Flow(fold_arrays(calibrator.get_state()[1], coupling))
    return calibrator.as_module().cpu().float()


def write_graph(module: nn.Module, inputs: dict[str, Tensor], axes: tuple[str, ...], path: Path, name: str) -> None:
    """Export a module to one file, with free sizes along the first axes of every input.

    Args:
        module: Takes the inputs in their order and returns one tensor.
        inputs: Examples by name; none of their free sizes may be 0 or 1, which torch takes for fixed.
        axes: Names of the axes whose size is free, from the first on.
        path: Where to; weights beyond 2 GB go to a second file beside it.
        name: What is exported, for the error message.
    """
    try:
        with quiet_exporter(), torch.no_grad():
            program: Any = torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                dynamo=True,
                dynamic_shapes=tuple(dict(enumerate(axes)) for _ in inputs),
                input_names=list(inputs),
                output_names=["latent"],
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


def _float32(array: Any) -> Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.float32)
