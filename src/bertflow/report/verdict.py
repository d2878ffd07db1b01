"""Does calibration help on this data, how sure is that, and what to run next: in plain words."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from bertflow.errors import InputError
from bertflow.geometry import Analysis
from bertflow.recipes import check_recipe
from bertflow.report.pairs import Judgement

Tone: TypeAlias = Literal["better", "worse", "unclear", "unproven"]

ALIKE = (
    0.3  # mean cosine of random sentences from which a space counts as a cone; encoders tuned for similarity lie below
)
MOST = 20_000  # pairs; asking for more is no advice
METRICS = {"spearman": "Spearman ×100", "pearson": "Pearson ×100", "auc": "AUC ×100"}


@dataclass(frozen=True)
class Origin:
    """Where things are from, as a command line names them.

    Args:
        sentences: The file of sentences.
        pairs: The file of labelled pairs.
        model: The saved model, where one was used.
        title: What the page calls the corpus; by default the file.
    """

    sentences: str = "your-sentences.txt"
    pairs: str = "your-pairs.tsv"
    model: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class Step:
    """Something to run next.

    Args:
        why: What for.
        command: The line.
    """

    why: str
    command: str


@dataclass(frozen=True)
class Verdict:
    """The answer.

    Args:
        tone: ``"better"``, ``"worse"``, ``"unclear"`` (the pairs are too few to tell) or ``"unproven"`` (there are none).
        headline: In a few words.
        reasons: Sentences: what was measured, how sure it is, what the geometry says.
        steps: What to run next.
    """

    tone: Tone
    headline: str
    reasons: tuple[str, ...]
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def give_verdict(analysis: Analysis, judgement: Judgement | None, origin: Origin) -> Verdict:
    """Let the labelled pairs decide; without any, say what the geometry says and that this proves nothing."""
    if judgement is None:
        return _by_geometry(analysis, origin)
    change = judgement.change
    score = judgement.score
    sure = f"{100 * change.confidence:g} %"
    measured = (
        f"On {score.before.pairs:,} labelled pairs, {METRICS[score.before.metric]} goes from {score.before.value:.1f} to "
        f"{score.after.value:.1f}: a change of {_signed(change.difference)} ({sure} interval {_signed(change.low)} to "
        f"{_signed(change.high)}, p {_p_value(change.p_value)}, paired bootstrap)."
    )
    tone: Tone = "better" if change.low > 0 else "worse" if change.high < 0 else "unclear"
    headline = {
        "better": "Calibration helps on this data",
        "worse": "Calibration hurts on this data",
        "unclear": "These pairs cannot tell whether calibration helps",
    }[tone]
    reasons = (measured, *_certainty(tone, judgement), _geometry(analysis))
    return Verdict(tone, headline, reasons, _steps(tone, analysis, origin))


def _by_geometry(analysis: Analysis, origin: Origin) -> Verdict:
    cone = analysis.isotropy.before.mean_cosine >= ALIKE
    headline = "The space has the fault that calibration mends" if cone else "The space is already fairly even"
    hope = (
        "That is what calibration is for, and in a language model that was not tuned for similarity it usually pays."
        if cone
        else "Encoders that were tuned for similarity look like this, and calibration usually makes those worse."
    )
    reasons = (
        _geometry(analysis),
        hope,
        "But geometry alone cannot prove that sentences which mean the same come closer. Only pairs that people have "
        "scored can, and none were given: a few hundred with the columns sentence1, sentence2 and score will do.",
    )
    step = Step("To find out, score some pairs of your own sentences and run", _report(analysis, origin))
    return Verdict("unproven", f"{headline}; whether it helps is not proven", reasons, (step,))


def _geometry(analysis: Analysis) -> str:
    before, after = analysis.isotropy.before, analysis.isotropy.after
    return (
        f"The mean cosine of two random sentences goes from {_cosine(before.mean_cosine)} to {_cosine(after.mean_cosine)}, "
        f"the effective rank from {before.effective_rank:.0f} of {before.dim} to {after.effective_rank:.0f} of {after.dim}."
    )


def _certainty(tone: Tone, judgement: Judgement) -> tuple[str, ...]:
    change, n = judgement.change, judgement.score.before.pairs
    if tone != "unclear":
        return (
            "The interval leaves out zero: this is hardly luck in which pairs were drawn. It holds for pairs like these; the "
            "seed of the fit and other kinds of pairs were not varied.",
        )
    half = (change.high - change.low) / 2
    needed = math.ceil(n * (half / max(abs(change.difference), 1e-9)) ** 2 / 100) * 100
    size = (
        f"If the difference is real, about {needed:,} pairs would show it."
        if needed <= MOST
        else "It is so small that it would hardly matter if it were real."
    )
    return (
        f"With {n:,} pairs, only a difference of about {half:.1f} points or more would stand out from chance. {size}",
    )


def _steps(tone: Tone, analysis: Analysis, origin: Origin) -> tuple[Step, ...]:
    what = _encoder(analysis)
    compare = f"bertflow compare {what} --pairs {_quoted(origin.pairs)} --fit-on {_quoted(origin.sentences)}"
    trial = Step("To see whether another calibrator does better on these pairs", compare)
    if tone == "better" and origin.model is None:
        fit = f"bertflow fit {_quoted(origin.sentences)} {what} --output my-model"
        return (Step("To keep the calibrated model", fit), trial)
    return (trial,)


def _report(analysis: Analysis, origin: Origin) -> str:
    what = f"--model {_quoted(origin.model)}" if origin.model else f"{_encoder(analysis)}{_calibrator(analysis)}"
    return f"bertflow report {_quoted(origin.sentences)} {what} --pairs {_quoted(origin.pairs)} --output report.html"


def _encoder(analysis: Analysis) -> str:
    pooling = analysis.settings["pooling"]
    return f"--encoder {_quoted(analysis.settings['encoder'])}" + (f" --pooling {pooling}" if pooling else "")


def _calibrator(analysis: Analysis) -> str:
    """The option, unless the recipe has no name."""
    name = str(analysis.settings["recipe"])
    try:
        check_recipe(name)
    except InputError:
        return ""
    return f" --recipe {name}"


def _quoted(name: object) -> str:
    return shlex.quote(str(name))


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


def _cosine(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _p_value(p: float) -> str:
    return "< 0.01" if p < 0.01 else f"= {p:.2f}"
