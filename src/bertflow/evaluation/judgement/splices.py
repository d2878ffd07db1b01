"""Pseudo-pairs: pairs with a known likeness, made from unlabelled text itself.

A sentence is compared with a *splice*: its own beginning, joined to the end of another sentence. How alike the two are is
known without asking anyone: the share of words in common, each word weighted by how rare it is in the corpus (idf), since
"the" in common says little and "volcano" much. A good space puts the splices in that order.

Other kinds were tried and left out, because on the development sets they ranked the calibrators the wrong way round or not
at all: two halves of a sentence, two word dropouts of one, one replaced word…
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bertflow.arrays import Matrix, cosine_of_pairs
from bertflow.evaluation.pair_scores import metric_value
from bertflow.evaluation.scores import Vector

FEWEST_WORDS = 6  # a shorter sentence has no beginning and end to speak of
FEWEST = 30
MOST = 1000
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"  # Thai to Khmer, kana, Han
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


@dataclass(frozen=True, eq=False)
class Splices:
    """Sentences, their splices, and how alike they are.

    Args:
        sentences: n sentences.
        splices: A splice of each.
        gold: The idf-weighted share of words in common, (n,), 0 to 1.
    """

    sentences: list[str]
    splices: list[str]
    gold: Vector

    def __len__(self) -> int:
        return len(self.gold)


def make_splices(corpus: Sequence[str], seed: int = 0) -> Splices | None:
    """Splice up to a third of a corpus, at most 1 000 sentences; None where too few have six words.

    Args:
        corpus: Different sentences; words are what spaces separate, in scripts without spaces characters.
        seed: Draws the sentences and the places of the cuts.
    """
    rng = np.random.default_rng(seed)
    long = [i for i, text in enumerate(corpus) if len(_pieces(text)) >= FEWEST_WORDS]
    count = min(MOST, len(corpus) // 3, len(long))
    if count < FEWEST:
        return None
    drawn = [corpus[i] for i in rng.permutation(long)[:count]]
    rarity = _rarity(corpus)
    splices = [
        _splice(text, other, cut) for text, other, cut in zip(drawn, _turned(drawn), rng.random(count), strict=True)
    ]
    gold = [_overlap(text, splice, rarity) for text, splice in zip(drawn, splices, strict=True)]
    return Splices(drawn, splices, np.array(gold))


def splice_score(pairs: Splices, sentences: Matrix, splices: Matrix) -> float:
    """Spearman ×100 of the cosines of vectors (n, d) and (n, d) with the known likeness."""
    cosines = cosine_of_pairs(sentences.astype(np.float64), splices.astype(np.float64)).round(12)
    if cosines.min() == cosines.max():  # a space in which everything is alike orders nothing
        return 0.0
    return metric_value("spearman", cosines.astype(np.float64), pairs.gold)


def _turned(texts: list[str]) -> list[str]:
    return [*texts[1:], texts[0]]


def _splice(text: str, other: str, cut: float) -> str:
    """The first part of one sentence and the last of another, cut at the same share of their words."""
    own, foreign = _pieces(text), _pieces(other)
    pieces = [*own[: round(cut * len(own))], *foreign[round(cut * len(foreign)) :]]
    return "".join(piece if re.match(f"[{_UNSPACED}]", piece) else f"{piece} " for piece in pieces).strip()


def _pieces(text: str) -> list[str]:
    """Words; characters where the script has no spaces."""
    return re.findall(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+", text)


def _rarity(corpus: Sequence[str]) -> Callable[[str], float]:
    """Inverse document frequency: the logarithm of one over the share of sentences that have the word."""
    having = Counter(word for text in corpus for word in words_of(text))
    return lambda word: math.log((len(corpus) + 1) / having[word])


def _overlap(text: str, other: str, rarity: Callable[[str], float]) -> float:
    one, two = words_of(text), words_of(other)
    union = sum(
        map(rarity, sorted(one | two))
    )  # sorted: the sum of floats depends on the order, that of a set on the run
    return sum(map(rarity, sorted(one & two))) / union if union else 1.0


def words_of(text: str) -> set[str]:
    """The different words of a text, in lower case."""
    return set(_WORD.findall(text.lower()))
