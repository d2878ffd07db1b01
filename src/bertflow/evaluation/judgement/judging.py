"""``judge``: does a recipe help, on this encoder, with this text, for this use?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import as_matrix
from bertflow.encoders.choosing import is_tuned
from bertflow.errors import InputError
from bertflow.evaluation.judgement.evidence import Evidence
from bertflow.evaluation.judgement.labels import choose_by_scores, measure, too_few
from bertflow.evaluation.judgement.result import PURPOSES, RAW, Gain, Judgement, Kind, Purpose, Ranked
from bertflow.evaluation.judgement.rule import decide, pairs_needed
from bertflow.evaluation.judgement.seen import RECIPES, Seen, VectorsAsEncoder, see
from bertflow.evaluation.judgement.to_label import pairs_to_label, write_pairs
from bertflow.evaluation.scores import Score, difference
from bertflow.evaluation.tasks import ClusterTask, Encode, SearchTask, Task
from bertflow.model import BertFlow
from bertflow.recipes import check_recipe
from bertflow.texts import check_sentences

SAMPLE = 5000
FEWEST = 100  # different sentences; of fewer, no recipe learns anything
GLANCE = 300  # sentences that are looked at where a model has just been fitted
NOTHING = Gain(0.0, 0.0, 0.0)


def judge(
    sentences: Any,
    encoder: Any = "mini",
    purpose: Purpose | None = None,
    labels: Task | None = None,
    *,
    recipes: Sequence[str] | None = None,
    pooling: str | None = None,
    sample: int = SAMPLE,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Judgement:
    """Say whether a recipe helps on an encoder, a text and a use, which one, how much, and how sure that is.

    With labels it is measured: nested cross-validation chooses, a paired bootstrap says how sure it is. Without, it is
    estimated from what the text and its vectors look like; `results/advise.md` tells how often that is right.

    Args:
        sentences: Your unlabelled text; or its vectors (n, d).
        encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``; unused with vectors.
        purpose: ``"similarity"``, ``"search"``, ``"clusters"`` or ``"paraphrase"``; default: what the labels are for, else
            similarity.
        labels: Any task, such as ``bertflow.evaluation.load_pairs_file(...)``, ``load_search(...)``, ``load_clusters(...)``.
        recipes: Those to weigh, names of ``bertflow.recipes()``; raw vectors are always among them. By default a few, and
            with labels, on a decoder, those with a prompt too.
        pooling: Of an encoder given by name: what raw vectors are. Default: what its folder says, or first-last-avg.
        sample: Larger corpora are sampled to this many sentences.
        random_state: Makes the judgement repeatable.
        device: For an encoder given by name.
        show_progress_bar: Show progress.

    Example:
        >>> from bertflow import judge
        >>> from bertflow.data import sample_sentences
        >>> judge(sample_sentences(), "mini").verdict  # doctest: +SKIP
        'use'
    """
    names = check_recipes(recipes)
    purpose = purpose or purpose_of(labels)
    if purpose not in PURPOSES:
        raise InputError(f"There is no purpose {purpose!r}; it is one of {', '.join(PURPOSES)}.")
    kind: Kind = "name" if isinstance(encoder, str | Path) or _class_of(encoder) == "Encoder" else "object"
    if not _is_text(sentences):
        if labels is not None:
            raise InputError("Labels need an encoder for their texts: give sentences and the encoder, not vectors.")
        encoder = VectorsAsEncoder(as_matrix(sentences, "vectors", min_rows=2))
        sentences, kind = encoder.texts, "vectors"
    texts, reasons = _sampled(sentences, sample, random_state)
    if len(texts) < FEWEST:
        return _too_little(texts, encoder, kind, purpose)
    problem = None if labels is None else too_few(labels)
    if problem:
        labels, reasons = None, [*reasons, f"{problem} So this is an estimate without them."]
    seen = see(
        texts,
        encoder,
        names,
        labels,
        prompts=recipes is None and labels is not None,  # without labels nothing is known of what prompts gain
        pooling=pooling,
        random_state=random_state,
        device=device,
        show_progress_bar=show_progress_bar,
    )
    about = {"encoder": seen.encoder.name, "kind": kind, "purpose": purpose, "sentences": len(texts)}
    evidence = seen.evidence()
    if labels is not None:
        found = measure(labels, seen.encodes, RAW, random_state)
        agreed = f"{found.picks.get(found.choice, 0)} of {sum(found.picks.values())} parts of the labels chose {found.choice}"
        reasons = [*reasons, f"{agreed}; the gain is that on the parts that had no say in the choice."]
        return _measured(found.choice, Gain(*found.gain), found.scores, about, reasons, evidence)
    return _estimated(evidence, about, reasons)


def judge_scores(scores: Mapping[str, Score], encoder: str, purpose: Purpose, sentences: int) -> Judgement:
    """Judge by scores that are there, such as those of ``compare_recipes``.

    Args:
        scores: By recipe, raw vectors among them, all of one task with one seed.
        encoder: Its name.
        purpose: What the task is for.
        sentences: How many the recipes were fitted on.
    """
    choice = choose_by_scores(scores, RAW)
    lead = difference(scores[choice], scores[RAW])
    about: dict[str, Any] = {"encoder": encoder, "kind": "name", "purpose": purpose, "sentences": sentences}
    reason = (
        "The recipe was chosen on these very labels, and the best of several flatters itself: expect a little less."
    )
    return _measured(choice, Gain(lead.difference, lead.low, lead.high), scores, about, [reason])


def judge_model(model: BertFlow, sentences: Sequence[str]) -> Judgement:
    """Say what to expect of a fitted model, from precedents and a look at a few sentences.

    Args:
        model: Of any recipe.
        sentences: What it was fitted on, or text like it.
    """
    texts = list(dict.fromkeys(check_sentences(sentences)))[:GLANCE]
    recipe = model.recipe or "its own parts"
    kind: Kind = "name" if _class_of(model.encoder) == "Encoder" else "object"
    if len(texts) < FEWEST:
        return _too_little(texts, model.encoder, "object", "similarity")
    encodes: dict[str, Encode] = {RAW: model.encoder.encode, recipe: model.encode}
    evidence = Seen(texts, model.encoder, is_tuned(model.encoder.name), None, encodes).evidence()
    about = {"encoder": model.encoder.name, "kind": kind, "purpose": "similarity", "sentences": len(set(sentences))}
    return _estimated(evidence, about, [])


def write_pairs_to_label(
    found: Judgement,
    sentences: Any,
    encoder: Any,
    output: str | Path,
    count: int = 100,
    *,
    pooling: str | None = None,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> None:
    """Write the pairs whose labels would make a judgement clear; arguments as in ``judge``.

    Args:
        found: What ``judge`` said of the same sentences and encoder: raw vectors are weighed against its best recipe.
        sentences: The same.
        encoder: The same.
        output: A ``.tsv`` file with the columns sentence1, sentence2 and score, the last one empty.
        count: How many pairs.
        pooling: The same.
        random_state: The same.
        device: The same.
        show_progress_bar: Show progress.
    """
    texts, _ = _sampled(sentences, SAMPLE, random_state)
    names = tuple(found.evidence.get("spaces", ())) or (RAW, "whitening-half")
    best = next((one.recipe for one in found.ranking if one.recipe != RAW), names[-1])
    seen = see(
        texts,
        encoder,
        names,
        fit=(RAW, best),
        spliced=False,
        pooling=pooling,
        random_state=random_state,
        device=device,
        show_progress_bar=show_progress_bar,
    )
    raw, other = (seen.encodes[name](texts) for name in (RAW, best))
    write_pairs(output, texts, pairs_to_label(raw, other, count, random_state))


def check_recipes(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the recipes to weigh, each once, raw vectors first; refuse unknown ones."""
    if isinstance(names, str):
        raise InputError(f"recipes is a list of names; got the text {names!r}. Write [{names!r}].")
    return tuple(dict.fromkeys([RAW, *map(check_recipe, names or RECIPES)]))


