"""bertflow: turn any pretrained language model into a better sentence encoder, without labels.

What this file lists is the public API. Heavy imports wait until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bertflow.version import __version__

if TYPE_CHECKING:
    from bertflow.calibrators import (
        Calibrator,
        FlowCalibrator,
        Identity,
        RemoveMeanDirection,
        RemoveTopComponents,
        Standardize,
        Whitening,
    )
    from bertflow.corpus import Significance, find_clusters, find_drift, find_duplicates, find_outliers
    from bertflow.encoders.base import View
    from bertflow.encoders.pooling import POOLINGS, Pooling, register_pooling
    from bertflow.encoders.prompts import Contrast, Echo, Prompt
    from bertflow.encoders.token_table import TokenTable
    from bertflow.encoders.transformer import Encoder
    from bertflow.encoders.views import Pooled
    from bertflow.encoders.word_averages import Sif, Usif, ZipfianWhitening
    from bertflow.errors import BertflowError, InputError, MissingExtraError, ModelFolderError, TruncationWarning
    from bertflow.evaluation.judgement import Judgement, judge
    from bertflow.geometry import analyze
    from bertflow.integrations.onnx_model import OnnxCalibrator, OnnxModel
    from bertflow.integrations.sentence_transformers_export import attach, to_sentence_transformer
    from bertflow.integrations.sklearn import SentenceVectors
    from bertflow.model import BertFlow
    from bertflow.parts import Part
    from bertflow.recipes import recipes, register_recipe
    from bertflow.report import write_report
    from bertflow.scale import fit_shards, transform_shards, write_shards
    from bertflow.storage.shards import Shards

_HOME = {
    "ZipfianWhitening": "bertflow.encoders.word_averages",
    "Usif": "bertflow.encoders.word_averages",
    "Sif": "bertflow.encoders.word_averages",
    "RemoveMeanDirection": "bertflow.calibrators",
    "to_sentence_transformer": "bertflow.integrations.sentence_transformers_export",
    "register_pooling": "bertflow.encoders.pooling",
    "Pooling": "bertflow.encoders.pooling",
    "register_recipe": "bertflow.recipes",
    "recipes": "bertflow.recipes",
    "Part": "bertflow.parts",
    "Pooled": "bertflow.encoders.views",
    "Contrast": "bertflow.encoders.prompts",
    "Echo": "bertflow.encoders.prompts",
    "Prompt": "bertflow.encoders.prompts",
    "TokenTable": "bertflow.encoders.token_table",
    "View": "bertflow.encoders.base",
    "BertFlow": "bertflow.model",
    "BertflowError": "bertflow.errors",
    "Calibrator": "bertflow.calibrators",
    "Encoder": "bertflow.encoders.transformer",
    "FlowCalibrator": "bertflow.calibrators",
    "InputError": "bertflow.errors",
    "MissingExtraError": "bertflow.errors",
    "ModelFolderError": "bertflow.errors",
    "OnnxCalibrator": "bertflow.integrations.onnx_model",
    "OnnxModel": "bertflow.integrations.onnx_model",
    "POOLINGS": "bertflow.encoders.pooling",
    "SentenceVectors": "bertflow.integrations.sklearn",
    "Shards": "bertflow.storage.shards",
    "Whitening": "bertflow.calibrators",
    "Standardize": "bertflow.calibrators",
    "RemoveTopComponents": "bertflow.calibrators",
    "Identity": "bertflow.calibrators",
    "TruncationWarning": "bertflow.errors",
    "analyze": "bertflow.geometry",
    "attach": "bertflow.integrations.sentence_transformers_export",
    "Significance": "bertflow.corpus",
    "find_clusters": "bertflow.corpus",
    "find_drift": "bertflow.corpus",
    "find_duplicates": "bertflow.corpus",
    "Judgement": "bertflow.evaluation.judgement",
    "judge": "bertflow.evaluation.judgement",
    "find_outliers": "bertflow.corpus",
    "fit_shards": "bertflow.scale",
    "transform_shards": "bertflow.scale",
    "write_report": "bertflow.report",
    "write_shards": "bertflow.scale",
}

__all__ = [
    "POOLINGS",
    "BertFlow",
    "BertflowError",
    "Calibrator",
    "Contrast",
    "Echo",
    "Encoder",
    "FlowCalibrator",
    "Identity",
    "InputError",
    "Judgement",
    "MissingExtraError",
    "ModelFolderError",
    "OnnxCalibrator",
    "OnnxModel",
    "Part",
    "Pooled",
    "Pooling",
    "Prompt",
    "RemoveMeanDirection",
    "RemoveTopComponents",
    "SentenceVectors",
    "Shards",
    "Sif",
    "Significance",
    "Standardize",
    "TokenTable",
    "TruncationWarning",
    "Usif",
    "View",
    "Whitening",
    "ZipfianWhitening",
    "__version__",
    "analyze",
    "attach",
    "find_clusters",
    "find_drift",
    "find_duplicates",
    "find_outliers",
    "fit_shards",
    "judge",
    "recipes",
    "register_pooling",
    "register_recipe",
    "to_sentence_transformer",
    "transform_shards",
    "write_report",
    "write_shards",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bertflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
