"""Calibrators by the short names that the command line, the tables and users' notes share."""

from __future__ import annotations

import re
from collections.abc import Callable

from bertflow.calibrators.base import Calibrator
from bertflow.calibrators.flow import FlowCalibrator
from bertflow.calibrators.linear import Identity, RemoveTopComponents, Standardize, Whitening
from bertflow.errors import InputError

_PATTERNS: dict[str, tuple[str, Callable[[int, int], Calibrator]]] = {
    r"none": ("none: the raw vectors", lambda n, seed: Identity()),
    r"sn": ("sn: standardise each dimension", lambda n, seed: Standardize()),
    r"natsv-(\d+)": ("natsv-K: remove the top K components", lambda n, seed: RemoveTopComponents(n)),
    r"sn\+natsv-(\d+)": (
        "sn+natsv-K: both",
        lambda n, seed: RemoveTopComponents(n, standardize=True),
    ),
    r"whitening": ("whitening: to unit covariance", lambda n, seed: Whitening()),
    r"whitening-(\d+)": ("whitening-K: the same, only the top K components", lambda n, seed: Whitening(n)),
    r"flow": ("flow: the normalizing flow, preset default", lambda n, seed: FlowCalibrator(random_state=seed)),
    r"flow-paper": (
        "flow-paper: the flow with the paper's schedule",
        lambda n, seed: FlowCalibrator(preset="paper", random_state=seed),
    ),
    r"flow-paper-nli": (
        "flow-paper-nli: the same for a large general corpus, 0.15 epochs at 2e-5",
        lambda n, seed: FlowCalibrator(preset="paper", epochs=0.15, learning_rate=2e-5, random_state=seed),
    ),
}
CALIBRATOR_NAMES = tuple(text for text, _ in _PATTERNS.values())


def make_calibrator(name: str, seed: int = 0) -> Calibrator:
    """Return an unfitted calibrator by its short name.

    Args:
        name: Such as ``"flow"``, ``"sn"`` or ``"natsv-10"``; ``CALIBRATOR_NAMES`` lists them.
        seed: For the flow; the others have nothing random.

    Example:
        >>> make_calibrator("whitening-128")
        Whitening(n_components=128)
    """
    for pattern, (_, make) in _PATTERNS.items():
        match = re.fullmatch(pattern, name)
        if match:
            return make(int(match.group(1)) if match.groups() else 0, seed)
    raise InputError(f"Unknown calibrator {name!r}; known are: {'; '.join(CALIBRATOR_NAMES)}.")


def is_random(name: str) -> bool:
    """Whether a calibrator depends on its seed."""
    return isinstance(make_calibrator(name), FlowCalibrator)
