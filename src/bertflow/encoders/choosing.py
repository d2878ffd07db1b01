"""From what users hand in, or what a saved model says, to an encoder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bertflow.data import MINI, MINI_VERSION
from bertflow.encoders.base import TextEncoder
from bertflow.encoders.pooling import POOLINGS
from bertflow.encoders.pretrained import load_sentence_transformer
from bertflow.encoders.sentence_transformer import SentenceTransformerEncoder
from bertflow.encoders.transformer import DEFAULT_POOLING, Encoder
from bertflow.encoders.word_vectors import AveragedWordVectors
from bertflow.errors import InputError, ModelFolderError
from bertflow.version import __version__

_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def as_encoder(encoder: Any, pooling: str | None = None, **options: Any) -> TextEncoder:
    """Return an encoder for what users hand in.

    Args:
        encoder: A name, a folder or word-vector file, a ``SentenceTransformer``, or an encoder.
        pooling: One of ``bertflow.POOLINGS``, for a transformer given by name or folder. Default: what a folder of
            sentence-transformers says, else ``"first-last-avg"``.
        options: Of ``Encoder``.
    """
    if isinstance(encoder, str | Path) and Path(encoder).is_file():
        return AveragedWordVectors(encoder)  # words have no device and no length
    if isinstance(encoder, str | Path):
        return Encoder(_mini_of(str(encoder)), pooling or own_pooling(encoder) or DEFAULT_POOLING, **options)
    given = [*(["pooling"] if pooling else []), *(name for name, value in options.items() if value is not None)]
    if given:
        raise InputError(f"{type(encoder).__name__} brings its own pooling and settings; leave out {', '.join(given)}.")
    if hasattr(encoder, "get_embedding_dimension") and hasattr(encoder, "encode"):
        return SentenceTransformerEncoder(encoder)
    if hasattr(encoder, "fingerprint") and hasattr(encoder, "encode"):
        return encoder
    raise InputError(
        f"An encoder is a model name, a folder, a SentenceTransformer or a bertflow Encoder; got {type(encoder).__name__}."
    )


def is_tuned(encoder: object) -> bool:
    """Whether an encoder says of itself that it was made by sentence-transformers, so most likely tuned for similarity."""
    if isinstance(encoder, str | Path):
        return (Path(encoder) / "modules.json").is_file()
    return hasattr(encoder, "get_embedding_dimension") or isinstance(encoder, SentenceTransformerEncoder)


def own_pooling(encoder: object) -> str | None:
    """The pooling that a sentence-transformers folder was made with; None for anything else."""
    file = Path(encoder) / "1_Pooling" / "config.json" if isinstance(encoder, str | Path) else None
    if file is None or not file.is_file():
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        named = config.get("pooling_mode") or [name for flag, name in _FLAGS.items() if config.get(flag)]
    except (AttributeError, ValueError):
        return None
    single = named if isinstance(named, str) else named[0] if len(named) == 1 else None
    return single if single in POOLINGS else None


def load_encoder(known: dict[str, Any], bundle: Path | None = None, **options: Any) -> TextEncoder:
    """Load the encoder that ``describe`` told of.

    Args:
        known: What ``describe`` said.
        bundle: The folder that its weights were saved to; by default it is loaded from where it was.
        options: ``device``, ``local_files_only``, ``trust_remote_code``.
    """
    place = str(bundle or known["name"])
    try:
        if known["class"] == "SentenceTransformerEncoder":
            return SentenceTransformerEncoder(load_sentence_transformer(place, **options), name=known["name"])
        if known["class"] == "AveragedWordVectors":
            return AveragedWordVectors(place)
        encoder = Encoder(
            place if bundle else _mini_of(place),
            known.get("pooling") or DEFAULT_POOLING,
            revision=None if bundle else known.get("revision"),
            max_length=known.get("max_length"),
            words_only=known.get("words_only", False),
            **options,
        )
    except Exception as error:  # sentence-transformers raises many kinds
        raise ModelFolderError(
            f"The model's encoder {known['name']!r} cannot be loaded: {error} Give one with encoder=…, or save the model with "
            "bundle_encoder=True where there is one."
        ) from error
    encoder.name = MINI if known["name"] == MINI_VERSION else known["name"]
    return encoder


def _mini_of(name: str) -> str:
    """Return ``"mini"`` for the version of it that is here, and refuse another."""
    if re.fullmatch(r"mini-\d+", name) and not Path(name).is_dir() and name != MINI_VERSION:
        raise InputError(
            f"This bertflow {__version__} ships {MINI_VERSION!r}, not {name!r}, and another mini would give other vectors. "
            f"Install the bertflow that has {name!r}, give its folder, or fit the model again with encoder='mini'."
        )
    return name
