"""Labelled texts for the tables of this folder; found through BERTFLOW_DATA or in ../shared/data."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]


class Labelled(NamedTuple):
    """Distinct texts and what each is about: two of different numbers are not about the same."""

    texts: list[str]
    labels: Labels


class Search(NamedTuple):
    """Documents, queries, and rows that belong together: pairs of a query and a document.

    What was judged and found not relevant had been retrieved by some system: it is near, and no example of an unrelated one.
    """

    documents: list[str]
    queries: list[str]
    relevant: set[tuple[int, int]]
    judged: set[tuple[int, int]]


def tasks_folder() -> Path:
    """Return the folder of the data sets."""
    return Path(os.environ.get("BERTFLOW_DATA", Path(__file__).parents[2] / "shared" / "data")) / "tasks"


def banking(part: str = "train") -> Labelled:
    """Questions to a bank, in 77 intents, whose numbers are the same in both parts."""
    with (tasks_folder() / f"clustering/banking77_{part}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"].strip(), row["category"]) for row in csv.DictReader(file)]
    return _labelled(rows)


def parade() -> Labelled:
    """Definitions from computer science, of one entity each."""
    rows = list(_tab_separated("paraphrase/parade_validation.tsv"))[1:]
    return _labelled([(row[side].strip(), row[2]) for row in rows for side in (3, 4)])


def qqp_pairs() -> list[tuple[str, str, int]]:
    """Pairs of questions, duplicates or not."""
    return [(row[0].strip(), row[1].strip(), int(row[2])) for row in _tab_separated("paraphrase/qqp_dev.tsv")]


def lcqmc_pairs() -> list[tuple[str, str, int]]:
    """Pairs of Chinese questions, of the same meaning or not."""
    return [
        (row[0].strip(), row[1].strip(), int(row[2])) for row in _tab_separated("zh/lcqmc_dev.tsv") if len(row) == 3
    ]


def chained(pairs: list[tuple[str, str, int]]) -> Labelled:
    """Texts of labelled pairs; whatever a chain of pairs joins has one number, for all pairs were chosen to be near."""
    number: dict[str, int] = {}
    above: list[int] = []

    def root(row: int) -> int:
        while above[row] != row:
            above[row] = row = above[above[row]]
        return row

    for one, other, _ in pairs:
        for text in (one, other):
            if number.setdefault(text, len(above)) == len(above):
                above.append(len(above))
        above[root(number[one])] = root(number[other])
    return Labelled(list(number), np.array([root(row) for row in range(len(above))]))


def search(name: str) -> Search:
    """``"cisi"`` or ``"dbpedia"``: the documents, and the queries that have relevant ones among them."""
    folder = tasks_folder() / "retrieval" / name
    documents = {
        row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in _json_lines(folder / "corpus.jsonl")
    }
    queries = {row["_id"]: row["text"] for row in _json_lines(folder / "queries.jsonl")}
    lines = [line.split("\t") for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    grades = {(line[0], line[-2]): int(line[-1]) for line in lines if line[0] in queries and line[-2] in documents}
    asked = {
        query: row for row, query in enumerate(dict.fromkeys(one for (one, _), grade in grades.items() if grade > 0))
    }
    place = {name: row for row, name in enumerate(documents)}
    judged = {(asked[one], place[other]): grade for (one, other), grade in grades.items() if one in asked}
    relevant = {pair for pair, grade in judged.items() if grade > 0}
    return Search(list(documents.values()), [queries[query] for query in asked], relevant, set(judged))


def _labelled(rows: list[tuple[str, str]]) -> Labelled:
    known = dict(rows)
    names = {name: number for number, name in enumerate(sorted(set(known.values())))}
    return Labelled(list(known), np.array([names[name] for name in known.values()]))


def _tab_separated(name: str) -> Iterator[list[str]]:
    with (tasks_folder() / name).open(encoding="utf-8") as file:
        yield from (line.rstrip("\n").split("\t") for line in file)


def _json_lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
