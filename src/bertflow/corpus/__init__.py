"""What many texts tell: how much a cosine means, duplicates, groups, novelty and drift."""

from bertflow.corpus.duplicates import Duplicates, Pair, find_duplicates
from bertflow.corpus.laws import Law
from bertflow.corpus.significance import Explanation, Significance

__all__ = ["Duplicates", "Explanation", "Law", "Pair", "Significance", "find_duplicates"]
