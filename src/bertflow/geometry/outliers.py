"""The least likely sentences of a corpus: garbage, other languages and true oddities come up first."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators import FlowCalibrator
from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.geometry.association import Vector
from bertflow.geometry.density import robust_z
from bertflow.geometry.spaces import raw_vectors
from bertflow.model import FEW, BertFlow
from bertflow.storage.remembering import Remembering
from bertflow.texts import check_sentences

logger = logging.getLogger(__name__)

FOLDS = 4


@dataclass(frozen=True)
class Outlier:
    """One sentence and how unlikely it is.

    Args:
        rank: From 1, the least likely.
        position: Where it stands first among the sentences given, from 0.
        times: How often it occurs.
        text: The sentence.
        log_density: In nats; None where it lies so far out that the number overflows.
        bits_per_dim: −log-density / (d · ln 2), the flow's loss: the higher, the less likely; below zero is normal.
        z: Robust standard deviations above (below: negative) the median log-density of the corpus.
    """

    rank: int
    position: int
    times: int
    text: str
    log_density: float | None
    bits_per_dim: float | None
    z: float | None


@dataclass(frozen=True)
class Outliers:
    """The least likely sentences of a corpus.

    Args:
        sentences: How many different ones were looked at.
        folds: Each was scored by a flow fitted on the other folds; 0 where a given model scored them.
        entries: The least likely first.
    """

    sentences: int
    folds: int
    entries: tuple[Outlier, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def find_outliers(
    sentences: Sequence[str],
    encoder: Any = "mini",
    pooling: str | None = None,
    *,
    model: BertFlow | None = None,
    top: int = 20,
    folds: int = FOLDS,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Outliers:
    """List the sentences that a flow finds least likely.

    Without a model, the corpus is cut into folds, and each sentence is scored by a flow fitted on the *other* folds: a flow
    that has seen an outlier finds it less odd. Log-densities of different flows are put on one scale by their medians.

    Args:
        sentences: A corpus, better thousands of sentences; repeated ones are scored once.
        encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``.
        pooling: One of ``bertflow.POOLINGS``, for an encoder given by name.
        model: A fitted model with a flow, such as one of a clean corpus, instead.
        top: How many to list.
        folds: At least 2.
        random_state: Seeds folds and flows.
        device: For an encoder given by name.
        show_progress_bar: Show progress.
    """
    if top < 1 or folds < 2:
        raise InputError(f"top is {top} and folds {folds}; at least 1 and 2 were expected.")
    given = check_sentences(sentences)
    times = Counter(given)
    texts = list(times)
    options = {} if device is None else {"device": device}
    _check_task(model, len(texts), folds)
    if model is None:
        known = Remembering(as_encoder(encoder, pooling, **options), show_progress_bar=show_progress_bar)
        vectors = raw_vectors(known, texts)
        scores, dim = held_out_log_density(vectors, folds, random_state), vectors.shape[1]
    else:
        scores, dim = np.asarray(model.score_samples(texts), dtype=np.float64), model.dim
    first = {text: position for position, text in reversed(list(enumerate(given)))}
    entries = list_outliers(texts, scores, dim, top, first, times)
    return Outliers(len(texts), 0 if model else folds, entries)


def list_outliers(
    texts: Sequence[str],
    scores: Vector,
    dim: int,
    top: int,
    first: dict[str, int] | None = None,
    times: dict[str, int] | None = None,
) -> tuple[Outlier, ...]:
    """Return the ``top`` texts of lowest log-density, with where each stands first and how often, if that is known."""
    z = robust_z(scores)
    return tuple(
        Outlier(
            rank=rank,
            position=first[texts[row]] if first else int(row),
            times=times[texts[row]] if times else 1,
            text=texts[row],
            log_density=_finite(scores[row]),
            bits_per_dim=_finite(-scores[row] / (dim * math.log(2))),
            z=_finite(z[row]),
        )
        for rank, row in enumerate(np.argsort(scores, kind="stable")[:top], start=1)
    )


def held_out_log_density(vectors: Matrix, folds: int = FOLDS, random_state: int = 0) -> Vector:
    """Log-density (n,) of each row under a flow fitted on the other folds' rows, each fold shifted to the common median."""
    order = np.random.default_rng(random_state).permutation(len(vectors))
    scores = np.empty(len(vectors))
    medians = []
    for fold in range(folds):
        held = order[fold::folds]
        flow = FlowCalibrator(random_state=random_state).fit(np.delete(vectors, held, axis=0))
        found = np.asarray(flow.score_samples(vectors[held]), dtype=np.float64)
        medians.append(float(np.median(found)))
        scores[held] = found - medians[-1]
    return scores + float(np.mean(medians))


def _check_task(model: BertFlow | None, n: int, folds: int) -> None:
    if model is not None:
        return
    if n < 4 * folds:
        raise InputError(
            f"{n} different sentence(s) came; to tell the odd ones from the others, at least {4 * folds} are needed, better "
            "thousands. Or give a model that was fitted on more."
        )
    if n < FEW:
        logger.warning("Only %d different sentences: what is odd among so few is uncertain.", n)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
