"""What a corpus and its vectors tell without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bertflow.arrays import Matrix, unit_rows
from bertflow.evaluation.judgement.splices import words_of

MOST = 1500  # sentences whose neighbours are looked for: all pairs are compared
NEIGHBOURS = 10
COPY = 0.8  # share of words in common from which a neighbour is a copy but for a word
UNKNOWN = 0.2  # share of unknown tokens from which nothing is believed


@dataclass(frozen=True)
class SpaceEvidence:
    """Of one recipe's vectors.

    Args:
        mean_cosine: Of two random sentences.
        uniformity: From 0, all vectors alike, to about −4, spread evenly (Wang & Isola, 2020).
        effective_rank: Dimensions that are in use, by the entropy of the spectrum.
        hubness: Skewness of how often a sentence is another's neighbour; above about 2, a few sentences are everyone's.
        agreement: Share of the ten nearest neighbours that raw vectors have too.
        splices: Spearman ×100 with the known likeness of sentences spliced from two; None where none could be made.
    """

    mean_cosine: float
    uniformity: float
    effective_rank: float
    hubness: float
    agreement: float
    splices: float | None = None


@dataclass(frozen=True)
class Evidence:
    """Of a corpus, its encoder, and the vectors of each recipe.

    Args:
        sentences: How many different ones.
        tuned: The encoder's folder says that it was tuned for similarity.
        unknown: Share of the text's tokens that the tokenizer does not know; None where it has no such token.
        copies: Share of sentences whose nearest neighbour is the same but for a word or two.
        spaces: By recipe.
    """

    sentences: int
    tuned: bool
    unknown: float | None = None
    copies: float = 0.0
    spaces: Mapping[str, SpaceEvidence] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def look_at_spaces(
    vectors: Mapping[str, Matrix], splices: Mapping[str, float], raw: str, seed: int = 0
) -> dict[str, SpaceEvidence]:
    """Measure each recipe's vectors of the same n sentences.

    Args:
        vectors: (n, d) by recipe.
        splices: What ``splice_score`` said, by recipe.
        raw: The recipe whose neighbours the others' are compared with.
        seed: Draws the sentences that are looked at.
    """
    n = len(vectors[raw])
    rows = np.random.default_rng(seed).permutation(n)[:MOST]
    near = _neighbours(_cosines(vectors[raw][rows]))
    return {name: _look(x[rows], near, splices.get(name)) for name, x in vectors.items()}


def share_of_copies(sentences: Sequence[str], vectors: Matrix, seed: int = 0) -> float:
    """Share of n sentences whose nearest neighbour by vectors (n, d) has nearly the same words."""
    rows = np.random.default_rng(seed).permutation(len(sentences))[:MOST]
    words = [words_of(sentences[row]) for row in rows]
    nearest = _neighbours(_cosines(vectors[rows]), 1)[:, 0]
    alike = [len(words[i] & words[j]) / max(len(words[i] | words[j]), 1) for i, j in enumerate(nearest)]
    return float(np.mean(np.array(alike) >= COPY))


def share_unknown(tokenizer: Any, sentences: Sequence[str]) -> float | None:
    """Share of a text's tokens that a tokenizer does not know; None where it knows every byte."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return None
    ids = [
        token
        for row in tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"]
        for token in row
    ]
    return float(np.mean(np.array(ids) == unknown)) if ids else 0.0


def _look(x: Matrix, raw_near: Any, splices: float | None) -> SpaceEvidence:
    cosines = _cosines(x)
    of_pairs = cosines[np.triu_indices(len(x), 1)]
    near = _neighbours(cosines)
    common = [len(set(own) & set(other)) for own, other in zip(near.tolist(), raw_near.tolist(), strict=True)]
    return SpaceEvidence(
        mean_cosine=float(of_pairs.mean()),
        uniformity=float(np.log(np.exp(4 * (of_pairs - 1)).mean())),
        effective_rank=_effective_rank(x),
        hubness=_skewness(np.bincount(near.ravel(), minlength=len(x))),
        agreement=float(np.mean(common)) / near.shape[1],
        splices=splices,
    )


def _cosines(x: Matrix) -> Matrix:
    units = unit_rows(x.astype(np.float32))
    return units @ units.T


def _neighbours(cosines: Matrix, k: int = NEIGHBOURS) -> Any:
    """Return the k nearest other rows of each (n, k); the cosines (n, n) stay as they are."""
    k = min(k, len(cosines) - 1)
    others = cosines - 4 * np.eye(len(cosines), dtype=cosines.dtype)
    return np.argpartition(-others, k - 1, axis=1)[:, :k]


def _effective_rank(x: Matrix) -> float:
    centred = x.astype(np.float64) - x.mean(axis=0)
    share = np.square(np.linalg.svd(centred, compute_uv=False))
    share = share[share > 0] / max(share.sum(), np.finfo(np.float64).tiny)
    return float(np.exp(-(share * np.log(share)).sum()))


def _skewness(counts: Any) -> float:
    away = counts - counts.mean()
    spread = away.std()
    return float((away**3).mean() / spread**3) if spread else 0.0
