"""Flat maps of sentences and words: two singular directions before and after, one colour for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from bertflow.arrays import Matrix
from bertflow.errors import InputError
from bertflow.geometry import Spaces
from bertflow.geometry.association import Vector
from bertflow.geometry.frequency import FrequencyTable, frequency_table
from bertflow.geometry.neighbours import neighbour_distances
from bertflow.geometry.rows import sample_indices
from bertflow.geometry.tokens import count_tokens_of, has_token_embeddings, input_embeddings, token_ids, tokenizer_of
from bertflow.paper.figures import main_directions

SENTENCES = 20_000  # drawn at most; more would make the page heavy and the picture no clearer
WORDS = 10_000  # as many as Table 1 looks at
FEWEST_WORDS = 20
LEVELS = 16  # shades of colour: more cannot be told apart
NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class SpaceMap:
    """Points on the two main singular directions of either space.

    Args:
        labels: What each point stands for, n of them.
        before: (n, 2).
        after: (n, 2).
        levels: Shade of each point, (n,), from 0 to ``LEVELS`` − 1.
        values: The figure behind the shade, (n,).
        shade: What the shade means, in words.
        low: What the lowest shade is.
        high: What the highest is.
        total: How many there are, of which n are drawn.
    """

    labels: list[str]
    before: Matrix
    after: Matrix
    levels: npt.NDArray[np.int64]
    values: Vector
    shade: str
    low: str
    high: str
    total: int


@dataclass(frozen=True, eq=False)
class WordSpace:
    """An encoder's input embeddings, and the same calibrated.

    Args:
        map: The most frequent words.
        table: Table 1 of the calibrated embeddings.
        counts: Where the frequencies are from.
    """

    map: SpaceMap
    table: FrequencyTable
    counts: str


def sentence_map(spaces: Spaces, limit: int = SENTENCES) -> SpaceMap:
    """Draw sentences, coloured by density: that of the model, or else by how near the neighbours are in the raw space."""
    rows = sample_indices(len(spaces.sentences), limit, spaces.random_state)
    values: Vector
    density = spaces.log_density()
    if density is not None:
        values, shade = density[rows], "log-density under the model"
    else:
        values = -neighbour_distances(spaces.before[rows], min(NEIGHBOURS, len(rows) - 1)).astype(np.float64)
        shade = f"nearness of the {NEIGHBOURS} nearest sentences, before"
    return SpaceMap(
        labels=[spaces.sentences[i] for i in rows],
        before=_flattened(spaces.before)[rows],
        after=_flattened(spaces.after)[rows],
        levels=quantile_levels(values),
        values=values,
        shade=shade,
        low="sparse, unlikely",
        high="dense, likely",
        total=len(spaces.sentences),
    )


def word_space(spaces: Spaces, counts: str | Path | None = None) -> WordSpace | None:
    """Draw words, coloured by frequency; None where the encoder has no token embeddings or too few words are counted.

    Sentence vectors and input embeddings are different spaces, so the words get a calibrator of their own: of the kind and
    settings of the model's last part, fitted on the words. None too where that keeps more dimensions than words have.
    """
    if not has_token_embeddings(spaces.encoder):
        return None
    table = input_embeddings(spaces.encoder)
    occurrences = count_tokens_of(spaces.encoder, token_ids(spaces.encoder, spaces.sentences), len(table), counts)
    ranked = occurrences.ranked()
    if len(ranked) < FEWEST_WORDS:
        return None
    before = table[ranked]
    try:
        after = clone(spaces.model.parts[-1].calibrator).fit(before).transform(before)
    except InputError:
        return None
    shown = ranked[:WORDS].tolist()
    points = SpaceMap(
        labels=_spelt(tokenizer_of(spaces.encoder), shown),
        before=_flattened(before)[: len(shown)],
        after=_flattened(after)[: len(shown)],
        levels=frequency_levels(len(shown)),
        values=occurrences.by_id[shown].astype(np.float64),
        shade="frequency rank, on a logarithmic scale",
        low="rare",
        high="frequent",
        total=len(ranked),
    )
    return WordSpace(points, frequency_table(after), occurrences.source)


def quantile_levels(values: Vector) -> npt.NDArray[np.int64]:
    """Shade by rank, so that a few extreme values do not take all the colours."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return ranks * LEVELS // len(values)


def frequency_levels(words: int) -> npt.NDArray[np.int64]:
    """Shade by the logarithm of the rank, the most frequent highest."""
    share = np.log(np.arange(words) + 1) / np.log(max(words, 2))
    return np.minimum(((1 - share) * LEVELS).astype(np.int64), LEVELS - 1)


def _flattened(vectors: Matrix) -> Matrix:
    """Return the coordinates on the two main directions, (n, 2), turned so that a cloud off the origin lies to its right."""
    points = main_directions(vectors)
    return points * np.where(points.mean(axis=0) < -0.1 * points.std(axis=0), -1, 1)


def _spelt(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    return [str(token) for token in tokenizer.convert_ids_to_tokens(list(ids))]
