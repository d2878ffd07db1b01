"""Any bertflow model or raw encoder as a model of MTEB, the benchmark that the field compares itself on.

    import mteb
    from bertflow.integrations.mteb import MTEBEncoder

    mteb.evaluate(MTEBEncoder(model), mteb.get_tasks(["STS12", "Banking77Classification.v2"]))

MTEB's cache finds results by the model's name and revision and nothing else, so that two models under one name get the
score of the first. The revision here is a hash of all that the vectors depend on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.data import MINI
from bertflow.encoders.base import TextEncoder
from bertflow.encoders.choosing import as_encoder
from bertflow.errors import require
from bertflow.model import BertFlow
from bertflow.parts import Part
from bertflow.recipes import RAW

_AbsEncoder: Any = require("mteb.models.abs_encoder", "mteb").AbsEncoder

REMEMBERED = 100_000  # texts whose vectors are kept from one call to the next
PAPER = "https://aclanthology.org/2020.emnlp-main.733"


class MTEBEncoder(_AbsEncoder):
    """A bertflow model, or an encoder without calibration, as MTEB wants it.

    Args:
        model: A ``BertFlow``, or an encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer``…
        name: What tables and result folders call it, ``"organisation/model"``; default: after encoder and recipe.
        training_datasets: Names of MTEB tasks whose sentences the model has seen (without labels).

    Example:
        >>> MTEBEncoder("mini").mteb_model_meta.name
        'bertflow/mini'
    """

    def __init__(self, model: Any, name: str | None = None, training_datasets: Iterable[str] = ()) -> None:
        self.model: BertFlow | TextEncoder = model if isinstance(model, BertFlow) else as_encoder(model)
        self.mteb_model_meta = _metadata(self.model, name or default_name(self.model), set(training_datasets))
        self._last: dict[str, Matrix] = {}

    def encode(self, inputs: Any, *, show_progress_bar: bool = False, **_: Any) -> Matrix:
        """Map MTEB's batches of texts to float32 vectors (n, d), in order; prompts and batch sizes are not used.

        A text gets the very same vector in the next call: MTEB encodes the two sides of STS pairs one after the other,
        and equal sentences must tie exactly, or Spearman's correlation moves in the fourth decimal.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        vectors = {text: self._last[text] for text in texts if text in self._last}
        new = list(dict.fromkeys(text for text in texts if text not in vectors))
        if new:
            vectors.update(zip(new, self.model.encode(new, show_progress_bar=show_progress_bar), strict=True))
        self._last = vectors if len(vectors) <= REMEMBERED else {}
        return np.stack([vectors[text] for text in texts])


def default_name(model: BertFlow | TextEncoder) -> str:
    """Name a model after its encoder and recipe, such as ``"bertflow/bert-base-uncased-whitening-128"``."""
    encoder, parts = _encoder_and_parts(model)
    return "-".join([f"bertflow/{Path(encoder.name).name}", *_kinds(getattr(model, "recipe", None), parts)])


def _kinds(recipe: str | None, parts: Sequence[Part]) -> list[str]:
    """What is in a model's name after its encoder: its recipe, or else its calibrators; nothing of raw vectors."""
    if recipe is not None:
        return [] if recipe == RAW else [re.sub(r"[@+]", "-", recipe)]
    kinds = []
    for part in parts:
        kind = type(part.calibrator).__name__.removesuffix("Calibrator").lower()
        reduced = part.calibrator.dim < part.calibrator.n_features_in_
        kinds += [] if kind == "identity" else [f"{kind}-{part.calibrator.dim}" if reduced else kind]
    return kinds


def revision(model: BertFlow | TextEncoder) -> str:
    """Hash all that the vectors depend on: the encoder's weights, settings and precision, and what was fitted."""
    encoder, _ = _encoder_and_parts(model)
    precision = getattr(getattr(encoder, "model", None), "dtype", "") if _runs_encoder(model) else ""
    return hashlib.sha256(f"{model.fingerprint} {precision}".encode()).hexdigest()[:40]


def _encoder_and_parts(model: BertFlow | TextEncoder) -> tuple[TextEncoder, Sequence[Part]]:
    return (model.encoder, model.parts) if isinstance(model, BertFlow) else (model, ())


def _runs_encoder(model: BertFlow | TextEncoder) -> bool:
    _, parts = _encoder_and_parts(model)
    return not parts or any(part.view.needs_encoder for part in parts)


def _metadata(model: BertFlow | TextEncoder, name: str, training_datasets: set[str]) -> Any:
    models = require("mteb.models.model_meta", "mteb")
    encoder, parts = _encoder_and_parts(model)
    transformer: Any = getattr(encoder, "model", None) if _runs_encoder(model) else None
    weights = list(transformer.parameters()) if hasattr(transformer, "parameters") else []
    tables = [table for part in parts if (table := part.view.as_table()) is not None]
    fitted = [array for part in parts for array in part.calibrator.get_state()[1].values()]
    fitted += [array for table in tables for array in (table.vectors, table.weights)]
    size = sum(w.numel() * w.element_size() for w in weights) + sum(array.nbytes for array in fitted)
    theirs = hasattr(transformer, "get_embedding_dimension")
    return models.ModelMeta(
        loader=None,  # it cannot be had by its name, only from these parts
        name=name,
        revision=revision(model),
        release_date=None,
        languages=["eng-Latn"] if encoder.name == MINI else None,
        n_parameters=sum(w.numel() for w in weights) + sum(array.size for array in fitted)
        if weights or tables
        else None,
        n_embedding_parameters=_embedding_parameters(transformer),
        memory_usage_mb=round(size / 2**20, 2) if weights or tables else None,
        max_tokens=getattr(encoder, "max_length", getattr(transformer, "max_seq_length", None)) if weights else None,
        embed_dim=model.dim,
        license=None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Sentence Transformers" if theirs else "Transformers"] if weights else ["NumPy"],
        reference=PAPER if any(hasattr(part.calibrator, "flow_") for part in parts) else None,
        similarity_fn_name=models.ScoringFunction.COSINE,
        use_instructions=False,
        training_datasets=training_datasets,
        adapted_from=None if encoder.name == MINI else encoder.name,
    )


def _embedding_parameters(transformer: Any) -> int | None:
    """Count the numbers in the table of word vectors, where there is one."""
    inner = getattr(transformer, "transformers_model", transformer)  # of a SentenceTransformer
    try:
        return int(inner.get_input_embeddings().weight.numel())
    except (AttributeError, NotImplementedError):
        return None
