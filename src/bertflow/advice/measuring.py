"""Look at every candidate once: encode, fit without labels, take the splices' scores and the labelled pairs' cosines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.advice.candidates import NONE, Candidate, encoders, is_named
from bertflow.advice.splices import Splices, make_splices, splice_score
from bertflow.analysis.isotropy import Isotropy, isotropy
from bertflow.arrays import Matrix
from bertflow.calibrators.names import make_calibrator
from bertflow.comparison import cached
from bertflow.encoder import TextEncoder
from bertflow.evaluation import Task, task_similarities
from bertflow.evaluation.pairs import Vector
from bertflow.joined import TOKEN_PRESETS, calibrator_for, distill
from bertflow.static import has_fast_tokenizer


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
    splices = make_splices(sentences, seed) if pairs is None else None
    scores: dict[Candidate, float] = {}
    similarities: dict[Candidate, Vector] = {}
    names, geometries = [], []
    presets = [name for name in calibrators if name in TOKEN_PRESETS]
    plain = [name for name in calibrators if name not in presets]
    steps = len(poolings) * len(plain) + len(presets)
    with tqdm(total=steps, desc="advising", disable=not show_progress_bar) as bar:
        for pooling, loaded in zip(poolings, encoders(encoder, poolings, device), strict=True):
            space = _Space(loaded, sentences)
            names.append(loaded.name)
            geometries.append(isotropy(space.vectors, seed=seed))
            if splices is not None:
                space.add(splices)
            for calibrator in plain:
                candidate = Candidate(pooling, calibrator)
                if splices is not None:
                    scores[candidate] = space.score(splices, calibrator, seed)
                if pairs is not None:
                    similarities[candidate] = space.similarities(pairs, calibrator, seed)
                bar.update()
        for preset in presets if is_named(encoder) and has_fast_tokenizer(loaded) else ():
            candidate = Candidate(None, preset)
            if splices is not None:
                drawn = set(splices.sentences)
                embed = _fit_preset(preset, encoder, [text for text in sentences if text not in drawn], seed, device)
                scores[candidate] = splice_score(splices, embed(splices.sentences), embed(splices.splices))
            if pairs is not None:
                found = task_similarities(pairs, _fit_preset(preset, encoder, sentences, seed, device))
                similarities[candidate] = np.concatenate(list(found.values()))
            bar.update()
    return Measured(names[0], Candidate(poolings[0], NONE), geometries[0], scores, similarities)


def _fit_preset(
    preset: str, encoder: Any, sentences: list[str], seed: int, device: str | None
) -> Callable[[list[str]], Matrix]:
    """Fit a preset to sentences; return its map from text to vectors."""
    options: dict[str, Any] = {"device": device} if device else {}
    made = distill(preset, encoder, sentences, random_state=seed, **options)
    fitted = calibrator_for(made, random_state=seed).fit(made.encode(sentences))
    return lambda texts: fitted.transform(made.encode(texts))


class _Space:
    """One encoder's vectors of everything that is looked at."""

    def __init__(self, encoder: TextEncoder, sentences: list[str]) -> None:
        self.encoder, self.sentences = encoder, sentences
        self.embed = cached(encoder)
        self.vectors = self.embed(sentences)

    def add(self, splices: Splices) -> None:
        """Encode splices, and set their sentences apart: a calibrator is judged on what it has not seen."""
        drawn = set(splices.sentences)
        self.others = self.vectors[[text not in drawn for text in self.sentences]]
        self.whole, self.spliced = self.embed(splices.sentences), self.encoder.encode(splices.splices)

    def score(self, splices: Splices, calibrator: str, seed: int) -> float:
        """The splice score of a calibrator that was fitted on the other sentences."""
        fitted = make_calibrator(calibrator, seed).fit(self.others)
        return splice_score(splices, fitted.transform(self.whole), fitted.transform(self.spliced))

    def similarities(self, pairs: Task, calibrator: str, seed: int) -> Vector:
        """Cosines of the labelled pairs after a calibrator that was fitted on all sentences, (n,)."""
        fitted = make_calibrator(calibrator, seed).fit(self.vectors)
        found = task_similarities(pairs, lambda texts: fitted.transform(self.embed(texts)))
        return np.concatenate(list(found.values()))
