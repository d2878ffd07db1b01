"""Has the text changed? Two samples compared in the calibrated space, with the texts and words that tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix
from bertflow.corpus.neighbours import nearest_rows
from bertflow.corpus.vectors import Indices, Model, checked_units, unit_vectors
from bertflow.corpus.words import contrasting_words
from bertflow.errors import InputError

MOST = 2000  # texts of each side; distances are quadratic in their number
PERMUTATIONS = 999
FEWEST = 20

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TellingText:
    """A text that is typical of one side.

    Args:
        row: Where it stands among that side's texts.
        text: The text.
        lean: How much nearer it is to its own side than to the other, on average: a difference of distances.
    """

    row: int
    text: str
    lean: float


@dataclass(frozen=True)
class Refit:
    """What fitting the model on the new texts would change, for these.

    Args:
        neighbours_kept: Share of the ten nearest neighbours among the new texts that stay the same.
        cosines: Correlation of the cosines of new texts before and after.
    """

    neighbours_kept: float
    cosines: float


@dataclass(frozen=True)
class Drift:
    """Whether and how new texts differ from old ones.

    Args:
        old: How many old texts were compared.
        new: How many new ones.
        p_value: How often two random halves of all these texts differ as much, or more.
        energy: The energy distance between the two, squared: 0 where both are alike.
        effect: The same as a share of the mean distance between old and new texts: 0 alike, 1 two different points.
        permutations: How often the texts were dealt out anew.
        old_texts: Texts that are typical of the old ones only, the most typical first.
        new_texts: Likewise of the new ones.
        old_words: Words that the old texts have more of, with z-scores.
        new_words: Likewise the new ones.
        refit: What a refit would change, if it was asked for.
    """

    old: int
    new: int
    p_value: float
    energy: float
    effect: float
    permutations: int
    old_texts: tuple[TellingText, ...]
    new_texts: tuple[TellingText, ...]
    old_words: tuple[tuple[str, float], ...]
    new_words: tuple[tuple[str, float], ...]
    refit: Refit | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def find_drift(
    old: Sequence[str],
    new: Sequence[str],
    model: Model,
    *,
    refit: Callable[[list[str]], Model] | None = None,
    top: int = 10,
    most: int = MOST,
    permutations: int = PERMUTATIONS,
    random_state: int = 0,
) -> Drift:
    """Test whether new texts come from where the old ones came from, and tell what differs.

    The p-value is right if the model treats both sides alike: if it was fitted on both together, or on neither. A model that
    was fitted on the old texts alone finds the new ones a little farther out even where nothing changed.

    Args:
        old: n texts.
        new: m texts.
        model: Encodes them; fitted on both together or on neither.
        refit: From a list of texts to a model fitted on them, to tell what a refit would change; two models are fitted.
        top: How many texts and words to list for each side.
        most: Of more texts than this on a side, as many are drawn at random.
        permutations: How often old and new are dealt out anew; the least p-value is 1 / (permutations + 1).
        random_state: Draws texts and permutations.

    Example:
        >>> find_drift(last_year, this_year, BertFlow.fit([*last_year, *this_year])).p_value  # doctest: +SKIP
    """
    if min(len(old), len(new)) < FEWEST or permutations < 1 or most < FEWEST:
        raise InputError(
            f"{len(old)} old and {len(new)} new texts came, with {permutations} permutations of at most {most} texts: "
            f"{FEWEST} texts or more on each side, and one permutation, were wanted."
        )
    rng = np.random.default_rng(random_state)
    sides = [_drawn(len(texts), most, rng) for texts in (old, new)]
    drawn = [[texts[row] for row in rows] for texts, rows in zip((old, new), sides, strict=True)]
    vectors = unit_vectors([*drawn[0], *drawn[1]], model)
    distances = chord_distances(vectors)
    n = len(drawn[0])
    energy, effect, p_value = energy_test(distances, n, permutations, rng)
    lean = distances[:, n:].mean(axis=1) - distances[:, :n].mean(axis=1)  # above 0: nearer to the old
    words = contrasting_words(drawn[0], drawn[1], top)
    return Drift(
        old=n,
        new=len(drawn[1]),
        p_value=p_value,
        energy=energy,
        effect=effect,
        permutations=permutations,
        old_texts=_typical(drawn[0], sides[0], lean[:n], top),
        new_texts=_typical(drawn[1], sides[1], -lean[n:], top),
        old_words=tuple(words[0]),
        new_words=tuple(words[1]),
        refit=None if refit is None else _refit(drawn[0], drawn[1], refit),
    )


def energy_test(
    distances: npt.NDArray[np.floating[Any]], n: int, permutations: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Return the energy distance, its effect size in [0, 1], and the p-value of the permutation test.

    Székely & Rizzo: 2 E|X − Y| − E|X − X'| − E|Y − Y'|; the effect is that over 2 E|X − Y|.

    Args:
        distances: Between all texts (n + m, n + m), the old ones first.
        n: How many old ones.
        permutations: How many.
        rng: Draws them.
    """
    size = len(distances)
    signs = np.concatenate([np.full(n, 1 / n), np.full(size - n, -1 / (size - n))])
    dealt = np.stack([signs, *(rng.permutation(signs) for _ in range(permutations))], axis=1).astype(distances.dtype)
    energies = -np.einsum("np,np->p", dealt, distances @ dealt, dtype=np.float64)
    across = float(distances[:n, n:].mean(dtype=np.float64))
    reached = int((energies[1:] >= energies[0] * (1 - 1e-9)).sum())
    effect = max(0.0, float(energies[0])) / (2 * across) if across else 0.0
    return float(energies[0]), effect, (1 + reached) / (1 + permutations)


def chord_distances(rows: Matrix) -> Matrix:
    """Return the distances (n, n) between unit rows (n, d): the chord, √(2 − 2 cosine)."""
    return np.sqrt(np.maximum(2 - 2 * (rows @ rows.T), 0))


def _drawn(count: int, most: int, rng: np.random.Generator) -> Indices:
    return np.sort(rng.choice(count, min(count, most), replace=False))


def _typical(texts: list[str], rows: Indices, lean: Vector, top: int) -> tuple[TellingText, ...]:
    found: dict[str, TellingText] = {}
    for place in np.argsort(-lean, kind="stable").tolist():
        if len(found) == top or lean[place] <= 0:
            break
        found.setdefault(texts[place], TellingText(int(rows[place]), texts[place], float(lean[place])))
    return tuple(found.values())


def _refit(old: list[str], new: list[str], refit: Callable[[list[str]], Model]) -> Refit:
    """Compare the new texts' cosines by a model of the old texts and by one of the new."""
    texts = list(dict.fromkeys(new))
    before, after = (checked_units(refit(side).encode(texts)) for side in (old, new))
    nearest = [nearest_rows(rows, rows, 10, own=True)[1] for rows in (before, after)]
    kept = np.mean([len(np.intersect1d(a, b)) / len(a) for a, b in zip(*nearest, strict=True)])
    pairs = np.triu_indices(len(texts), 1)
    cosines = np.corrcoef((before @ before.T)[pairs], (after @ after.T)[pairs])[0, 1]
    return Refit(float(kept), float(cosines))
