"""From a cosine to how often unrelated texts reach it, and back: a cut-off that needs no labels."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.corpus.laws import Law, Vector
from bertflow.corpus.vectors import Model, checked_units, distinct, unit_vectors
from bertflow.errors import InputError

logger = logging.getLogger(__name__)

MOST_PAIRS = 1_000_000
MOST_TEXTS = 20_000  # more are not looked at: their pairs are what counts
FEWEST_PAIRS, FEW_TEXTS = 1000, 300


@dataclass(frozen=True)
class Explanation:
    """What a cosine means.

    Args:
        cosine: The cosine.
        percentile: Of 100 pairs of unrelated texts, how many stay below it.
        one_in: One of so many pairs of unrelated texts reaches it.
    """

    cosine: float
    percentile: float
    one_in: float

    def __str__(self) -> str:
        """Say it in words."""
        return f"cosine {self.cosine:.3f}: 1 in {readable(self.one_in)} pairs of unrelated texts is as near"


@dataclass(frozen=True)
class Significance:
    """How often unrelated texts reach a cosine.

    Args:
        pairs: The law of cosines between two texts.
        queries: The law of cosines between a query and a document, if there are queries.

    Example:
        >>> significance = Significance.fit(corpus, model)  # doctest: +SKIP
        >>> significance.threshold(false_pairs=1, among=len(corpus))  # doctest: +SKIP
        0.41
    """

    pairs: Law
    queries: Law | None = None

    @classmethod
    def fit(
        cls,
        texts: Any,
        model: Model | None = None,
        *,
        queries: Any = None,
        refit: Callable[[list[str]], Model] | None = None,
        random_state: int = 0,
    ) -> Significance:
        """Fit the laws to random pairs, without labels.

        Random pairs of texts that the model was fitted on differ a little from those of new texts. To ask about new texts,
        give texts that the fit did not see, or ``refit``: then one half of the texts is judged by a model of the other half,
        and the other way round. To ask about the very texts of the fit, give these.

        Args:
            texts: n texts, better thousands; or their vectors (n, d).
            model: Encodes the texts.
            queries: Questions to those texts, texts or vectors, for ``queries=`` of ``threshold`` and ``exceedance``.
            refit: From a list of texts to a model fitted on them, such as ``lambda half: BertFlow.fit(half)``.
            random_state: Draws the pairs.
        """
        rng = np.random.default_rng(random_state)
        if refit is not None:
            return cls(*_laws(_crossed(texts, queries, refit, rng)))
        asked = None if queries is None else _rows(queries, model, rng)
        return cls(*_laws([_sampled(_rows(texts, model, rng), asked, rng)]))

    def exceedance(self, cosine: Any, *, query: bool = False) -> Any:
        """Return the share of unrelated pairs whose cosine is at least this one; arrays give arrays.

        Args:
            cosine: One or many.
            query: Of a query and a document instead of two texts.
        """
        if not np.isfinite(np.asarray(cosine, dtype=np.float64)).all():
            raise InputError(f"A cosine is a finite number; got {cosine!r:.60}.")
        share = np.exp(self._law(query).log_exceedance(cosine))
        return float(share) if np.ndim(share) == 0 else share

    def threshold(self, false_pairs: float = 1, among: int = 2, *, queries: int | None = None) -> float:
        """Return the cosine that so many unrelated pairs are expected to reach.

        Args:
            false_pairs: How many pairs of unrelated texts may be taken for related ones.
            among: n texts, all compared with each other: n · (n − 1) / 2 pairs.
            queries: m queries instead, each compared with ``among`` documents: m · n pairs.
        """
        count = among * (among - 1) / 2 if queries is None else float(among) * queries
        if not (count >= 1 and 0 < false_pairs < math.inf):
            raise InputError(
                f"false_pairs is {false_pairs!r} among {among!r} texts; a positive number among two or more texts was wanted."
            )
        return self.threshold_of_share(false_pairs / count, query=queries is not None)

    def threshold_of_share(self, share: float, *, query: bool = False) -> float:
        """Return the cosine that this share of the unrelated pairs reaches: at most 1, which equal texts have."""
        if not share > 0:
            raise InputError(f"The share of unrelated pairs is {share!r}; a number above 0 was wanted.")
        if share >= 1:
            return -1.0
        return float(np.clip(self._law(query).quantile_above(math.log(share)), -1.0, 1.0))

    def explain(self, cosine: float, *, query: bool = False) -> Explanation:
        """Say what a cosine means: "1 in 240 000 pairs of unrelated texts is as near".

        Args:
            cosine: The cosine of two texts.
            query: Of a query and a document.
        """
        share = self.exceedance(float(cosine), query=query)
        return Explanation(float(cosine), 100 * (1 - share), 1 / max(share, 1e-300))

    def to_dict(self) -> dict[str, Any]:
        """Return the laws as plain numbers, to be kept with a model."""
        return {"pairs": self.pairs.to_dict(), "queries": self.queries.to_dict() if self.queries else None}

    @classmethod
    def from_dict(cls, known: dict[str, Any]) -> Significance:
        """Rebuild what ``to_dict`` returned."""
        try:
            laws = [None if known.get(name) is None else Law(**known[name]) for name in ("pairs", "queries")]
        except (TypeError, AttributeError) as error:
            raise InputError(f"The law of cosines is not what this version wrote: {error}.") from None
        if laws[0] is None:
            raise InputError("The law of cosines lacks 'pairs': fit it again with Significance.fit.")
        return cls(laws[0], laws[1])

    def _law(self, query: bool) -> Law:
        if query and self.queries is None:
            raise InputError("This significance knows no queries: fit it with queries=… to ask about them.")
        return self.queries if query and self.queries else self.pairs


def readable(number: float) -> str:
    """Return a number to two digits, as people read it: 3.1, 240 000, 3.1 million, 10^14."""
    number = float(f"{number:.2g}")
    if number >= 1e12:
        return f"10^{math.floor(math.log10(number))}"
    size, name = next(
        one for one in ((1e9, " billion"), (1e6, " million"), (1.0, "")) if number >= one[0] or one[0] == 1
    )
    value = number / size
    return (f"{value:.2g}" if value < 10 else f"{value:,.0f}".replace(",", " ")) + name


def _rows(given: Any, model: Model | None, rng: np.random.Generator) -> Matrix:
    """Return unit vectors of at most ``MOST_TEXTS`` distinct texts, or of vectors given."""
    first = next(iter(given), None) if hasattr(given, "__len__") else None
    if not isinstance(first, str) and model is None:
        vectors = checked_units(given)
        return vectors if len(vectors) <= MOST_TEXTS else vectors[rng.choice(len(vectors), MOST_TEXTS, replace=False)]
    if model is None:
        raise InputError(
            "Texts need a model that encodes them: Significance.fit(texts, model); or give vectors (n, d)."
        )
    texts = _some(distinct(given)[0], rng)
    return unit_vectors(texts, model)


def _some(texts: list[str], rng: np.random.Generator) -> list[str]:
    if len(texts) <= MOST_TEXTS:
        return texts
    return [texts[row] for row in np.sort(rng.choice(len(texts), MOST_TEXTS, replace=False))]


def _crossed(
    texts: Sequence[str], queries: Sequence[str] | None, refit: Callable[[list[str]], Model], rng: np.random.Generator
) -> list[tuple[Vector, Vector | None]]:
    """Return the cosines among each half of the texts, by a model that was fitted on the other half."""
    known = distinct(texts)[0]
    order = rng.permutation(len(known))
    halves = [[known[row] for row in order[start::2]] for start in (0, 1)]
    found = []
    for seen, held in (halves, halves[::-1]):
        model = refit(seen)
        asked = None if queries is None else unit_vectors(_some(distinct(queries)[0], rng), model)
        found.append(_sampled(unit_vectors(_some(held, rng), model), asked, rng))
    return found


def _sampled(rows: Matrix, queries: Matrix | None, rng: np.random.Generator) -> tuple[Vector, Vector | None]:
    """Return cosines of random pairs of rows, and of queries with rows."""
    n = len(rows)
    if n * (n - 1) // 2 < FEWEST_PAIRS or (queries is not None and n * len(queries) < FEWEST_PAIRS):
        asked = "" if queries is None else f" and {len(queries)} queries"
        raise InputError(
            f"{n} different texts{asked} came: too few pairs to tell how near unrelated ones get. At least 50 texts are "
            "needed, better thousands."
        )
    if n < FEW_TEXTS:
        logger.warning("Only %d different texts: how often unrelated ones reach a cosine is a rough guess.", n)
    return _cosines(rows, rows, rng), None if queries is None else _cosines(queries, rows, rng)


def _cosines(a: Matrix, b: Matrix, rng: np.random.Generator) -> Vector:
    """Return the cosines of about ``MOST_PAIRS`` random pairs, or of all: of two different rows where ``a`` is ``b``.

    All rows take part: both sides are shuffled and cut into as many pieces, and piece by piece all pairs are taken.
    """
    pieces = min(-(-len(a) * len(b) // MOST_PAIRS), len(a), len(b))
    if a is b and pieces == 1:
        return (a @ a.T)[np.triu_indices(len(a), 1)].astype(np.float64)
    left = np.array_split(rng.permutation(len(a)), pieces)
    right = left[1:] + left[:1] if a is b else np.array_split(rng.permutation(len(b)), pieces)
    return np.concatenate([(a[i] @ b[j].T).ravel() for i, j in zip(left, right, strict=True)]).astype(np.float64)


def _laws(samples: list[tuple[Vector, Vector | None]]) -> tuple[Law, Law | None]:
    asked = [queries for _, queries in samples if queries is not None]
    return Law.fit(np.concatenate([pairs for pairs, _ in samples])), Law.fit(np.concatenate(asked)) if asked else None
