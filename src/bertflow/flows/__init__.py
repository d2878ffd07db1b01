"""Normalizing flows on vectors: layers, Glow, and their training. Knows nothing of text."""

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
