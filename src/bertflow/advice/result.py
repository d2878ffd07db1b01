"""The advice itself: what to use, what to expect of it, why, and the line that does it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from bertflow.advice.candidates import NONE, Candidate
from bertflow.advice.rule import Gain
from bertflow.calibrators.names import make_calibrator

Basis: TypeAlias = Literal["pairs", "splices", "geometry"]
SCALES: dict[Basis, str] = {"pairs": "score on your pairs", "splices": "splice score", "geometry": ""}


@dataclass(frozen=True)
class Option:
    """One candidate as it was measured.

    Args:
        candidate: Which.
        score: ×100, on the labelled pairs or on splices.
        gain: Over the baseline: measured on all pairs, or expected from splices; None for the baseline itself, and where
            the space is so even that splices promise nothing.
    """

    candidate: Candidate
    score: float
    gain: float | None


@dataclass(frozen=True)
class Advice:
    """What ``bertflow.advise`` answers.

    Args:
        encoder: The encoder's name; None where vectors were given.
        kind: ``"name"`` (what can be loaded again by it), ``"object"`` or ``"vectors"``: what the code line starts from.
        choice: The pooling and calibrator to use; ``"none"`` is to leave the vectors as they are.
        baseline: What gains are counted from.
        gain: What to expect of the choice over the baseline, with its 95 % interval; zero where they are the same.
        basis: ``"pairs"`` (measured by cross-validation), ``"splices"`` or ``"geometry"`` (both estimates).
        reasons: Sentences.
        options: All candidates, best first; empty with the basis ``"geometry"``.
        geometry: Measures of the baseline's space.
        sentences: How many different ones were looked at.
        notes: What else is to be known, such as that a sample was drawn.
    """

    encoder: str | None
    kind: Literal["name", "object", "vectors"]
    choice: Candidate
    baseline: Candidate
    gain: Gain
    basis: Basis
    reasons: tuple[str, ...]
    options: tuple[Option, ...]
    geometry: dict[str, float]
    sentences: int
    notes: tuple[str, ...] = field(default=())

    @property
    def leave_it(self) -> bool:
        """Whether the advice is to change nothing."""
        return self.choice == self.baseline

    @property
    def headline(self) -> str:
        """The advice in one sentence."""
        if self.leave_it:
            return "Leave it: use the vectors as they are."
        verb = "measured" if self.basis == "pairs" else "expected"
        low, high = signed(self.gain.low), signed(self.gain.high)
        return f"Use {self._what}: {verb} gain {signed(self.gain.value)} points (95 % interval {low} to {high})."

    @property
    def _what(self) -> str:
        name = self.choice.calibrator
        if self.choice.preset:
            return f"the preset {name}"
        pooling = "" if self.choice.pooling is None else f"the pooling {self.choice.pooling} with "
        return pooling + ("no calibrator" if name == NONE else f"the calibrator {name}")

    @property
    def code(self) -> str:
        """The Python line that does it."""
        name = self.choice.calibrator
        if self.choice.preset:
            return f"BertFlow.fit(sentences, {self.encoder!r}, preset={name!r})"
        made = repr(make_calibrator(name))
        if self.kind == "vectors":
            return "vectors  # as they are" if name == NONE else f"{made}.fit_transform(vectors)"
        what = repr(self.encoder) if self.kind == "name" else "encoder"
        pooling = "" if self.choice.pooling is None else f", pooling={self.choice.pooling!r}"
        if name != NONE:
            return f"BertFlow.fit(sentences, {what}{pooling}, calibrator={made})"
        return f"Encoder({what}{pooling}).encode(sentences)" if self.kind == "name" else "encoder.encode(sentences)"

    def command(self, sentences: str = "your-sentences.txt") -> str | None:
        """The terminal line that does it; None where the encoder has no name to load it by.

        Args:
            sentences: The file of sentences.
        """
        if self.kind != "name":
            return None
        pooling = "" if self.choice.pooling is None else f" --pooling {self.choice.pooling}"
        what = f"{shlex.quote(sentences)} --encoder {shlex.quote(str(self.encoder))}{pooling}"
        if self.choice.calibrator == NONE:
            return f"bertflow embed {what} --raw --output vectors"
        option = "--preset" if self.choice.preset else "--calibrator"
        return f"bertflow fit {what} {option} {self.choice.calibrator} --output my-model"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        added = {"leave_it": self.leave_it, "headline": self.headline, "code": self.code, "command": self.command()}
        return asdict(self) | added


def signed(value: float | None) -> str:
    """One decimal with its sign; a dash for nothing."""
    return "–" if value is None else f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")
