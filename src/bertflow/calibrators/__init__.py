"""Calibrators: maps fitted without labels and applied after pooling. One contract, one room each."""

from bertflow.calibrators.affine import Identity, RemoveTopComponents, Standardize, Whitening
from bertflow.calibrators.base import Calibrator
from bertflow.calibrators.flow import FlowCalibrator

__all__ = [
    "Calibrator",
    "FlowCalibrator",
    "Identity",
    "RemoveTopComponents",
    "Standardize",
    "Whitening",
]
