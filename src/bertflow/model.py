"""BertFlow, the thing users hold: a frozen encoder and a list of parts, from text to better vectors."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from bertflow.arrays import Matrix, as_matrix, cosine_of_pairs, quantized, unit_rows
from bertflow.errors import InputError
from bertflow.saving import SavedModel
from bertflow.texts import check_sentences

if TYPE_CHECKING:
    from bertflow.calibrators import Calibrator
    from bertflow.parts import Part

logger = logging.getLogger(__name__)

FEW = 1000  # distinct sentences under which a calibrator learns little more than a scale
Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[Any]]
Rows: TypeAlias = np.ndarray[tuple[int, int], np.dtype[Any]]


class BertFlow(SavedModel):
    """A frozen language model whose sentence vectors are calibrated: text in, better vectors out.

    A model is a list of parts. Each part is a view of the text and a calibrator of its vectors; the parts' vectors stand
    side by side.

    Args:
        encoder: A model name, folder, ``SentenceTransformer`` or ``Encoder``.
        calibrator: A fitted calibrator of the encoder's dimension: a model of one part.
        training: What is known about the fit, kept with the model.
        parts: Fitted parts, instead of a calibrator.
        recipe: The recipe's name, if the parts are of one.

    Attributes:
        parts: The parts.
        results: What was measured of this model, kept with it and shown in its card: see ``add_result``.
        card: More YAML for the model card that only the author knows, such as ``{"license": "mit", "language": "en"}``.

    Example:
        >>> from bertflow import BertFlow
        >>> from bertflow.data import sample_sentences
        >>> model = BertFlow.fit(sample_sentences(), encoder="mini", recipe="whitening")
        >>> model.encode("One sentence.").shape
        (256,)
    """

    def __init__(
        self,
        encoder: Any,
        calibrator: Calibrator | None = None,
        training: dict[str, Any] | None = None,
        *,
        parts: Sequence[Part] | None = None,
        recipe: str | None = None,
    ) -> None:
        from sklearn.utils.validation import check_is_fitted

        from bertflow.encoders.base import Deferred
        from bertflow.encoders.choosing import as_encoder
        from bertflow.parts import lone_part

        self.encoder = encoder if isinstance(encoder, Deferred) else as_encoder(encoder)
        self.training = training or {}
        self.recipe = recipe
        self.results, self.card = [], {}
        if (calibrator is None) == (parts is None):
            raise InputError("A model is made of an encoder and a fitted calibrator, or of an encoder and parts=[…].")
        self.parts = list(parts or ()) or [lone_part(self.encoder, _calibrator_of(calibrator))]
        for part in self.parts:
            check_is_fitted(part.calibrator)
            if part.calibrator.n_features_in_ != part.view.dim:
                raise InputError(
                    f"The calibrator was fitted on {part.calibrator.n_features_in_} dimensions, but the encoder "
                    f"{self.encoder.name!r} gives {part.view.dim}: they do not belong together."
                )

    @classmethod
    def fit(
        cls,
        sentences: Sequence[str],
        encoder: Any = "mini",
        pooling: str | None = None,
        preset: str | None = None,
        *,
        recipe: str | None = None,
        parts: Sequence[Part] | None = None,
        calibrator: Calibrator | None = None,
        random_state: int = 0,
        show_progress_bar: bool = False,
        **encoder_options: Any,
    ) -> BertFlow:
        """Fit a recipe on unlabelled sentences; the encoder stays frozen.

        Args:
            sentences: Text like the text to be compared later, a few thousand sentences or more; repeated ones count once.
            encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``.
            pooling: One of ``bertflow.POOLINGS``, for recipes of one view; default ``"first-last-avg"``.
            preset: Deprecated: ``recipe="flow"``, ``"flow-paper"``, ``"static"`` or ``"best"`` says it.
            recipe: A name of ``bertflow.recipes()``, also with a pooling, ``"whitening@cls"``. Default: ``"best"``; where the
                encoder has no table of tokens, ``"whitening"``.
            parts: Your own parts instead of a recipe, not fitted yet.
            calibrator: Your own calibrator of the encoder's vectors instead of a recipe, not fitted yet.
            random_state: Makes the result repeatable.
            show_progress_bar: Show progress of encoding and fitting.
            encoder_options: ``device``, ``max_length``, ``dtype``… of ``Encoder``.

        Example:
            >>> BertFlow.fit(corpus, "bert-base-uncased", recipe="flow")  # doctest: +SKIP
        """
        from bertflow.encoders.choosing import as_encoder
        from bertflow.parts import fit_parts
        from bertflow.recipes import choose_parts

        chosen, fresh = choose_parts(
            encoder,
            pooling=pooling,
            preset=preset,
            recipe=recipe,
            parts=parts,
            calibrator=calibrator,
            random_state=random_state,
            device=encoder_options.get("device"),
            verbose=show_progress_bar,
        )
        texts = list(dict.fromkeys(check_sentences(sentences)))
        if len(texts) < 2:
            raise InputError(
                "All sentences are the same one; at least two different ones are needed, better thousands."
            )
        if len(texts) < FEW:
            logger.warning("Only %d different sentences: calibration wants a few thousand to be worth it.", len(texts))
        named = fresh[0].view.get_params().get("pooling") if len(fresh) == 1 else None
        loaded = as_encoder(encoder, named if isinstance(encoder, str | Path) else None, **encoder_options)
        fit_parts(fresh, loaded, texts, show_progress_bar=show_progress_bar)
        return cls(loaded, training=_training(texts, fresh), parts=fresh, recipe=chosen)

    def partial_fit(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> BertFlow:
        """Adapt the calibrators to more unlabelled sentences; encoder and views stay as they are. Returns itself.

        For little text of one's own, on top of a model that knows more, such as ``"mini-flow"``. A flow moves towards the
        new sentences, unless that would make unseen ones of them less likely; a linear calibrator counts them in with the
        earlier ones. What was measured of the model before (``results``) no longer holds and is dropped.

        Args:
            sentences: Text like the text to be compared later, a hundred sentences or more; repeated ones count once.
            show_progress_bar: Show progress of encoding.
        """
        from bertflow.encoders.base import encode_views

        for part in self.parts:
            if not hasattr(part.calibrator, "partial_fit"):
                raise InputError(
                    f"{type(part.calibrator).__name__} has no partial_fit: fit a new model with BertFlow.fit."
                )
        texts = list(dict.fromkeys(check_sentences(sentences)))
        views = encode_views([part.view for part in self.parts], texts, show_progress_bar=show_progress_bar)
        for part, vectors in zip(self.parts, views, strict=True):
            part.calibrator.partial_fit(vectors)
        known = ("sentences", "fitted_vectors", "earlier_sentences")  # the second where it was fitted on shards
        earlier = sum(self.training.get(name) or 0 for name in known)
        self.training = _training(texts, self.parts) | {"earlier_sentences": earlier}
        self.results = []
        return self

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator of a model of one part."""
        if len(self.parts) != 1:
            raise InputError(
                f"This model has {len(self.parts)} parts, each with a calibrator of its own: see its parts."
            )
        return self.parts[0].calibrator

    @property
    def dim(self) -> int:
        """Dimensions of the calibrated vectors."""
        return self._light.dim if self._light else sum(part.calibrator.dim for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """Identify views and calibrators: equal fingerprints give equal vectors."""
        if self._light and self._light.fingerprint:
            return self._light.fingerprint
        from bertflow.parts import identity_of

        known = [*(part.view.fingerprint for part in self.parts), identity_of(self.parts)["sha256"]]
        return hashlib.sha256(" ".join(known).encode()).hexdigest()[:32]

    @overload
    def encode(self, sentences: str, *, normalize_embeddings: bool = ..., precision: str = ...) -> Vector: ...  # type: ignore[overload-overlap]

    @overload
    def encode(
        self,
        sentences: Sequence[str],
        *,
        normalize_embeddings: bool = ...,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        convert_to_tensor: Literal[False] = ...,
        precision: str = ...,
        device: str | None = ...,
    ) -> Rows: ...

    @overload
    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        normalize_embeddings: bool = ...,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        convert_to_tensor: bool = ...,
        precision: str = ...,
        device: str | None = ...,
    ) -> Any: ...

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        normalize_embeddings: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
        precision: str = "float32",
        device: str | None = None,
    ) -> Any:
        """Map one text to its calibrated vector (d,), or n texts to (n, d).

        Args:
            sentences: One text or many.
            normalize_embeddings: Scale each vector to length one, so that a dot product is the cosine.
            batch_size: The largest number of texts in a pass; by default the encoder's token budget alone decides.
            show_progress_bar: Show progress.
            convert_to_tensor: Return a torch tensor instead of a numpy array.
            precision: ``"float32"``, ``"float16"``, ``"int8"``, ``"binary"`` or ``"ubinary"``.
            device: Move the model there first.

        Example:
            >>> model.encode(["One sentence.", "And another."], normalize_embeddings=True)  # doctest: +SKIP
        """
        if device is not None:
            self.to(device)
        texts = _listed(sentences)
        vectors = self._encode(texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
        if normalize_embeddings:
            vectors = unit_rows(vectors)
        vectors = quantized(vectors, precision)
        result = vectors[0] if isinstance(sentences, str) else vectors
        if not convert_to_tensor:
            return result
        import torch

        return torch.from_numpy(result)

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """Map queries to vectors, as ``encode`` does: no recipe tells queries from documents so far."""
        return self.encode(sentences, **options)

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """Map documents to vectors, as ``encode`` does: no recipe tells queries from documents so far."""
        return self.encode(sentences, **options)

    def similarity(self, a: Any, b: Any) -> Any:
        """Return the cosine of two texts, or the matrix (n, m) of cosines between two lists of texts or of vectors.

        Args:
            a: A text, texts, or calibrated vectors (n, d).
            b: Likewise.
        """
        left, right = self._vectors(a, b)
        matrix = unit_rows(left) @ unit_rows(right).T
        return float(matrix[0, 0]) if isinstance(a, str) and isinstance(b, str) else matrix

    def similarity_pairwise(self, a: Any, b: Any) -> Vector:
        """Return the cosines (n,) of text i of ``a`` with text i of ``b``; vectors (n, d) are taken too."""
        left, right = self._vectors(a, b)
        if len(left) != len(right):
            raise InputError(f"Pairs were wanted; {len(left)} and {len(right)} came. For all against all: similarity.")
        return cosine_of_pairs(left, right)

    def score_samples(self, sentences: str | Sequence[str]) -> Matrix:
        """Return the log-density (n,) of each text under the flow: the least likely texts are the odd ones out."""
        part = self.parts[0]
        if len(self.parts) > 1 or not hasattr(part.calibrator, "score_samples"):
            names = " beside ".join(type(part.calibrator).__name__ for part in self.parts)
            raise InputError(f"{names} is not a density; fit a flow for that: recipe='flow'.")
        return part.calibrator.score_samples(part.view.encode(_listed(sentences)))

    def to(self, device: str) -> BertFlow:
        """Move encoder and calibrators to a device. Returns itself."""
        if any(part.view.needs_encoder for part in self.parts) and hasattr(self.encoder, "to"):
            self.encoder.to(device)
        for part in self.parts:
            part.calibrator.to(device)
        return self

    def _vectors(self, *texts_or_vectors: Any) -> list[Matrix]:
        """Return calibrated vectors (n, d) for texts, or check those that came."""
        found = []
        for given in texts_or_vectors:
            many = given if hasattr(given, "__len__") else list(given)
            text = isinstance(next(iter(many), ""), str)
            found.append(self.encode(_listed(many)) if text else as_matrix(many, "vectors"))
        widths = [vectors.shape[1] for vectors in found]
        if len(set(widths)) > 1:
            raise InputError(
                f"Vectors of {widths[0]} dimensions cannot be compared with those of {widths[1]}; this model gives {self.dim}."
            )
        return found

    def __repr__(self) -> str:
        recipe = f"recipe={self.recipe!r}, " if self.recipe else ""
        if self._light:
            return f"BertFlow({recipe}{self._light!r}, dim={self.dim}, runtime={self.runtime!r})"
        parts = ", ".join(f"{part.view!r} -> {part.calibrator!r}" for part in self.parts)
        return f"BertFlow(encoder={self.encoder.name!r}, {recipe}parts=[{parts}], dim={self.dim})"


def _calibrator_of(given: Any) -> Calibrator:
    from bertflow.calibrators import Calibrator

    if not isinstance(given, Calibrator):
        raise InputError(f"A calibrator was wanted, such as a fitted FlowCalibrator; got {type(given).__name__}.")
    return given


def _listed(sentences: str | Sequence[str]) -> list[str]:
    return [sentences] if isinstance(sentences, str) else check_sentences(sentences)


def _training(texts: list[str], parts: Sequence[Part]) -> dict[str, Any]:
    histories = [getattr(part.calibrator, "history_", None) for part in parts]
    summary: dict[str, Any] = next((history.summary() for history in histories if history), {})
    return {
        "sentences": len(texts),
        "sentences_sha256": hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest(),
        **summary,
    }
