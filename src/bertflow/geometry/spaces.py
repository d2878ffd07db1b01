"""A corpus in two spaces: its sentence vectors before and after calibration."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.encoders.base import TextEncoder, View
from bertflow.encoders.choosing import as_encoder
from bertflow.encoders.views import Pooled
from bertflow.errors import InputError
from bertflow.geometry.association import Vector
from bertflow.model import BertFlow
from bertflow.parts import fit_parts
from bertflow.recipes import choose_parts
from bertflow.storage.remembering import Remembering
from bertflow.texts import check_sentences


@dataclass(frozen=True, eq=False)
class Spaces:
    """Sentences and their vectors, raw and calibrated.

    Args:
        sentences: The distinct sentences of a corpus, n of them.
        model: What calibrated them, of any recipe; its encoder keeps on disk what it has encoded.
        before: Raw vectors of the encoder's own pooling, (n, d).
        after: Calibrated vectors, (n, k).
        random_state: Seeded the fit, and seeds what is drawn in looking at the spaces.
        settings: What the vectors depend on, as plain values.
    """

    sentences: list[str]
    model: BertFlow
    before: Matrix
    after: Matrix
    random_state: int
    settings: dict[str, Any]

    @property
    def encoder(self) -> TextEncoder:
        """What encoded them."""
        return self.model.encoder

    def embed(self, texts: list[str]) -> tuple[Matrix, Matrix]:
        """Map more texts to raw vectors (m, d) and calibrated ones (m, k)."""
        return raw_vectors(self.model.encoder, texts), self.model.encode(texts)

    def log_density(self) -> Vector | None:
        """Log-density (n,) of the sentences under the model; None where it is not a density."""
        try:
            return np.asarray(self.model.score_samples(self.sentences), dtype=np.float64)
        except InputError:
            return None


def make_spaces(
    sentences: Sequence[str],
    encoder: Any = "mini",
    pooling: str | None = None,
    recipe: str | None = None,
    *,
    model: BertFlow | None = None,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Spaces:
    """Encode a corpus and calibrate it.

    Args:
        sentences: Text; repeated sentences count once.
        encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``.
        pooling: One of ``bertflow.POOLINGS``, for recipes of one view.
        recipe: A name of ``bertflow.recipes()``, fitted on the corpus itself; by default what ``BertFlow.fit`` would take.
        model: A fitted model instead of encoder and recipe.
        random_state: Seeds the fit.
        device: For an encoder given by name.
        show_progress_bar: Show progress.
    """
    texts = list(dict.fromkeys(check_sentences(sentences)))
    if len(texts) < 3:
        raise InputError(f"{len(texts)} different sentence(s) came; a space is made of many, better thousands.")
    if model is None:
        made = _fitted(texts, encoder, pooling, recipe, random_state, device, show_progress_bar)
    else:
        made = _remembered(model, show_progress_bar)
    settings = {
        "encoder": made.encoder.name,
        "pooling": getattr(made.encoder, "pooling", None),
        "recipe": made.recipe or " beside ".join(type(part.calibrator).__name__ for part in made.parts),
        "fitted_on": "what the model was fitted on" if model else "this corpus",
        "sentences": len(texts),
        "random_state": random_state,
    }
    return Spaces(texts, made, raw_vectors(made.encoder, texts), made.encode(texts), random_state, settings)


def raw_vectors(encoder: TextEncoder, texts: Sequence[str]) -> Matrix:
    """Map n texts to the vectors (n, d) of an encoder's own pooling."""
    return Pooled().fit(encoder, ()).encode(texts)


def _fitted(
    texts: list[str],
    encoder: Any,
    pooling: str | None,
    recipe: str | None,
    random_state: int,
    device: str | None,
    show_progress_bar: bool,
) -> BertFlow:
    """Fit a recipe to the texts; the encoder's own vectors come from the same pass."""
    name, parts = choose_parts(encoder, pooling=pooling, recipe=recipe, random_state=random_state, device=device)
    named = parts[0].view.get_params().get("pooling") if len(parts) == 1 else None
    options = {} if device is None else {"device": device}
    loaded = as_encoder(encoder, named if isinstance(encoder, str | Path) else None, **options)
    known = _remembering(loaded, [part.view for part in parts], show_progress_bar)
    fit_parts(parts, known, texts, show_progress_bar=show_progress_bar)
    return BertFlow(known, parts=parts, recipe=name)


def _remembered(model: BertFlow, show_progress_bar: bool) -> BertFlow:
    """Return the same model on an encoder that keeps its vectors; the model itself stays as it was."""
    parts = [replace(part, view=copy.copy(part.view)) for part in model.parts]
    known = _remembering(model.encoder, [part.view for part in parts], show_progress_bar)
    for part in parts:
        part.view.encoder = known
    return BertFlow(known, parts=parts, recipe=model.recipe)


def _remembering(encoder: TextEncoder, views: Sequence[View], show_progress_bar: bool) -> Any:
    """Return an encoder that reads for its own pooling and for these views in one pass, and keeps the vectors."""
    found = [Pooled().fit(encoder, ()).reading]
    for view in (view for view in views if view.needs_encoder):
        view.encoder = encoder
        found.append(view.reading)
    readings = list(dict.fromkeys(reading for reading in found if reading is not None))
    return Remembering(encoder, readings, show_progress_bar=show_progress_bar)
