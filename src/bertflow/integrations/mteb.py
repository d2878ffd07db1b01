"""Any bertflow model or raw encoder as a model of MTEB, the benchmark that the field compares itself on.

    import mteb
    from bertflow.integrations.mteb import MTEBEncoder

    mteb.evaluate(MTEBEncoder(model), mteb.get_tasks(["STS12", "Banking77Classification.v2"]))

MTEB's cache finds results by the model's name and revision and nothing else, so that two models under one name get the
score of the first. The revision here is a hash of all that the vectors depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator, FlowCalibrator, Identity
from bertflow.data import MINI
from bertflow.encoders.transformer import TextEncoder, as_encoder
from bertflow.errors import require
from bertflow.model import BertFlow

_AbsEncoder: Any = require("mteb.models.abs_encoder", "mteb").AbsEncoder

REMEMBERED = 100_000  # texts whose vectors are kept from one call to the next
PAPER = "https://aclanthology.org/2020.emnlp-main.733"


class MTEBEncoder(_AbsEncoder):
    """A bertflow model, or an encoder without calibration, as MTEB wants it.

    Args:
        model: A ``BertFlow``, or an encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer``…
        name: What tables and result folders call it, ``"organisation/model"``; default: after encoder and calibrator.
        training_datasets: Names of MTEB tasks whose sentences the calibrator has seen (without labels).

    Example:
        >>> MTEBEncoder("mini").mteb_model_meta.name
        'bertflow/mini'
    """

    def __init__(self, model: Any, name: str | None = None, training_datasets: Iterable[str] = ()) -> None:
        self.model: BertFlow | TextEncoder = model if isinstance(model, BertFlow) else as_encoder(model)
        encoder, calibrator = _parts(self.model)
        self.mteb_model_meta = _metadata(
            encoder, calibrator, name or default_name(encoder, calibrator), set(training_datasets)
        )
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


def default_name(encoder: TextEncoder, calibrator: Calibrator | None) -> str:
    """Name a model after its parts, such as ``"bertflow/bert-base-uncased-whitening-128"``."""
    base = Path(encoder.name).name
    if calibrator is None or isinstance(calibrator, Identity):
        return f"bertflow/{base}"
    kind = type(calibrator).__name__.removesuffix("Calibrator").lower()
    reduced = f"-{calibrator._n_features_out}" if calibrator._n_features_out < encoder.dim else ""
    return f"bertflow/{base}-{kind}{reduced}"


def revision(encoder: TextEncoder, calibrator: Calibrator | None) -> str:
    """Hash all that the vectors depend on: the encoder's weights, settings and precision, and the fitted map."""
    precision = getattr(getattr(encoder, "model", None), "dtype", "")
    digest = hashlib.sha256(f"{encoder.fingerprint} {precision}".encode())
    if calibrator is not None:
        settings, arrays = calibrator.get_state()
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:40]


def _parts(model: BertFlow | TextEncoder) -> tuple[TextEncoder, Calibrator | None]:
    return (model.encoder, model.calibrator) if isinstance(model, BertFlow) else (model, None)


def _metadata(encoder: TextEncoder, calibrator: Calibrator | None, name: str, training_datasets: set[str]) -> Any:
    models = require("mteb.models.model_meta", "mteb")
    transformer: Any = getattr(encoder, "model", None)
    weights = list(transformer.parameters()) if hasattr(transformer, "parameters") else []
    fitted = [] if calibrator is None else list(calibrator.get_state()[1].values())
    size = sum(w.numel() * w.element_size() for w in weights) + sum(array.nbytes for array in fitted)
    theirs = encoder.describe().get("kind") == "sentence-transformers"
    return models.ModelMeta(
        loader=None,  # it cannot be had by its name, only from these parts
        name=name,
        revision=revision(encoder, calibrator),
        release_date=None,
        languages=["eng-Latn"] if encoder.name == MINI else None,
        n_parameters=sum(w.numel() for w in weights) + sum(array.size for array in fitted) if weights else None,
        n_embedding_parameters=_embedding_parameters(transformer),
        memory_usage_mb=round(size / 2**20, 2) if weights else None,
        max_tokens=getattr(encoder, "max_length", getattr(transformer, "max_seq_length", None)),
        embed_dim=encoder.dim if calibrator is None else int(calibrator._n_features_out),
        license=None,
        open_weights=True,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Sentence Transformers" if theirs else "Transformers"] if weights else ["NumPy"],
        reference=PAPER if isinstance(calibrator, FlowCalibrator) else None,
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
