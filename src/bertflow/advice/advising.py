"""``advise``: which pooling and which calibrator for this encoder and this text, or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertflow.advice.candidates import CALIBRATORS, NONE, Candidate, check_calibrators, choose_poolings
from bertflow.advice.crossvalidation import FOLDS, check_pairs, crossvalidate
from bertflow.advice.measuring import Measured, measure
from bertflow.advice.result import Advice, Option, signed
from bertflow.advice.rule import EVEN, TYPICAL, WORTH, Gain, choose_by_geometry, choose_by_rule, expected_gain
from bertflow.arrays import as_matrix
from bertflow.encoders.transformer import Encoder
from bertflow.errors import InputError
from bertflow.evaluation import PairTask
from bertflow.geometry.isotropy import Isotropy, isotropy
from bertflow.texts import check_sentences

SAMPLE = 5000
FEWEST = 50  # different sentences; of fewer, not even the mean cosine is known
ROUGH = {  # sentences, by whether a preset is weighed; mini, STS-B dev
    True: (200, "With 100, the advice was 3.6 points below the best where it was checked."),
    False: (2000, "With fewer than 2,000, the advice was 2 to 4 points below the best where it was checked."),
}
NOTHING = Gain(0.0, 0.0, 0.0)
SETTLE = "A few hundred pairs that people have scored settle it."
CHECKED = "Where it was checked (five encoders, two of which the rule was made with, seven STS sets) it came"
BY_SPLICES = (
    f"This is an estimate without labels. {CHECKED} within 1 point of the best in 28 of 35 cases; it does not see negation or "
    f"word order. {SETTLE}"
)
BY_GEOMETRY = (
    f"This is an estimate without labels, from the vectors alone. {CHECKED} within 1 point of the best calibrator in 30 of 35 "
    f"cases. {SETTLE}"
)


def advise(
    sentences: Any,
    encoder: Any = "mini",
    pairs: PairTask | None = None,
    *,
    poolings: Sequence[str] | None = None,
    calibrators: Sequence[str] = CALIBRATORS,
    sample: int = SAMPLE,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Advice:
    """Say which pooling and calibrator to use, or to leave the vectors as they are, and what to expect of it.

    With labelled pairs the gain is measured by nested cross-validation. Without, it is estimated from the geometry of the
    space and from pairs that are made of the sentences themselves; see ``bertflow.advice.rule``.

    Args:
        sentences: Your unlabelled text; or its vectors (n, d), of which only the geometry can be judged.
        encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``; unused with vectors.
        pairs: Labelled pairs, as from ``bertflow.evaluation.load_pairs_file``; 50 or more.
        poolings: Those to try, the one to compare with first; only for an encoder given by name. By default the encoder's
            own, where its folder says so, or ``"mean"``, then first-last-avg and embedding-last-avg.
        calibrators: Short names of those to try; see ``bertflow.calibrators.names``. ``"best"`` and ``"static"`` are
            presets, for encoders given by name.
        sample: Larger corpora are sampled to this many sentences.
        random_state: Makes the advice repeatable.
        device: For an encoder given by name.
        show_progress_bar: Show progress.

    Example:
        >>> from bertflow import advise
        >>> from bertflow.data import sample_sentences
        >>> advise(sample_sentences(), "mini").leave_it
        False
    """
    names = check_calibrators(calibrators)
    if sample < FEWEST:
        raise InputError(f"sample is {sample}; at least {FEWEST} sentences are needed to say anything.")
    if not _is_text(sentences):
        return _advise_vectors(sentences, pairs, sample, random_state)
    tried = choose_poolings(encoder, poolings)
    if pairs is not None:
        check_pairs(pairs)
    texts = list(dict.fromkeys(check_sentences(sentences)))
    texts, notes = _sampled(texts, sample, random_state)
    found = measure(
        texts, encoder, tried, names, pairs, seed=random_state, device=device, show_progress_bar=show_progress_bar
    )
    enough, roughness = ROUGH[any(candidate.preset for candidate in found.scores)]
    if len(texts) < enough and pairs is None:
        notes = (*notes, f"{len(texts):,} sentences are few. {roughness}")
    kind: Literal["name", "object"] = "name" if isinstance(encoder, str | Path | Encoder) else "object"
    about: dict[str, Any] = {
        "encoder": found.encoder,
        "kind": kind,
        "baseline": found.baseline,
        "geometry": _summary(found.geometry),
        "sentences": len(texts),
        "notes": notes,
    }
    if pairs is not None:
        judged = _by_pairs(found, pairs, random_state)
    else:
        judged = _by_splices(found) if found.scores else _by_geometry(found.baseline, found.geometry)
    return Advice(**about, **judged)


def _advise_vectors(vectors: object, pairs: PairTask | None, sample: int, seed: int) -> Advice:
    """Judge vectors by their geometry."""
    if pairs is not None:
        raise InputError(
            "Labelled pairs need an encoder to be embedded with: give sentences and the encoder, not vectors."
        )
    rows, notes = _sampled(as_matrix(vectors, "vectors", min_rows=2), sample, seed)
    geometry, baseline = isotropy(rows, seed=seed), Candidate(None, NONE)
    about: dict[str, Any] = {"encoder": None, "kind": "vectors", "baseline": baseline, "sentences": len(rows)}
    return Advice(**about, **_by_geometry(baseline, geometry), geometry=_summary(geometry), notes=notes)


def _by_pairs(found: Measured, pairs: PairTask, seed: int) -> dict[str, Any]:
    """Cross-validate; leave it too where the gain on held-out folds is not there."""
    gold = np.concatenate(list(pairs.gold.values()))
    result = crossvalidate(found.similarities, gold, pairs.metric, found.baseline, seed=seed)
    gain = result.gain
    better = result.choice != found.baseline and gain.difference > 0
    reasons = [
        f"On {len(gold):,} labelled pairs, what {FOLDS - 1} of {FOLDS} folds chose changed the {pairs.metric} of the fold left "
        f"out by {signed(gain.difference)} (95 % interval {signed(gain.low)} to {signed(gain.high)}, paired bootstrap)."
    ]
    if better:
        reasons.append(f"{result.picks.get(result.choice, 0)} of {FOLDS} folds made the same choice by themselves.")
    else:
        reasons.append(
            "No candidate is significantly better than the vectors as they are, so that nothing is gained for sure."
        )
    start = result.values[found.baseline]
    return {
        "choice": result.choice if better else found.baseline,
        "gain": Gain(gain.difference, gain.low, gain.high) if better else NOTHING,
        "basis": "pairs",
        "reasons": tuple(reasons),
        "options": _ranked(result.values, {one: value - start for one, value in result.values.items()}, found.baseline),
    }


def _by_splices(found: Measured) -> dict[str, Any]:
    choice = choose_by_rule(found.scores, found.baseline, found.geometry.uniformity)
    start, best = found.scores[found.baseline], max(found.scores.values())
    even = found.geometry.uniformity <= EVEN
    promised = expected_gain(best, start)
    gains = {one: expected_gain(score, start).value for one, score in found.scores.items()}
    if even:
        reason = "Encoders that were tuned for similarity look like this, and calibrating those has cost them points."
    elif choice == found.baseline:
        reason = f"The best candidate promises {signed(promised.value)} points; under {WORTH:g} it is not worth a calibrator."
    else:
        reason = (
            f"It puts sentences spliced from two of yours in the right order best: {best:.1f} (Spearman ×100), "
            f"against {start:.1f} for the vectors as they are."
        )
    return {
        "choice": choice,
        "gain": NOTHING if choice == found.baseline else promised,
        "basis": "splices",
        "reasons": (_space(found.geometry), reason, BY_SPLICES),
        "options": _ranked(found.scores, {} if even else gains, found.baseline),
    }


def _by_geometry(baseline: Candidate, geometry: Isotropy) -> dict[str, Any]:
    choice = choose_by_geometry(baseline, geometry)
    if choice != baseline:
        reason = (
            "In language models that were not tuned for similarity, a flow has mended that; only text could tell more."
        )
    elif geometry.uniformity <= EVEN:
        reason = "Encoders that were tuned for similarity look like this, and calibrating those has cost them points."
    else:
        reason = f"But {geometry.rows:,} rows of {geometry.dim} dimensions are too few for a flow; give the text to learn more."
    return {
        "choice": choice,
        "gain": NOTHING if choice == baseline else TYPICAL,
        "basis": "geometry",
        "reasons": (_space(geometry), reason, BY_GEOMETRY),
        "options": (),
    }


def _space(geometry: Isotropy) -> str:
    how = "already spread evenly" if geometry.uniformity <= EVEN else "crowded"
    return (
        f"The vectors are {how}: uniformity {geometry.uniformity:.2f} (from 0, all alike, to about −4, even; the line is drawn "
        f"at {EVEN:g}), mean cosine of two random sentences {geometry.mean_cosine:.2f}."
    ).replace("-", "−")


def _ranked(scores: dict[Candidate, float], gains: dict[Candidate, float], baseline: Candidate) -> tuple[Option, ...]:
    options = [Option(one, score, None if one == baseline else gains.get(one)) for one, score in scores.items()]
    return tuple(sorted(options, key=lambda option: -option.score))


def _summary(geometry: Isotropy) -> dict[str, float]:
    names = ("uniformity", "mean_cosine", "iso_score", "effective_rank", "hubness", "dim")
    return {name: float(getattr(geometry, name)) for name in names}


def _is_text(sentences: Any) -> bool:
    """Vectors are arrays or tensors, or lists of lists."""
    if hasattr(sentences, "shape"):
        return len(sentences.shape) != 2 and not hasattr(sentences, "detach")
    return not (isinstance(sentences, list | tuple) and sentences and isinstance(sentences[0], list | tuple))


def _sampled(rows: Any, sample: int, seed: int) -> tuple[Any, tuple[str, ...]]:
    """At most ``sample`` rows in their order, and a note that says so."""
    if len(rows) < FEWEST:
        raise InputError(
            f"{len(rows)} different sentence(s) came; at least {FEWEST} are needed to say anything, better a few thousand."
        )
    if len(rows) <= sample:
        return rows, ()
    drawn = np.sort(np.random.default_rng(seed).choice(len(rows), sample, replace=False))
    note = f"Judged on {sample:,} sentences, drawn at random from {len(rows):,}."
    return ([rows[i] for i in drawn] if isinstance(rows, list) else rows[drawn]), (note,)
