"""Look at every candidate once: fit without labels, take the splices' scores and the labelled pairs' cosines.

Each text goes through the transformer once, whatever the number of poolings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.advice.candidates import NONE, Candidate, is_named, load_encoder
from bertflow.advice.splices import make_splices, splice_score
from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator
from bertflow.calibrators.names import make_calibrator
from bertflow.encoders.joined import TOKEN_PRESETS, WORDS_IN_CONTEXT, JoinedEncoder, calibrator_for, distill
from bertflow.encoders.token_table import StaticEncoder, has_fast_tokenizer
from bertflow.encoders.transformer import Encoder, TextEncoder, View
from bertflow.evaluation import PairTask, task_similarities
from bertflow.evaluation.scores import Vector
from bertflow.geometry.isotropy import Isotropy, isotropy
from bertflow.storage.remembering import cached

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
    pairs: PairTask | None = None,
    *,
    seed: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Measured:
    """Measure poolings × calibrators, then presets; the first pooling, raw, is the baseline. Arguments as in ``advise``."""
    loaded = load_encoder(encoder, poolings[0], device)
    splices = make_splices(sentences, seed) if pairs is None else None
    plain = [name for name in calibrators if name not in TOKEN_PRESETS]
    presets = [
        name for name in calibrators if name in TOKEN_PRESETS and is_named(encoder) and has_fast_tokenizer(loaded)
    ]
    others = splices.splices if splices else pairs.sentences if pairs else []
    embeds = _embeds(loaded, poolings, bool(presets), [*sentences, *others], show_progress_bar)
    geometry = isotropy(embeds[0](sentences), seed=seed)
    found = Measured(loaded.name, Candidate(poolings[0], NONE), geometry, {}, {})
    if splices is None and pairs is None:
        return found
    drawn = set(splices.sentences) if splices else set()  # by splices a calibrator is judged on what it has not seen
    unseen = [text for text in sentences if text not in drawn]

    def judge(candidate: Candidate, calibrator: Calibrator, embed: Embed) -> None:
        fitted = calibrator.fit(embed(unseen))
        if splices is not None:
            whole, spliced = (fitted.transform(embed(texts)) for texts in (splices.sentences, splices.splices))
            found.scores[candidate] = splice_score(splices, whole, spliced)
        if pairs is not None:
            cosines = task_similarities(pairs, lambda texts: fitted.transform(embed(texts)))
            found.similarities[candidate] = np.concatenate(list(cosines.values()))
        bar.update()

    steps = len(poolings) * len(plain) + len(presets)
    with tqdm(total=steps, desc="advising", disable=not show_progress_bar) as bar:
        for pooling, embed in zip(poolings, embeds, strict=False):  # the last may be the presets'
            for name in plain:
                judge(Candidate(pooling, name), make_calibrator(name, seed), embed)
        for name in presets:
            made = distill(name, loaded, unseen, random_state=seed)
            judge(Candidate(None, name), calibrator_for(made, random_state=seed), _stored(made, embeds[-1]))
    return found


def _embeds(
    encoder: TextEncoder, poolings: Sequence[str | None], presets: bool, texts: list[str], show_progress_bar: bool
) -> list[Embed]:
    """Encode all texts, in one pass; return what each pooling makes of them, then what the presets pool."""
    views: list[View] | None = None
    if isinstance(encoder, Encoder) and len(poolings) + presets > 1:
        views = [(pooling or encoder.pooling, encoder.words_only) for pooling in poolings]
        views += [WORDS_IN_CONTEXT] * presets
    distinct = list(dict.fromkeys(texts))
    rows = {text: row for row, text in enumerate(distinct)}
    vectors = cached(encoder, views, show_progress_bar=show_progress_bar)(distinct)

    def look_up(part: Matrix, some: list[str]) -> Matrix:
        return part[[rows[text] for text in some]]

    return [partial(look_up, part) for part in np.split(vectors, len(views) if views else 1, axis=1)]


def _stored(encoder: StaticEncoder | JoinedEncoder, contextual: Embed) -> Embed:
    """Return a preset's ``encode``, the words in their sentence taken from what is encoded already."""
    if isinstance(encoder, StaticEncoder):
        return encoder.encode
    return lambda texts: np.hstack([encoder.static.encode(texts), contextual(texts)])
