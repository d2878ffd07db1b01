"""Look at every candidate once: fit without labels, take the splices' scores and the labelled pairs' cosines.

Each text goes through the transformer once, whatever the number of poolings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.advice.candidates import NONE, Candidate, is_named, load_encoder
from bertflow.advice.splices import make_splices, splice_score
from bertflow.analysis.isotropy import Isotropy, isotropy
from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator
from bertflow.calibrators.names import make_calibrator
from bertflow.comparison import cached
from bertflow.encoder import Encoder, TextEncoder, View
from bertflow.evaluation import CachedEncoder, Task, task_similarities
from bertflow.evaluation.pairs import Vector
from bertflow.joined import STATIC, TOKEN_PRESETS, WORDS_IN_CONTEXT, JoinedEncoder, calibrator_for
from bertflow.static import StaticEncoder, has_fast_tokenizer

Embed = Callable[[list[str]], Matrix]


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of all candidates.

    Args:
        encoder: Its name.
        baseline: What gains are counted from: the encoder's own pooling, not calibrated.
        geometry: Of the baseline's space.
        scores: Splice scores ×100; empty with labelled pairs, or where no splices can be made.
        similarities: Cosines of the labelled pairs (n,), all sub-sets joined; empty without pairs.
    """

    encoder: str
    baseline: Candidate
    geometry: Isotropy
    scores: dict[Candidate, float]
    similarities: dict[Candidate, Vector]


def measure(
    sentences: list[str],
    encoder: Any,
    poolings: Sequence[str | None],
    calibrators: Sequence[str],
    pairs: Task | None = None,
    *,
    seed: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Measured:
    """Measure poolings × calibrators, then presets; the first pooling, raw, is the baseline. Arguments as in ``advise``."""
    loaded = load_encoder(encoder, poolings[0], device)
    splices = make_splices(sentences, seed) if pairs is None else None
    asked = [name for name in calibrators if name in TOKEN_PRESETS]
    presets = asked if is_named(encoder) and has_fast_tokenizer(loaded) else []
    plain = [name for name in calibrators if name not in asked]
    others = splices.splices if splices else pairs.sentences if pairs else []
    spaces = list(_spaces(loaded, poolings, bool(presets), [*sentences, *others], show_progress_bar))
    drawn = set(splices.sentences) if splices else set()
    unseen = [
        text for text in sentences if text not in drawn
    ]  # by splices a calibrator is judged on what it has not seen
    scores: dict[Candidate, float] = {}
    similarities: dict[Candidate, Vector] = {}

    def judge(candidate: Candidate, calibrator: Calibrator, embed: Embed) -> None:
        fitted = calibrator.fit(embed(unseen))
        if splices is not None:
            whole, spliced = (fitted.transform(embed(texts)) for texts in (splices.sentences, splices.splices))
            scores[candidate] = splice_score(splices, whole, spliced)
        if pairs is not None:
            found = task_similarities(pairs, lambda texts: fitted.transform(embed(texts)))
            similarities[candidate] = np.concatenate(list(found.values()))

    steps = len(poolings) * len(plain) + len(presets) if splices or pairs else 0
    with tqdm(total=steps, desc="advising", disable=not show_progress_bar) as bar:
        for pooling, space in zip(poolings, spaces, strict=False) if steps else ():
            for calibrator in plain:
                judge(Candidate(pooling, calibrator), make_calibrator(calibrator, seed), space.encode)
                bar.update()
        for preset in presets if steps else ():
            table = StaticEncoder.distill(loaded, unseen, random_state=seed)  # type: ignore[arg-type]
            made = table if preset == STATIC else JoinedEncoder(table, spaces[-1])  # type: ignore[arg-type]
            judge(Candidate(None, preset), calibrator_for(made, random_state=seed), made.encode)
            bar.update()
    geometry = isotropy(spaces[0].encode(sentences), seed=seed)
    return Measured(loaded.name, Candidate(poolings[0], NONE), geometry, scores, similarities)


class _Space:
    """What an encoder makes of texts, already made."""

    def __init__(self, name: str, rows: dict[str, int], vectors: Matrix) -> None:
        self.name, self.dim = name, vectors.shape[1]
        self._rows, self._vectors = rows, vectors

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        return self._vectors[[self._rows[text] for text in sentences]]


def _spaces(
    encoder: TextEncoder, poolings: Sequence[str | None], presets: bool, texts: list[str], show_progress_bar: bool
) -> Iterator[_Space]:
    """Encode all texts, in one pass, with a memory on disk; yield the space of each pooling, then that of the presets."""
    distinct = list(dict.fromkeys(texts))
    rows = {text: row for row, text in enumerate(distinct)}
    if not isinstance(encoder, Encoder) or len(poolings) + presets == 1:
        yield _Space(encoder.name, rows, cached(encoder, show_progress_bar=show_progress_bar)(distinct))
        return
    views: list[View] = [(pooling or encoder.pooling, encoder.words_only) for pooling in poolings]
    views += [WORDS_IN_CONTEXT] * presets
    store = CachedEncoder(
        lambda part: np.hstack(encoder.encode_views(part, views, show_progress_bar=show_progress_bar)),
        f"{encoder.fingerprint} {encoder.model.dtype} {views}",
    )
    for vectors in np.split(store.encode(distinct), len(views), axis=1):
        yield _Space(encoder.name, rows, vectors)