def purpose_of(labels: Task | None) -> Purpose:
    """What a task's labels are for; without any: similarity."""
    if isinstance(labels, SearchTask):
        return "search"
    if isinstance(labels, ClusterTask):
        return "clusters"
    return "paraphrase" if labels is not None and labels.metric == "auc" else "similarity"


def _class_of(encoder: Any) -> object:
    """What a saved model would say of the encoder."""
    return encoder.describe().get("class") if hasattr(encoder, "describe") else None


def _measured(
    choice: str,
    gain: Gain,
    scores: Mapping[str, Score],
    about: dict[str, Any],
    reasons: Sequence[str],
    evidence: Evidence | None = None,
) -> Judgement:
    """Let the labels decide."""
    raw = scores[RAW]
    better = choice != RAW and gain.value > 0
    ranking = []
    for name, score in sorted(scores.items(), key=lambda item: -item[1].value):
        lead = None if name == RAW else difference(score, raw)
        ranking.append(Ranked(name, Gain(lead.difference, lead.low, lead.high) if lead else NOTHING, score.value))
    best = next((one for one in ranking if one.recipe != RAW), None)
    shown = gain if better else best.gain if best else NOTHING
    return Judgement(
        **about,
        verdict="use" if better else "leave",
        recipe=choice if better else RAW,
        gain=shown,
        ranking=tuple(ranking),
        unit=raw.unit,
        labels=raw.size,
        metric=raw.metric,
        needed=None if shown.low > 0 or shown.high < 0 else _needed(raw.size, shown),
        reasons=tuple(reasons),
        evidence=evidence.to_dict() if evidence else {},
    )


