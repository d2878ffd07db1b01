"""What can be advised: a pooling and a calibrator, or a preset that brings both.

The lists here are all there is to change when a new one is born.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertflow.calibrators.names import make_calibrator
from bertflow.encoders.joined import BEST, TOKEN_PRESETS
from bertflow.encoders.pooling import POOLINGS as KNOWN_POOLINGS
from bertflow.encoders.pooling import check_pooling
from bertflow.encoders.transformer import Encoder, TextEncoder, as_encoder
from bertflow.errors import InputError
from bertflow.evaluation.comparison import DEFAULT_CALIBRATORS

POOLINGS = ("mean", "first-last-avg", "embedding-last-avg")
PLAIN = "mean"  # what most people do with an encoder that says nothing about its pooling
NONE = "none"
CALIBRATORS = (*DEFAULT_CALIBRATORS, BEST)


@dataclass(frozen=True)
class Candidate:
    """One way to make sentence vectors.

    Args:
        pooling: One of ``bertflow.POOLINGS``; None where the encoder or the preset brings its own, or vectors were given.
        calibrator: A short name, such as ``"flow"``; ``"none"`` leaves the vectors as they are; or a preset, ``"best"``.
    """

    pooling: str | None
    calibrator: str

    @property
    def preset(self) -> bool:
        """Whether it is a preset that makes the vectors of tokens."""
        return self.calibrator in TOKEN_PRESETS

    def __str__(self) -> str:
        if self.preset:
            return f"preset {self.calibrator}"
        return self.calibrator if self.pooling is None else f"{self.pooling} + {self.calibrator}"


def check_calibrators(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, each once, the raw vectors first: everything is compared with those."""
    if isinstance(names, str):
        raise InputError(f"calibrators is a list of short names; got the text {names!r}. Write [{names!r}].")
    for name in names:
        if name not in TOKEN_PRESETS:
            make_calibrator(name)
    return tuple(dict.fromkeys([NONE, *names]))


def own_pooling(encoder: object) -> str | None:
    """The pooling that a sentence-transformers folder was made with; None for anything else."""
    file = Path(encoder) / "1_Pooling" / "config.json" if isinstance(encoder, str | Path) else None
    if file is None or not file.is_file():
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return None
    flags = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    named = config.get("pooling_mode") or [name for flag, name in flags.items() if config.get(flag)]
    single = named if isinstance(named, str) else named[0] if len(named) == 1 else None
    return single if single in KNOWN_POOLINGS else None


def choose_poolings(encoder: Any, poolings: Sequence[str] | None) -> tuple[str | None, ...]:
    """Which poolings to try, the one to compare with first; ``(None,)`` where the encoder brings its own."""
    if isinstance(poolings, str):
        raise InputError(f"poolings is a list of names; got the text {poolings!r}. Write [{poolings!r}].")
    if not is_named(encoder):
        if poolings:
            raise InputError(f"{type(encoder).__name__} brings its own pooling; leave out {', '.join(poolings)}.")
        return (encoder.pooling if isinstance(encoder, Encoder) else None,)
    if poolings:
        return tuple(dict.fromkeys(map(check_pooling, poolings)))
    return tuple(dict.fromkeys([own_pooling(encoder) or PLAIN, *POOLINGS]))


def load_encoder(encoder: Any, pooling: str | None, device: str | None) -> TextEncoder:
    """Return the encoder, with the pooling and on the device where it is loaded by its name."""
    named = is_named(encoder)
    return as_encoder(encoder, pooling if named else None, **({"device": device} if named and device else {}))


def is_named(encoder: Any) -> bool:
    """Whether it is loaded with a pooling by its name; a file of word vectors is not."""
    return isinstance(encoder, str | Path) and not Path(encoder).is_file()


__all__ = [
    "CALIBRATORS",
    "NONE",
    "POOLINGS",
    "Candidate",
    "check_calibrators",
    "choose_poolings",
    "is_named",
    "load_encoder",
]
