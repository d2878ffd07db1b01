"""Look into a space with the model that made it: runs encoders and flows, and lets ``bertflow.analysis`` judge the arrays."""

from bertflow.inspection.masked import LogitReport, decompose_masked_lm
from bertflow.inspection.measures import Analysis, BeforeAfter, PairGeometry, analyze, analyze_spaces
from bertflow.inspection.outliers import Outlier, Outliers, find_outliers
from bertflow.inspection.spaces import Spaces, make_spaces
from bertflow.inspection.tables import ReadableTable, readable_tables

__all__ = [
    "Analysis",
    "BeforeAfter",
    "LogitReport",
    "Outlier",
    "Outliers",
    "PairGeometry",
    "ReadableTable",
    "Spaces",
    "analyze",
    "analyze_spaces",
    "decompose_masked_lm",
    "find_outliers",
    "make_spaces",
    "readable_tables",
]
