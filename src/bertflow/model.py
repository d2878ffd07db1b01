"""BertFlow, the thing users hold: a frozen encoder and a list of parts, from text to better vectors."""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
from huggingface_hub import ModelCard, ModelHubMixin
from sklearn.utils.validation import check_is_fitted

from bertflow.arrays import Matrix, as_matrix, cosine_of_pairs, quantized, unit_rows
from bertflow.calibrators import Calibrator
from bertflow.encoders.base import Deferred, TextEncoder, View, encode_views
from bertflow.encoders.choosing import as_encoder, load_encoder
from bertflow.errors import InputError, ModelFolderError
from bertflow.parts import Part, encode_parts, fit_parts, lone_part
from bertflow.recipes import choose_parts
from bertflow.storage import model_folder
from bertflow.storage.cards import Result, measured, merged, model_card
from bertflow.texts import check_sentences

if TYPE_CHECKING:
    import torch

    from bertflow.evaluation import Score

logger = logging.getLogger(__name__)

FEW = 1000  # distinct sentences under which a calibrator learns little more than a scale
Vector = npt.NDArray[np.floating[Any]]


class BertFlow(ModelHubMixin):
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
        self.encoder: TextEncoder = encoder if isinstance(encoder, Deferred) else as_encoder(encoder)
        self.training = training or {}
        self.recipe = recipe
        self.results: list[Result] = []
        self.card: dict[str, Any] = {}
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
        return sum(part.calibrator.dim for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """Identify views and calibrators: equal fingerprints give equal vectors."""
        digest = hashlib.sha256()
        for part in self.parts:
            settings, arrays = part.calibrator.get_state()
            digest.update(json.dumps([part.view.fingerprint, settings, part.scale], sort_keys=True).encode())
            for name in sorted(arrays):
                digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()[:32]

    @overload
    def encode(self, sentences: str, *, convert_to_tensor: Literal[False] = False, **options: Any) -> Vector: ...

    @overload
    def encode(
        self, sentences: Sequence[str], *, convert_to_tensor: Literal[False] = False, **options: Any
    ) -> Matrix: ...

    @overload
    def encode(self, sentences: Any, *, convert_to_tensor: Literal[True], **options: Any) -> torch.Tensor: ...

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
        vectors = encode_parts(self.parts, texts, batch_size=batch_size, show_progress_bar=show_progress_bar)
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

    def add_result(self, dataset: str, score: Score, split: str | None = "test") -> None:
        """Keep a measured score with the model: it goes into config.json and, as ``model-index``, into the model card.

        Args:
            dataset: Its name, such as ``"STS-B"``.
            score: What ``bertflow.evaluation.evaluate_task(task, model.encode)`` returned.
            split: Which part of the data set, if it has parts.
        """
        self.results = merged(self.results, [measured(dataset, score, split)])

    # The mixin's save_pretrained deletes a config.json and then writes file by file, and its from_pretrained hands the
    # config to __init__ unchecked; ours are whole or not at all, and strict.

    def save_pretrained(self, folder: str | Path, *, bundle_encoder: bool = False) -> Path:  # type: ignore[override]
        """Write the model to a folder, whole or not at all.

        Args:
            folder: Where; an earlier bertflow model there is replaced.
            bundle_encoder: Put the encoder's weights into it too; otherwise it is named and loaded again from where it was.
        """
        return self._save_pretrained(Path(folder), bundle_encoder)

    def _save_pretrained(self, save_directory: Path, bundle_encoder: bool = False) -> Path:  # type: ignore[override]
        write = getattr(self.encoder, "save", None) if bundle_encoder else None
        if bundle_encoder and write is None:
            raise InputError(f"{type(self.encoder).__name__} has no save(folder), so it cannot be bundled.")
        states = [part.calibrator.get_state()[1] for part in self.parts]
        arrays = {f"{i}.{name}": array for i, state in enumerate(states) for name, array in state.items()}

        def write_views(room: Path) -> None:
            for i, part in enumerate(self.parts):
                part.view.save(room / model_folder.PARTS / str(i))

        return model_folder.save(save_directory, self._config(), arrays, write_views, write)

    def _config(self) -> dict[str, Any]:
        parts = [
            {
                "view": part.view.describe(),
                "calibrator": part.calibrator.get_state()[0],
                "weight": part.weight,
                "scale": part.scale,
            }
            for part in self.parts
        ]
        known = {"recipe": self.recipe, "encoder": self.encoder.describe(), "parts": parts}
        return known | {"training": self.training, "results": self.results, "card": self.card}

    def push_to_hub(
        self, repo_id: str, *, bundle_encoder: bool = False, private: bool | None = None, **options: Any
    ) -> str:
        """Upload the model and its card to the Hugging Face hub in one commit; return the commit's address.

        Args:
            repo_id: Such as ``"someone/bert-base-uncased-flow"``; made if it is not there.
            bundle_encoder: Upload the encoder's weights too: needed where it is not on the hub itself.
            private: Whether a new repository is for its owner only; default: as the owner's account says.
            options: ``token``, ``commit_message``, ``branch``, ``create_pr`` of ``bertflow.storage.model_folder.push``.
        """
        with TemporaryDirectory() as room:
            folder = self.save_pretrained(Path(room) / "model", bundle_encoder=bundle_encoder)
            return model_folder.push(folder, repo_id, private=private, **options)

    def generate_model_card(self, name: str = "this folder") -> ModelCard:
        """Return the model card that is saved and pushed; ``name`` is what it says to load the model by."""
        return ModelCard(model_card(self._config(), name))

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls,
        path_or_id: str | Path,
        *,
        encoder: Any = None,
        device: str | None = None,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        trust_remote_code: bool = False,
        accept_changed_encoder: bool = False,
    ) -> BertFlow:
        """Load a saved model.

        Args:
            path_or_id: A folder, an id on the Hugging Face hub, or ``"mini-flow"``, which ships inside: ``"mini"`` with a
                flow that was fitted on general text.
            encoder: An encoder in place of the one that the model names.
            device: Default: cuda, then mps, then cpu.
            revision: Branch, tag or commit on the hub.
            token: Access token for private models.
            cache_dir: Where downloads are kept.
            local_files_only: Never ask the hub.
            force_download: Download again what is there already.
            trust_remote_code: Run Python code that comes with the encoder. Only if you have read it; it is never remembered.
            accept_changed_encoder: Load also where the encoder has other weights or settings than the one of the fit.
        """
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir, "force_download": force_download}
        folder = model_folder.locate(path_or_id, local_files_only=local_files_only, **hub)
        options = {"device": device, "local_files_only": local_files_only, "trust_remote_code": trust_remote_code}
        return cls._from_pretrained(folder, encoder, accept_changed_encoder, options)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, folder: Path, encoder: Any, accept_changed_encoder: bool, options: dict[str, Any]
    ) -> BertFlow:
        config, arrays = model_folder.load(folder)
        with model_folder.consistent(folder):
            known = config.get("encoder")
            if known is None and encoder is None:
                raise InputError("'encoder' is missing; for a calibrator alone, give encoder=…")
            if known is None:
                return cls(encoder, Calibrator.from_state(config["calibrator"], arrays, device=options["device"]))
            known["name"], known["class"]
            needed = any(View.registry[part["view"]["class"]].needs_encoder for part in config["parts"])
        given = as_encoder(encoder) if encoder is not None else None
        bundle = folder / model_folder.ENCODER if config.get("bundled_encoder") else None
        load = partial(load_encoder, known, bundle, **options)
        loaded = given or (load() if needed else Deferred(known, load))
        with model_folder.consistent(folder):
            parts = [_load_part(folder, config, arrays, i, loaded, options) for i in range(len(config["parts"]))]
            model = cls(loaded, None, config.get("training"), parts=parts, recipe=config.get("recipe"))
        model.card, model.results = config.get("card", {}), config.get("results", [])
        if needed and loaded.fingerprint != known.get("fingerprint"):
            _changed_encoder(known["name"], loaded.name, accept_changed_encoder)
            model.results = []
        return model

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
        parts = ", ".join(f"{part.view!r} -> {part.calibrator!r}" for part in self.parts)
        recipe = f"recipe={self.recipe!r}, " if self.recipe else ""
        return f"BertFlow(encoder={self.encoder.name!r}, {recipe}parts=[{parts}], dim={self.dim})"


def _calibrator_of(given: Any) -> Calibrator:
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


def _load_part(
    folder: Path, config: dict[str, Any], arrays: dict[str, Matrix], i: int, encoder: Any, options: dict[str, Any]
) -> Part:
    known = config["parts"][i]
    view = View.load(model_folder.view_folder(folder, config, i), known["view"], encoder)
    own = model_folder.arrays_of_part(arrays, i)
    calibrator = Calibrator.from_state(known["calibrator"], own, device=options["device"])
    return Part(view, calibrator, known["weight"], float(known["scale"]))


def _changed_encoder(name: str, loaded: str, accepted: bool) -> None:
    """Refuse an encoder that is not the one of the fit, or warn where the user accepts it."""
    what = (
        f"The model was fitted on the encoder {name!r}; {loaded!r} has other weights or settings, so its vectors would be "
        "calibrated wrongly."
    )
    if not accepted:
        raise ModelFolderError(
            f"{what} Fit the model again, or load it with accept_changed_encoder=True, on the command line "
            "--accept-changed-encoder."
        )
    warnings.warn(what, stacklevel=4)
