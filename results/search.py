"""Does calibration help search? Each query's document among all, by cosine, with raw and calibrated vectors.

    python results/search.py --encoder mini [--encoder ANOTHER …]

Prints a table for each encoder: the share of queries whose document comes first, and the mean reciprocal rank, ×100. All is
fitted on what is searched and on the queries, without labels; means over the seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from bertflow.calibrators.names import is_random, make_calibrator
from bertflow.encoders.joined import BEST, STATIC, WORDS_IN_CONTEXT, JoinedEncoder, calibrator_for
from shared_data import use_shared_data

from bertflow.arrays import Matrix
from bertflow.data import sample_pairs, sample_sentences
from bertflow.encoders.token_table import StaticEncoder
from bertflow.encoders.transformer import Encoder
from bertflow.evaluation import SearchScore, load_task, score_search
from bertflow.storage.remembering import Remembering

CALIBRATORS = {"raw": "none", "whitening": "whitening", "flow": "flow"}  # on first-last-avg


class Haystack(NamedTuple):
    """Queries, what belongs to each, and all that is searched."""

    queries: list[str]
    wanted: list[str]
    documents: list[str]


def main(
    encoder: Annotated[list[str], typer.Option(help="Model name or folder.")] = ["mini"],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Seeds of the flows and features.")] = 3,
) -> None:
    """Print a table for each encoder."""
    places = {"QNLI: question → answer": qnli(), "STS-B: same meaning": sts_b(), "shipped pairs": shipped()}
    for name in encoder:
        typer.echo(f"\n{Path(name).name}: found first | mean reciprocal rank\n")
        sizes = [f"{title} ({len(p.queries)} among {len(set(p.documents))})" for title, p in places.items()]
        typer.echo(f"| | {' | '.join(sizes)} |\n|---{'|---:' * len(sizes)}|")
        contextual = Remembering(Encoder(name))
        pooling, words_only = WORDS_IN_CONTEXT
        alone = Encoder(name, pooling, words_only=words_only)
        words = Remembering(alone)
        tables = [StaticEncoder.distill(alone, random_state=seed) for seed in range(seeds)]
        for row in (*CALIBRATORS, STATIC, BEST):
            cells = []
            for place in places.values():
                texts = list(dict.fromkeys([*place.documents, *place.queries]))
                if row in CALIBRATORS:
                    several = range(seeds) if is_random(CALIBRATORS[row]) else range(1)
                    made = [(contextual.encode, make_calibrator(CALIBRATORS[row], seed)) for seed in several]
                else:
                    weighted = [table.weighted_by(texts) for table in tables]
                    encoders = weighted if row == STATIC else [JoinedEncoder(table, words) for table in weighted]
                    made = [(one.encode, calibrator_for(one, random_state=s)) for s, one in enumerate(encoders)]
                cells.append(cell([search(place, texts, *each) for each in made]))
            typer.echo(f"| {row} | {' | '.join(cells)} |")


def search(place: Haystack, texts: list[str], encode: Callable[[list[str]], Matrix], calibrator: object) -> SearchScore:
    """Score a calibrator that was fitted on the texts themselves."""
    vectors = calibrator.fit_transform(encode(texts))
    row = {text: number for number, text in enumerate(texts)}
    return score_search(*place, lambda wanted: vectors[[row[text] for text in wanted]])


def cell(scores: list[SearchScore]) -> str:
    """Both figures, means over seeds."""
    return f"{np.mean([score.first for score in scores]):.1f} \\| {np.mean([score.mrr for score in scores]):.1f}"


def qnli() -> Haystack:
    """Questions of the dev set, and the sentence that answers each."""
    pairs = load_task("QNLI").subsets["all"]
    rows = np.flatnonzero(pairs.gold == 1)
    return Haystack([pairs.sentences1[i] for i in rows], [pairs.sentences2[i] for i in rows], pairs.sentences2)


def sts_b() -> Haystack:
    """Pairs of the test set that people gave 4 or more of 5; all sentences of the data set are searched."""
    task = load_task("STS-B")
    pairs = task.subsets["all"]
    rows = [i for i in np.flatnonzero(pairs.gold >= 4) if pairs.sentences1[i] != pairs.sentences2[i]]
    return Haystack([pairs.sentences1[i] for i in rows], [pairs.sentences2[i] for i in rows], list(task.fit_sentences))


def shipped() -> Haystack:
    """The shipped pairs of 3 or more of 5, among all sentences that ship, as in the demo."""
    pairs = sample_pairs()
    alike = [pair for pair in pairs if pair.score >= 3]
    documents = [*(pair.sentence2 for pair in pairs), *sample_sentences()]
    return Haystack([pair.sentence1 for pair in alike], [pair.sentence2 for pair in alike], documents)


if __name__ == "__main__":
    use_shared_data()
    typer.run(main)
