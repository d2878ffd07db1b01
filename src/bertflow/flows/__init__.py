"""Normalizing flows on vectors: layers, Glow, and their training. Knows nothing of text.

Its names are imported when they are used: ``bertflow.flows.folded`` is for readers without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertflow.flows.folding import fold
    from bertflow.flows.glow import Glow, GlowConfig
    from bertflow.flows.layers import (
        ActNorm,
        AdditiveCoupling,
        AffineCoupling,
        Bijection,
        InvertibleLinear,
        Permutation,
    )
    from bertflow.flows.presets import PRESETS, TrainingConfig
    from bertflow.flows.training import History, train

__all__ = [
    "PRESETS",
    "ActNorm",
    "AdditiveCoupling",
    "AffineCoupling",
    "Bijection",
    "Glow",
    "GlowConfig",
    "History",
    "InvertibleLinear",
    "Permutation",
    "TrainingConfig",
    "fold",
    "train",
]

_HOME = {"fold": "folding", "Glow": "glow", "GlowConfig": "glow", "PRESETS": "presets", "TrainingConfig": "presets"}
_HOME |= {"History": "training", "train": "training"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"bertflow.flows.{_HOME.get(name, 'layers')}"), name)
    raise AttributeError(f"module 'bertflow.flows' has no attribute {name!r}")
