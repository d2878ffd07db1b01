"""A corpus in two spaces: its sentence vectors before and after calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator
from bertflow.calibrators.names import make_calibrator
from bertflow.encoders.transformer import TextEncoder, as_encoder, check_sentences
from bertflow.errors import InputError
from bertflow.model import BertFlow
from bertflow.storage.remembering import cached


@dataclass(frozen=True, eq=False)
class Spaces:
    """Sentences and their vectors, raw and calibrated.

    Args:
        sentences: The distinct sentences of a corpus, n of them.
        encoder: What encoded them.
        calibrator: What calibrated them, fitted.
        before: Raw vectors, (n, d).
        after: Calibrated vectors, (n, k).
        embed: Maps more sentences to raw vectors.
        random_state: Seeded the flow, and seeds what is drawn in looking at the spaces.
        settings: What the vectors depend on, as plain values.
    """

    sentences: list[str]
    encoder: TextEncoder
    calibrator: Calibrator
    before: Matrix
    after: Matrix
    embed: Callable[[list[str]], Matrix]
    random_state: int
    settings: dict[str, Any]


def make_spaces(
    sentences: Sequence[str],
    encoder: Any = "mini",
    pooling: str | None = None,
    calibrator: str | Calibrator = "flow",
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
        pooling: One of ``bertflow.POOLINGS``, for an encoder given by name.
        calibrator: A short name such as ``"flow"`` or ``"whitening"``, or a calibrator; fitted on the corpus itself.
        model: A fitted model instead of encoder and calibrator.
        random_state: Seeds the flow.
        device: For an encoder given by name.
        show_progress_bar: Show progress.
    """
    texts = list(dict.fromkeys(check_sentences(sentences)))
    if len(texts) < 3:
        raise InputError(f"{len(texts)} different sentence(s) came; a space is made of many, better thousands.")
    name = calibrator if isinstance(calibrator, str) else type(calibrator).__name__
    fresh = make_calibrator(calibrator, random_state) if isinstance(calibrator, str) else clone(calibrator)
    options = {} if device is None else {"device": device}
    loaded = model.encoder if model else as_encoder(encoder, pooling, **options)
    embed = cached(loaded, show_progress_bar=show_progress_bar)
    before = embed(texts)
    fitted = model.calibrator if model else fresh.fit(before)
    settings = {
        "encoder": loaded.name,
        "pooling": getattr(loaded, "pooling", None),
        "calibrator": type(fitted).__name__ if model else name,
        "fitted_on": "what the model was fitted on" if model else "this corpus",
        "sentences": len(texts),
        "random_state": random_state,
    }
    return Spaces(texts, loaded, fitted, before, fitted.transform(before), embed, random_state, settings)
