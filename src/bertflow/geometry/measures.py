"""All measures of a corpus' space, before and after calibration, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from bertflow.arrays import Matrix, cosine_of_pairs
from bertflow.errors import InputError, require
from bertflow.evaluation import PairTask
from bertflow.geometry.association import Vector
from bertflow.geometry.density import DensityProfile, density_profile
from bertflow.geometry.dimensions import RogueDimensions, rogue_dimensions
from bertflow.geometry.figures import Figures
from bertflow.geometry.frequency import FrequencyTable, frequency_table
from bertflow.geometry.isotropy import Isotropy, gaussian_isotropy, isotropy
from bertflow.geometry.lexical import LexicalSummary, edit_distances, lexical_summary
from bertflow.geometry.masked import LogitReport, decompose_masked_lm
from bertflow.geometry.neighbours import neighbour_distances
from bertflow.geometry.normality import Normality, normality
from bertflow.geometry.outliers import Outlier, list_outliers
from bertflow.geometry.rows import sample_indices
from bertflow.geometry.sentence_frequency import SentenceFrequency, mean_log_frequency, sentence_frequency
from bertflow.geometry.spaces import Spaces, make_spaces
from bertflow.geometry.sphere import alignment
from bertflow.geometry.tokens import count_tokens_of, has_token_embeddings, input_embeddings, token_ids
from bertflow.model import BertFlow

Measure = TypeVar("Measure")

NEIGHBOURS = 5
LEAST_LIKELY = 10
PARAPHRASES = 0.8  # of the way from the lowest to the highest gold score: 4 of 0 to 5, as in SimCSE


@dataclass(frozen=True)
class BeforeAfter(Generic[Measure]):
    """One measure of the raw and of the calibrated vectors."""

    before: Measure
    after: Measure


@dataclass(frozen=True)
class PairGeometry:
    """Pairs of sentences with people's scores.

    Args:
        pairs: How many.
        gold: Correlation of people's scores with edit distance: how far it is right to follow the words.
        similarity: That of the cosines (Table 6, Figure 2).
        paraphrases: How many pairs count as having the same meaning.
        alignment: See ``bertflow.geometry.sphere.alignment``; of those pairs, None where there are none.
    """

    pairs: int
    gold: LexicalSummary
    similarity: BeforeAfter[LexicalSummary]
    paraphrases: int
    alignment: BeforeAfter[float] | None


@dataclass(frozen=True)
class Analysis(Figures):
    """A corpus' space before and after calibration; what could not be measured is None, and ``notes`` says why.

    Args:
        settings: Encoder, recipe, counts and everything else that the figures depend on.
        isotropy: Of the sentence vectors.
        gaussian: The same measures of N(0, I) noise with as many rows and dimensions as the calibrated vectors.
        dimensions: Which dimensions contribute to the mean cosine.
        normality: How far from N(0, I).
        words: Table 1: the encoder's input embeddings by frequency rank.
        frequency: Sentence vectors by the frequency of their tokens.
        density: Log-density against the distance to neighbours, in either space; of models that have one.
        least_likely: The sentences of lowest log-density.
        logits: What the masked language model's logits are made of.
        pairs: Measures of pairs with gold scores.
        notes: A sentence for each part that is missing.
    """

    settings: dict[str, Any]
    isotropy: BeforeAfter[Isotropy]
    gaussian: Isotropy
    dimensions: BeforeAfter[RogueDimensions]
    normality: BeforeAfter[Normality]
    words: FrequencyTable | None
    frequency: BeforeAfter[SentenceFrequency] | None
    density: BeforeAfter[DensityProfile] | None
    least_likely: tuple[Outlier, ...]
    logits: LogitReport | None
    pairs: PairGeometry | None
    notes: tuple[str, ...]


def analyze(
    sentences: Sequence[str],
    encoder: Any = "mini",
    pooling: str | None = None,
    recipe: str | None = None,
    *,
    model: BertFlow | None = None,
    pairs: PairTask | None = None,
    counts: str | Path | None = None,
    **options: Any,
) -> Analysis:
    """Measure the space of a corpus before and after calibration.

    Args:
        sentences: Text, a few thousand sentences or more; repeated ones count once.
        encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``.
        pooling: One of ``bertflow.POOLINGS``, for recipes of one view.
        recipe: A name of ``bertflow.recipes()``, fitted on the corpus itself; by default what ``BertFlow.fit`` would take.
        model: A fitted model instead of encoder and recipe.
        pairs: Pairs with gold scores, as from ``bertflow.evaluation.load_pairs_file``.
        counts: A file of ``word count`` or ``token count`` lines; by default the encoder's own counts, or the corpus'.
        options: ``random_state``, ``device`` and ``show_progress_bar`` of ``bertflow.geometry.make_spaces``.

    Example:
        >>> from bertflow import analyze
        >>> from bertflow.data import sample_sentences
        >>> found = analyze(sample_sentences())  # doctest: +SKIP
        >>> found.isotropy.before.mean_cosine > found.isotropy.after.mean_cosine  # doctest: +SKIP
        True
    """
    _check_early(pairs, counts)
    spaces = make_spaces(sentences, encoder, pooling, recipe, model=model, **options)
    return analyze_spaces(spaces, pairs=pairs, counts=counts)


def analyze_spaces(spaces: Spaces, *, pairs: PairTask | None = None, counts: str | Path | None = None) -> Analysis:
    """Measure spaces that were made before; arguments as in ``analyze``."""
    seed, both = spaces.random_state, (spaces.before, spaces.after)
    graded = None if pairs is None else _pair_geometry(spaces, pairs)
    chosen = sample_indices(len(spaces.sentences), seed=seed)
    distances = [neighbour_distances(x[chosen], min(NEIGHBOURS, len(chosen) - 1)) for x in both]
    language = _language(spaces, counts, chosen, distances)
    density, least_likely = _density(spaces, chosen, distances)
    notes = [*language.notes]
    if density is None:
        notes.append(f"Nothing on log-density: {spaces.settings['recipe']} is not a density; use a flow.")
    if graded is None:
        notes.append("Nothing on edit distance and alignment: give pairs with gold scores.")
    return Analysis(
        settings=spaces.settings | {"counts": language.source, "sample": len(chosen)},
        isotropy=BeforeAfter(*(isotropy(x, seed=seed) for x in both)),
        gaussian=gaussian_isotropy(*spaces.after.shape, seed=seed),
        dimensions=BeforeAfter(*(rogue_dimensions(x) for x in both)),
        normality=BeforeAfter(*(normality(x, seed=seed) for x in both)),
        words=language.words,
        frequency=language.frequency,
        density=density,
        least_likely=least_likely,
        logits=language.logits,
        pairs=graded,
        notes=tuple(notes),
    )


def _check_early(pairs: PairTask | None, counts: str | Path | None) -> None:
    """Refuse before the encoding, which takes minutes, what would fail after it."""
    if pairs is not None:
        require("rapidfuzz", extra="evaluation")
    if counts is not None and not Path(counts).is_file():
        raise InputError(f"There is no file {str(counts)!r}; give one with a word or token and its count per line.")


@dataclass(frozen=True)
class _Language:
    """What depends on the encoder's tokens."""

    words: FrequencyTable | None = None
    frequency: BeforeAfter[SentenceFrequency] | None = None
    logits: LogitReport | None = None
    source: str | None = None
    notes: tuple[str, ...] = ()


