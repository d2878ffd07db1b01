"""Search: do the documents that people judged relevant come first among all documents?

Metrics as trec_eval and BEIR compute them: nDCG@10 with linear gains and log2 discounts, its ideal taken over all judged
documents; queries without a relevant document are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix, unit_rows
from bertflow.errors import InputError
from bertflow.evaluation.bootstrap import resampled
from bertflow.evaluation.scores import Score, with_interval
from bertflow.evaluation.tasks.base import Encode, Task, encode_once
from bertflow.storage.text_files import place, read_table, read_tsv

METRICS = ("ndcg@10", "mrr@10", "recall@100")
DEEPEST = 100
_CELLS = 2**25  # queries × documents held at once


@dataclass(frozen=True, eq=False)
class SearchTask(Task):
    """Queries, documents, and which documents answer which query.

    Args:
        name: Such as ``"cisi"``.
        queries: Texts by id.
        documents: Texts by id.
        relevant: For each query's id the grades of judged documents by id; above zero is relevant.
        metric: ``"ndcg@10"``, ``"mrr@10"`` or ``"recall@100"``.
    """

    metrics: ClassVar[tuple[str, ...]] = METRICS
    files: ClassVar[tuple[str, ...]] = ("queries", "corpus", "qrels")

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, float]]
    metric: str = METRICS[0]

    def __post_init__(self) -> None:
        self.check_metric(self.metric)
        strange = next((query for query in self.relevant if query not in self.queries), None)
        if strange is not None:
            raise InputError(
                f"{self.name}: documents are judged for the query {strange!r}, which is not among the queries."
            )
        judged = ((query, document) for query, grades in self.relevant.items() for document in grades)
        lost = next(((query, document) for query, document in judged if document not in self.documents), None)
        if lost is not None:
            raise InputError(
                f"{self.name}: query {lost[0]!r} has the document {lost[1]!r} judged, which is not in the corpus."
            )
        if not self.judged:
            raise InputError(f"{self.name} has no query with a relevant document (a grade above 0).")

    @classmethod
    def load(cls, **files: Any) -> SearchTask:
        """Read ``queries``, ``corpus`` and ``qrels`` in BEIR's layout: see ``load_search``."""
        return load_search(files["queries"], files["corpus"], files["qrels"])

    @cached_property
    def judged(self) -> list[str]:
        """Ids of the queries that have a relevant document, in the order of the queries."""
        return [query for query in self.queries if any(grade > 0 for grade in self.relevant.get(query, {}).values())]

    @cached_property
    def fit_sentences(self) -> list[str]:  # type: ignore[override]
        """The distinct documents and queries."""
        return list(dict.fromkeys([*self.documents.values(), *self.queries.values()]))

    @property
    def sentences(self) -> list[str]:
        """The distinct documents and judged queries."""
        return list(dict.fromkeys([*self.documents.values(), *(self.queries[query] for query in self.judged)]))

    def judged_by(self, metric: str | None = None, setting: str | None = None) -> SearchTask:
        """Return the same task with another metric; there are no sub-sets."""
        return self if metric is None else replace(self, metric=metric)

    def score(self, encode: Encode, *, resamples: int = 1000, seed: int = 0, confidence: float = 0.95) -> Score:
        """Search by cosine and judge what comes first; the resamples are of queries."""
        found = self._metrics(encode)
        units = 100 * found[self.metric]
        draws = (
            resampled(lambda counts: counts @ units / len(units), len(units), resamples, seed) if resamples else None
        )
        return Score(
            float(units.mean()),
            setting="all",
            metric=self.metric,
            size=len(units),
            per_subset={},
            unit="queries",
            also={name: 100 * float(values.mean()) for name, values in found.items() if name != self.metric},
            units=units,
            **with_interval(draws, confidence),
        )

    def _metrics(self, encode: Encode) -> dict[str, npt.NDArray[np.float64]]:
        """Every metric of every judged query, (n,) by name."""
        rows = encode_once(encode, self.sentences)
        queries = unit_rows(rows([self.queries[query] for query in self.judged]))
        documents, ids = unit_rows(rows(list(self.documents.values()))), list(self.documents)
        found = []
        for query, top in zip(self.judged, self._search(queries, documents), strict=True):
            grades = self.relevant[query]
            found.append(_judge([grades.get(ids[row], 0.0) for row in top], grades))
        return dict(zip(METRICS, np.array(found).T, strict=True))

    def _search(self, queries: Matrix, documents: Matrix) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the rows of the first documents for each query; a query that is a document does not find itself."""
        place = {document: number for number, document in enumerate(self.documents)}
        step = max(1, _CELLS // len(documents))
        for number, query in enumerate(self.judged):
            if number % step == 0:
                products = queries[number : number + step] @ documents.T
            cosines = products[number % step]
            if self.documents.get(query) == self.queries[query]:
                cosines[place[query]] = -np.inf
            deep = len(cosines) > DEEPEST
            top = np.argpartition(-cosines, DEEPEST)[:DEEPEST] if deep else np.arange(len(cosines))
            yield top[np.lexsort((top, -cosines[top]))]


def load_search(queries: str | Path, corpus: str | Path, qrels: str | Path, name: str | None = None) -> SearchTask:
    """Load a search task in BEIR's layout.

    Args:
        queries: A table with ``_id`` and ``text``, such as ``queries.jsonl``.
        corpus: The same, and ``title`` where there is one, which is put before the text: ``corpus.jsonl``.
        qrels: A ``.tsv`` file with a header and three columns: query id, document id, grade.
        name: Of the task; default: the folder of the corpus.
    """
    texts = [dict(_identified(path)) for path in (queries, corpus)]
    relevant: dict[str, dict[str, float]] = {}
    for number, row in read_tsv(qrels):
        if len(row) != 3:
            raise InputError(
                f"{place(qrels, number)} has {len(row)} column(s); three were expected: query, document, grade."
            )
        query, document, grade = row.values()
        try:
            relevant.setdefault(query, {})[document] = float(grade)
        except ValueError:
            raise InputError(f"{place(qrels, number)} has the grade {grade!r:.40}; a number was expected.") from None
    return SearchTask(name or Path(corpus).resolve().parent.name, texts[0], texts[1], relevant)


def _identified(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each row."""
    seen = set()
    for number, row in read_table(path):
        key, text = row.get("_id", row.get("id")), row.get("text")
        if key is None or not isinstance(text, str):
            raise InputError(f"{place(path, number)} has the columns {', '.join(row)}; '_id' and 'text' are needed.")
        if str(key) in seen:
            raise InputError(f"{place(path, number)} has the id {key!r:.60} a second time; each must be unique.")
        seen.add(str(key))
        yield str(key), f"{row.get('title') or ''} {text}".strip()


def _judge(grades: list[float], judged: Mapping[str, float]) -> tuple[float, float, float]:
    """The metrics of one query, in the order of ``METRICS``, from the grades of what was found, first ones first."""
    gains = np.maximum(grades, 0.0)
    ideal = np.sort(np.maximum(list(judged.values()), 0.0))[::-1]
    hits = np.flatnonzero(gains[:10])
    first = 1 / (1 + hits[0]) if len(hits) else 0.0
    return _dcg(gains[:10]) / _dcg(ideal[:10]), float(first), float((gains[:DEEPEST] > 0).sum() / (ideal > 0).sum())


def _dcg(gains: npt.NDArray[np.float64]) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
