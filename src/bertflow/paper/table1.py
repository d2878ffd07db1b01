"""Table 1: word embeddings by frequency rank. Frequent words lie near the origin and close together, rare ones do not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertflow.arrays import Matrix
from bertflow.data import MINI
from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.evaluation import find_data
from bertflow.geometry.frequency import PAPER_BINS, ByBin, frequency_table, rank_tokens, read_word_counts
from bertflow.geometry.tokens import input_embeddings, tokenizer_of
from bertflow.paper.layout import PaperTable, Row

COUNTS_FILE = Path("frequency") / "enwiki_120M_wordcount.txt"
COLUMNS = ("(0,100)", "[100,500)", "[500,5K)", "[5K,10K)")
PAPER_NORM = (0.95, 1.04, 1.22, 1.45)
PAPER_DISTANCE = {3: (0.77, 0.93, 1.16, 1.30), 5: (0.83, 0.99, 1.22, 1.34), 7: (0.87, 1.04, 1.26, 1.37)}
PAPER_DOT = {3: (0.73, 0.92, 1.20, 1.63), 5: (0.73, 0.91, 1.19, 1.61), 7: (0.72, 0.90, 1.17, 1.60)}


@dataclass(frozen=True, eq=False)
class WordEmbeddings:
    """The input embeddings of an encoder's whole words, by falling frequency.

    Args:
        encoder: Its name.
        vectors: (n, d), the most frequent word first.
        counts: The file that ranked them.
    """

    encoder: str
    vectors: Matrix
    counts: Path


def run(encoder: Any = MINI, *, counts: str | Path | None = None, data: str | Path | None = None) -> PaperTable:
    """Measure the input word embeddings of an encoder by frequency rank.

    Args:
        encoder: A name, a folder, a SentenceTransformer or an ``Encoder``.
        counts: A file of ``word count`` lines; by default ``frequency/enwiki_120M_wordcount.txt`` in the data folder.
        data: The folder of data sets; see ``bertflow.evaluation.find_data``.
    """
    words = word_embeddings(encoder, counts, data)
    table = frequency_table(words.vectors)
    rows = [Row("mean ℓ2 norm", PAPER_NORM, table.norm)]
    rows += [Row(f"mean {k}-NN ℓ2 distance", paper, table.distance[k]) for k, paper in PAPER_DISTANCE.items()]
    rows += [Row(f"mean {k}-NN dot product", paper, table.dot[k]) for k, paper in PAPER_DOT.items()]
    return PaperTable(
        name="Table 1",
        title="word embeddings by frequency rank",
        columns=COLUMNS,
        rows=tuple(rows),
        settings={"encoder": words.encoder, "ranked words": len(words.vectors), "counts": words.counts.name},
        notes=(
            *_reading(table.norm, table.distance[3]),
            "The paper's figures are BERT's: with another encoder their course over the bins compares, not their size.",
            *_partial(table.words),
        ),
    )


def word_embeddings(
    encoder: Any = MINI, counts: str | Path | None = None, data: str | Path | None = None
) -> WordEmbeddings:
    """Return an encoder's input embeddings of whole words, ranked; arguments as in ``run``."""
    path = Path(counts) if counts is not None else find_data(data) / COUNTS_FILE
    if not path.is_file():
        raise InputError(
            f"There is no file of word counts at {path}: give counts=, a file with a word, a space or tab, and its count a"
            " line, such as one made from Wikipedia."
        )
    loaded = as_encoder(encoder)
    weights, tokenizer = input_embeddings(loaded), tokenizer_of(loaded)
    ids = rank_tokens(tokenizer.get_vocab(), read_word_counts(path), special=tokenizer.all_special_tokens)
    if not ids:
        raise InputError(
            f"No token of {loaded.name!r} stands for a word of {path}: are they of one language, and both lower-case?"
        )
    return WordEmbeddings(loaded.name, weights[ids], path)


def _reading(norm: ByBin, distance: ByBin) -> tuple[str, ...]:
    """One sentence each on norm and distance: does it grow with rank, as in BERT?"""
    return tuple(
        f"{what} {_course(values)} from the most frequent words to the rarest ({_listed(values)})."
        for what, values in (("The mean norm", norm), ("The mean distance to three neighbours", distance))
        if len(_known(values)) > 1
    )


def _course(values: ByBin) -> str:
    known = _known(values)
    steps = [after - before for before, after in pairwise(known)]
    if all(step > 0 for step in steps):
        return "grows in every bin, as in BERT,"
    if known[-1] > known[0]:
        return f"grows in {sum(step > 0 for step in steps)} of {len(steps)} steps, where BERT's grows in all,"
    return "does not grow, unlike BERT's,"


def _partial(words: tuple[int, ...]) -> tuple[str, ...]:
    short = [
        f"{column} has {n} of {stop - start}"
        for column, n, (start, stop) in zip(COLUMNS, words, PAPER_BINS, strict=True)
        if n < stop - start
    ]
    return (f"The vocabulary has too few whole words to fill every bin: {', '.join(short)}.",) if short else ()


def _known(values: ByBin) -> list[float]:
    return [value for value in values if value is not None]


def _listed(values: ByBin) -> str:
    return ", ".join(f"{value:.2f}" for value in _known(values))