def _language(spaces: Spaces, counts: str | Path | None, chosen: Any, distances: list[Matrix]) -> _Language:
    encoder, notes = spaces.encoder, []
    if not has_token_embeddings(encoder):
        return _Language(notes=(f"Nothing on word frequency and logits: {encoder.name!r} has no token embeddings.",))
    table, ids = input_embeddings(encoder), token_ids(encoder, spaces.sentences)
    occurrences = count_tokens_of(encoder, ids, len(table), counts)
    rarity = mean_log_frequency([ids[i] for i in chosen], occurrences.by_id, skip_uncounted=occurrences.of_words)
    frequency = [
        sentence_frequency(rarity, np.linalg.norm(x[chosen], axis=1), distance)
        for x, distance in zip((spaces.before, spaces.after), distances, strict=True)
    ]
    try:
        logits = decompose_masked_lm(encoder, spaces.sentences, occurrences.by_id, seed=spaces.random_state)
    except InputError as error:
        logits = None
        notes.append(f"Nothing on logits: {error}")
    words = frequency_table(table[occurrences.ranked()])
    return _Language(words, BeforeAfter(*frequency), logits, occurrences.source, tuple(notes))


def _density(
    spaces: Spaces, chosen: Any, distances: list[Matrix]
) -> tuple[BeforeAfter[DensityProfile] | None, tuple[Outlier, ...]]:
    scores = spaces.log_density()
    if scores is None:
        return None, ()
    profiles = BeforeAfter(*(density_profile(scores[chosen], distance) for distance in distances))
    return profiles, list_outliers(spaces.sentences, scores, spaces.model.dim, LEAST_LIKELY)


def _pair_geometry(spaces: Spaces, task: PairTask) -> PairGeometry:
    first, second = (
        [text for pairs in task.subsets.values() for text in getattr(pairs, side)]
        for side in ("sentences1", "sentences2")
    )
    gold: Vector = np.concatenate(list(task.gold.values()))
    edits = edit_distances(first, second)
    both = list(zip(*(spaces.embed(side) for side in (first, second)), strict=True))
    same = gold >= gold.min() + PARAPHRASES * (gold.max() - gold.min())
    # rounded, so that pairs of equal sentences have equal cosines, as in evaluation
    cosines = [cosine_of_pairs(*(side.astype(np.float64) for side in space)).round(12) for space in both]
    summaries = [lexical_summary(values, edits, gold) for values in cosines]
    return PairGeometry(
        pairs=len(gold),
        gold=lexical_summary(gold, edits),
        similarity=BeforeAfter(*summaries),
        paraphrases=int(same.sum()),
        alignment=BeforeAfter(*(alignment(a[same], b[same]) for a, b in both)) if gold.max() > gold.min() else None,
    )
