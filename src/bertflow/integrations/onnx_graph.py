"""From torch modules to one ONNX file: what is exported, and torch's exporter made quiet."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.encoders.pooling import pool
from bertflow.encoders.transformer import Encoder
from bertflow.errors import InputError
from bertflow.runtime.portable import FlowStep, flatten_flow

OPSET, IR_VERSION = 18, 8  # old enough for onnxruntime 1.16, which was tried
ONE_FILE = 2_000_000_000  # bytes of weights that fit into one file; protobuf ends at 2 GiB
HEAD = "calibrator/"  # how the names of the calibrator's nodes begin


class WholeModel(nn.Module):
    """Token ids (n, tokens) and their attention mask → calibrated sentence vectors (n, k).

    Args:
        encoder: An ``Encoder`` or ``SentenceTransformerEncoder``, float32 and on the CPU.
        head: From ``calibrator_module``.
    """

    def __init__(self, encoder: Any, head: nn.Module) -> None:
        super().__init__()
        self.transformer, self.head = encoder.model, head
        self.pooling = encoder.pooling if isinstance(encoder, Encoder) else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode, pool, calibrate."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.pooling is None:
            return self.head(self.transformer(inputs)["sentence_embedding"].float())
        states = self.transformer(**inputs, output_hidden_states=True).hidden_states
        return self.head(pool(states, attention_mask, self.pooling))


class _Affine(nn.Module):
    """(x − mean) @ kernel, in this order: folded into one bias, a mean far from zero would cost digits of float32."""

    mean: Tensor
    kernel: Tensor

    def __init__(self, mean: Any, kernel: Any) -> None:
        super().__init__()
        self.register_buffer("mean", _float32(mean))
        self.register_buffer("kernel", _float32(kernel))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) @ self.kernel


class _Step(nn.Module):
    """``bertflow.runtime.portable.FlowStep`` in torch."""

    shift: Tensor
    mix: Tensor
    scale: Tensor

    def __init__(self, step: FlowStep) -> None:
        super().__init__()
        self.register_buffer("shift", _float32(step.shift))
        self.register_buffer("scale", _float32(step.scale))
        self.register_buffer("mix", _float32(step.mix) if step.mix.ndim == 2 else torch.tensor(step.mix))
        self.layers = nn.ParameterList(_float32(array) for layer in step.layers for array in layer)
        self.kept, self.leaving = len(step.layers[0][0]), step.leaving

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.shift
        x = (x @ self.mix if self.mix.ndim == 2 else x.index_select(1, self.mix)) * self.scale
        first, second = x.split((self.kept, x.shape[1] - self.kept), dim=1)
        w1, b1, w2, b2, w3, b3 = self.layers
        answer = torch.relu(torch.relu(first @ w1 + b1) @ w2 + b2) @ w3 + b3
        second = second + answer[:, : second.shape[1]]
        if answer.shape[1] > second.shape[1]:
            second = second * torch.exp2(torch.tanh(answer[:, second.shape[1] :]))
        return torch.cat((first, second), dim=1)


class _Flow(nn.Module):
    """The flow's forward map alone: log-determinants are not exported."""

    def __init__(self, steps: list[FlowStep]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(_Step(step) for step in steps)

    def forward(self, x: Tensor) -> Tensor:
        finished = []
        for step in self.steps:
            x = step(x)
            x, done = x.split((x.shape[1] - step.leaving, step.leaving), dim=1)  # type: ignore[operator]
            finished.append(done)
        return torch.cat(finished, dim=1)


def calibrator_module(calibrator: Calibrator) -> nn.Module:
    """Return a fitted calibrator as a float32 module from (n, d) to (n, k)."""
    if isinstance(calibrator, FlowCalibrator):
        return _Flow(flatten_flow(calibrator.get_state()[1]))
    if hasattr(calibrator, "mean_") and hasattr(calibrator, "kernel_"):
        return _Affine(calibrator.mean_, calibrator.kernel_)
    raise InputError(f"{type(calibrator).__name__} has no ONNX form; a flow and the affine calibrators have.")


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