def _needed(labels: int, gain: Gain) -> int:
    """Labels with which an interval as wide as this one's would leave out zero, or 2 points where the gain is smaller."""
    half = (gain.high - gain.low) / 2
    return int(np.ceil(labels * (half / max(abs(gain.value), 2.0)) ** 2 / 50) * 50)


def _estimated(evidence: Evidence, about: dict[str, Any], reasons: list[str]) -> Judgement:
    found = decide(evidence, about["purpose"])
    ranking = sorted(
        [Ranked(RAW, NOTHING), *(Ranked(*one) for one in found.gains.items())], key=lambda one: -one.gain.value
    )
    return Judgement(
        **about,
        verdict=found.verdict,
        recipe=found.recipe,
        gain=found.gain,
        ranking=tuple(ranking),
        unit=None,
        labels=0,
        metric=None,
        needed=pairs_needed(found.gain) if found.verdict != "leave" else None,
        reasons=(*reasons, *found.reasons),
        evidence=evidence.to_dict(),
    )


def _too_little(texts: list[str], encoder: Any, kind: Kind, purpose: Purpose) -> Judgement:
    name = str(encoder) if kind == "name" else str(getattr(encoder, "name", type(encoder).__name__))
    reason = f"{len(texts)} different sentences came; {FEWEST} are the least, a few thousand are good."
    return Judgement(
        name, kind, purpose, "too little text", RAW, NOTHING, (), None, 0, None, len(texts), None, (reason,)
    )


def _is_text(sentences: Any) -> bool:
    """Vectors are arrays or tensors, or lists of lists."""
    if hasattr(sentences, "shape"):
        return len(sentences.shape) != 2 and not hasattr(sentences, "detach")
    return not (isinstance(sentences, list | tuple) and sentences and isinstance(sentences[0], list | tuple))


def _sampled(sentences: Any, sample: int, seed: int) -> tuple[list[str], list[str]]:
    """At most ``sample`` different texts in their order, and a note that says so."""
    if sample < FEWEST:
        raise InputError(f"sample is {sample}; at least {FEWEST} sentences are needed to say anything.")
    texts = list(dict.fromkeys(check_sentences(sentences)))
    if len(texts) <= sample:
        return texts, []
    drawn = np.sort(np.random.default_rng(seed).choice(len(texts), sample, replace=False))
    return [texts[i] for i in drawn], [f"Judged on {sample:,} sentences, drawn at random from {len(texts):,}."]
