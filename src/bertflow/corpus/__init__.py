"""What many texts tell: how much a cosine means, duplicates, groups, novelty and drift."""

from bertflow.corpus.laws import Law
from bertflow.corpus.significance import Explanation, Significance

__all__ = ["Explanation", "Law", "Significance"]
