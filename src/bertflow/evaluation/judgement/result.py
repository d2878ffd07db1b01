"""The judgement itself: which recipe, what to expect of it, how sure that is, and the line that does it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Purpose: TypeAlias = Literal["similarity", "search", "clusters", "paraphrase"]
Verdict: TypeAlias = Literal["use", "leave", "cannot tell", "too little text"]
Kind: TypeAlias = Literal["name", "object", "vectors"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
RAW = "raw"


@dataclass(frozen=True)
class Gain:
    """A change of the score ×100 over raw vectors, measured or expected, with its 90 % interval (measured: 95 %)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Ranked:
    """A recipe as it was judged.

    Args:
        recipe: Its name.
        gain: Over raw vectors.
        score: On the user's labels; None without.
    """

    recipe: str
    gain: Gain
    score: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What ``bertflow.judge`` answers.

    Args:
        encoder: The encoder's name.
        kind: What the lines of code start from: an encoder that has a name, an object, or vectors.
        purpose: What the vectors are for.
        verdict: ``"use"``, ``"leave"``, ``"cannot tell"`` without labels, or ``"too little text"``.
        recipe: What to use: ``"raw"`` unless the verdict is ``"use"``.
        gain: Of the recipe that promises most, whether it is to be used or not.
        ranking: All recipes, the best first.
        unit: What was labelled: ``"pairs"``, ``"queries"`` or ``"texts"``; None without labels.
        labels: How many.
        metric: What the labels were judged by.
        sentences: How many different ones were looked at.
        needed: About so many labelled pairs would make the answer clear; None where it is clear already.
        reasons: Sentences.
        evidence: What was seen without labels.
    """

    encoder: str
    kind: Kind
    purpose: Purpose
    verdict: Verdict
    recipe: str
    gain: Gain
    ranking: tuple[Ranked, ...]
    unit: str | None
    labels: int
    metric: str | None
    sentences: int
    needed: int | None
    reasons: tuple[str, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether labels decided."""
        return self.unit is not None

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        if self.verdict == "use":
            return f"Use {self.recipe}: {'measured' if self.measured else 'expected'} gain {told(self.gain)}."
        return {
            "leave": "Leave it: use the encoder's vectors as they are.",
            "cannot tell": "Cannot tell without pairs that people have scored.",
            "too little text": "Too little text to say anything.",
        }[self.verdict]

    @property
    def paragraph(self) -> str:
        """The judgement in plain words."""
        from bertflow.evaluation.judgement.words import plain_words

        return plain_words(self)

    @property
    def code(self) -> str:
        """The Python line that does it."""
        if self.kind == "vectors":
            return "vectors" if self.recipe == RAW else f"calibrator_of({self.recipe!r}).fit_transform(vectors)"
        encoder = repr(self.encoder) if self.kind == "name" else "encoder"
        return f"BertFlow.fit(sentences, {encoder}, recipe={self.recipe!r})"

    def command(self, sentences: str = "your-sentences.txt") -> str | None:
        """The terminal line that does it; None where the encoder has no name to load it by.

        Args:
            sentences: The file of sentences.
        """
        if self.kind != "name":
            return None
        what = f"{shlex.quote(sentences)} --encoder {shlex.quote(self.encoder)}"
        if self.recipe == RAW:
            return f"bertflow embed {what} --raw --output vectors"
        return f"bertflow fit {what} --recipe {self.recipe} --output my-model"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        added = ("headline", "paragraph", "code")
        return asdict(self) | {name: getattr(self, name) for name in added} | {"command": self.command()}


def told(gain: Gain) -> str:
    """A gain with its interval."""
    return f"{signed(gain.value)} points ({signed(gain.low)} to {signed(gain.high)})"


def signed(value: float) -> str:
    """One decimal with its sign."""
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")
