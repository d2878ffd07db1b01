"""Duplicates: ours against SemHash on the same vectors and on its own kind, and MinHash.

    pip install semhash datasketch
    python results/duplicates.py [--encoder mini] > results/duplicates.md

Each method says which text every text is a duplicate of, or that it is none; a pair counts as found where both stand for the
same text. QQP: the questions of all pairs are one corpus, and the labelled pairs are judged. Edits: Banking77's questions,
each tenth with an edited copy (two wrong letters, a word dropped, two words swapped, other case and punctuation), and whatever
else is removed counts as wrong. Seconds of finding, without encoding, on one busy core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from corpora import banking, qqp_pairs

from bertflow import BertFlow, Encoder
from bertflow.corpus import find_duplicates
from bertflow.recipes import readings
from bertflow.storage.remembering import Remembering

Kept = list[int]  # of each text the one that it stands for
RECIPES = "raw", "static", "best"
FALSE = 1, 10, 100


def main(encoder: Annotated[str, typer.Option(help="Model name or folder.")] = "mini") -> None:
    """Print a table for each task."""
    typer.echo(f"# Duplicates\n\n{(__doc__ or '').split(chr(10) * 2, 2)[2]}")
    plain = Encoder(encoder)
    known = Remembering(plain, readings(RECIPES, plain))
    for title, (texts, judged) in {"QQP": qqp(), "Edits": edits(np.random.default_rng(0))}.items():
        kinds = "one" if title == "QQP" else "an edit"
        typer.echo(f"\n## {title}: {len(texts)} texts, {sum(judged.values())} pairs are {kinds}\n")
        typer.echo("| | precision | recall | F1 | seconds |\n|---|---:|---:|---:|---:|")
        vectors = {recipe: BertFlow.fit(texts, known, recipe=recipe).encode(texts) for recipe in RECIPES}
        rows: dict[str, Callable[[], Kept]] = {}
        for recipe in RECIPES:
            for count in FALSE:
                name = f"bertflow duplicates, {recipe}, {count:,} false expected"
                rows[name] = partial(ours, texts, vectors[recipe], count)
        for recipe in ("raw", "static"):
            rows[f"SemHash, its threshold 0.9, {recipe}"] = partial(semhash, texts, vectors[recipe])
        for threshold in (0.5, 0.7):
            rows[f"MinHash of words, Jaccard {threshold}"] = partial(minhash, texts, threshold)
        for name, find in rows.items():
            start = time.perf_counter()
            found = find()
            seconds = time.perf_counter() - start
            typer.echo(f"| {name} | {cells(found, judged, title == 'Edits')} | {seconds:.1f} |")


def cells(kept: Kept, judged: dict[tuple[int, int], bool], every: bool) -> str:
    """Return precision, recall and F1: of the judged pairs, or of all that is removed."""
    true = sum(one and kept[a] == kept[b] for (a, b), one in judged.items())
    claimed = sum(row != one for row, one in enumerate(kept)) if every else sum(kept[a] == kept[b] for a, b in judged)
    precision, recall = true / max(claimed, 1), true / sum(judged.values())
    return (
        f"{100 * precision:.1f} | {100 * recall:.1f} | {200 * precision * recall / max(precision + recall, 1e-9):.1f}"
    )


def ours(texts: list[str], vectors: Any, count: float) -> Kept:
    """Return what ``find_duplicates`` finds."""
    kept = list(range(len(texts)))
    for pair in find_duplicates(texts, vectors=vectors, expect_false=count).removed:
        kept[pair.first] = pair.second
    return kept


def semhash(texts: list[str], vectors: Any) -> Kept:
    """Return what SemHash finds, by its defaults."""
    from semhash import SemHash

    hashed = SemHash.from_embeddings(np.asarray(vectors), records=texts, model=None, ann_backend="basic")
    place = {text: row for row, text in enumerate(texts)}
    kept = list(range(len(texts)))
    for one in hashed.self_deduplicate().filtered:
        kept[place[one.record]] = place[one.duplicate_of]
    return kept


def minhash(texts: list[str], threshold: float) -> Kept:
    """Return what datasketch's MinHash finds among sets of words, checked with the exact Jaccard index."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=128)
    sets = [frozenset(text.lower().split()) for text in texts]
    kept = list(range(len(texts)))
    for row, words in enumerate(sets):
        sketch = MinHash(num_perm=128)
        sketch.update_batch([word.encode() for word in words])
        shares = {other: len(words & sets[other]) / len(words | sets[other]) for other in index.query(sketch)}
        best = max(shares, key=lambda other: shares[other], default=row)
        if shares.get(best, 0) >= threshold:
            kept[row] = best
        else:
            index.insert(row, sketch)
    return kept


def qqp() -> tuple[list[str], dict[tuple[int, int], bool]]:
    """Return all questions, and the labelled pairs of different ones."""
    pairs = qqp_pairs()
    place: dict[str, int] = {}
    for one, other, _ in pairs:
        place.setdefault(one, len(place))
        place.setdefault(other, len(place))
    judged = {(min(place[a], place[b]), max(place[a], place[b])): bool(label) for a, b, label in pairs if a != b}
    return list(place), judged


def edits(rng: np.random.Generator) -> tuple[list[str], dict[tuple[int, int], bool]]:
    """Return questions with edited copies of every tenth, and which belong together."""
    texts = banking().texts
    found, judged = list(texts), {}
    for row in range(0, len(texts), 10):
        copy = edited(texts[row], int(rng.integers(4)), rng)
        if copy not in texts:
            judged[row, len(found)] = True
            found.append(copy)
    return found, judged


def edited(text: str, kind: int, rng: np.random.Generator) -> str:
    """Return a text with two typos, without a word, with two words swapped, or in other case and punctuation."""
    words = text.split()
    place = int(rng.integers(max(1, len(words) - 1)))
    if kind == 0:
        letters = list(text)
        for at in rng.integers(len(letters), size=2).tolist():
            letters[at] = str(rng.choice(list("abcdefghijklmnopqrstuvwxyz")))
        return "".join(letters)
    if kind == 1:
        return " ".join(words[:place] + words[place + 1 :])
    if kind == 2:
        return " ".join([*words[:place], *words[place : place + 2][::-1], *words[place + 2 :]])
    return text.upper().rstrip("?.!") + "!"


if __name__ == "__main__":
    typer.run(main)
