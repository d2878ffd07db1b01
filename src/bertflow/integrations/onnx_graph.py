"""The torch modules of a whole model, or of a calibrator alone, that are exported to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertflow.calibrators import Calibrator
from bertflow.flows.folded import COUPLINGS, FoldedFlow, fold_arrays
from bertflow.flows.folding import TORCH
from bertflow.model import BertFlow
from bertflow.parts import Part


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


def _float32(array: Any) -> Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.float32)
