"""Calibrators: maps fitted without labels and applied after pooling. One contract, one room each."""

from bertflow.calibrators.affine import Identity, RemoveTopComponents, Standardize, Whitening
from bertflow.calibrators.base import Calibrator
from bertflow.calibrators.flow import FlowCalibrator
from bertflow.calibrators.mean_direction import RemoveMeanDirection

__all__ = [
    "Calibrator",
    "FlowCalibrator",
    "Identity",
    "RemoveMeanDirection",
    "RemoveTopComponents",
    "Standardize",
    "Whitening",
]
