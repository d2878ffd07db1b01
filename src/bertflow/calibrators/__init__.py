"""Calibrators: maps fitted without labels and applied after pooling. One contract, one room each."""

from bertflow.calibrators.base import Calibrator
from bertflow.calibrators.beside import WhiteningBesideFlow
from bertflow.calibrators.flow import FlowCalibrator
from bertflow.calibrators.linear import Identity, RemoveTopComponents, Standardize, Whitening

__all__ = [
    "Calibrator",
    "FlowCalibrator",
    "Identity",
    "RemoveTopComponents",
    "Standardize",
    "Whitening",
    "WhiteningBesideFlow",
]
