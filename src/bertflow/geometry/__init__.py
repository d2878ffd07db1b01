"""Look into a space with the model that made it: runs encoders and flows, and lets ``bertflow.geometry`` judge the arrays."""

from bertflow.geometry.masked import LogitReport, decompose_masked_lm
from bertflow.geometry.measures import Analysis, BeforeAfter, PairGeometry, analyze, analyze_spaces
from bertflow.geometry.outliers import Outlier
from bertflow.geometry.spaces import Spaces, make_spaces
from bertflow.geometry.tables import ReadableTable, readable_tables

__all__ = [
    "Analysis",
    "BeforeAfter",
    "LogitReport",
    "Outlier",
    "PairGeometry",
    "ReadableTable",
    "Spaces",
    "analyze",
    "analyze_spaces",
    "decompose_masked_lm",
    "make_spaces",
    "readable_tables",
]
