"""Search: does what belongs to a query come first among many documents?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix, as_matrix, unit_rows
from bertflow.errors import InputError
from bertflow.evaluation.tasks.base import Encode

QUERIES_AT_ONCE = 512


@dataclass(frozen=True)
class SearchScore:
    """How well a search did, ×100.

    Args:
        queries: How many were asked.
        documents: Among how many each was searched.
        first: Share of the queries whose document came first.
        ten: Share of those where it was among the first ten.
        mrr: Mean of 1 / rank.
    """

    queries: int
    documents: int
    first: float
    ten: float
    mrr: float


def score_search(queries: Sequence[str], wanted: Sequence[str], documents: Sequence[str], embed: Encode) -> SearchScore:
    """Search each query's document among all of them by cosine.

    Args:
        queries: n texts.
        wanted: The document that belongs to each, n texts out of ``documents``.
        documents: What is searched; where a query itself is among them, it is passed over.
        embed: Maps a list of texts to vectors. It is called once, with every distinct text.
    """
    place = {document: row for row, document in enumerate(dict.fromkeys(documents))}
    strange = [document for document in wanted if document not in place]
    if strange or len(queries) != len(wanted) or not len(queries):
        raise InputError(
            f"{len(queries)} queries came with {len(wanted)} wanted documents, {len(strange)} of which are not among the "
            f"{len(place)} documents; each query needs one of these."
        )
    texts = list(dict.fromkeys([*place, *queries]))
    vectors = unit_rows(as_matrix(embed(texts), "embeddings"))
    row = {text: number for number, text in enumerate(texts)}
    rank = ranks(
        vectors[[row[query] for query in queries]],
        vectors[: len(place)],
        np.array([place[document] for document in wanted]),
        np.array([place.get(query, -1) for query in queries]),
    )
    shares = (rank == 1).mean(), (rank <= 10).mean(), (1 / rank).mean()
    return SearchScore(len(queries), len(place), *(100 * float(share) for share in shares))


def ranks(
    queries: Matrix, documents: Matrix, wanted: npt.NDArray[np.int64], passed_over: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the rank (n,) of each query's document by dot product, 1 for the first; of equals it is the first.

    Args:
        queries: (n, d).
        documents: (m, d).
        wanted: Row of each query's document, (n,).
        passed_over: A row that does not count for that query, or −1, (n,).
    """
    found = []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        products = queries[part] @ documents.T
        rows = np.arange(len(products))
        of_wanted = products[rows, wanted[part]].copy()
        skipping = passed_over[part] >= 0
        products[rows[skipping], passed_over[part][skipping]] = -np.inf
        found.append(1 + (products > of_wanted[:, None]).sum(1))
    return np.concatenate(found)
