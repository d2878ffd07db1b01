"""BertFlow, the thing users hold: a frozen encoder and a calibrator, from text to better vectors."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import ModelCard, ModelHubMixin
from sklearn.utils.validation import check_is_fitted

from bertflow.arrays import Matrix, as_matrix, unit_rows
from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.data import mini_flow_folder
from bertflow.encoders.joined import TOKEN_PRESETS, JoinedEncoder, calibrator_for, distill
from bertflow.encoders.token_table import StaticEncoder
from bertflow.encoders.transformer import SentenceTransformerEncoder, TextEncoder, as_encoder, check_sentences
from bertflow.errors import InputError, ModelFolderError, require
from bertflow.storage import model_folder
from bertflow.storage.cards import Result, measured, merged, model_card

if TYPE_CHECKING:
    from bertflow.evaluation import Score

logger = logging.getLogger(__name__)

FEW = 1000  # distinct sentences under which a flow learns little more than a scale


class BertFlow(ModelHubMixin):
    """A frozen language model whose sentence vectors are calibrated: text in, better vectors out.

    Args:
        encoder: A model name, folder, ``SentenceTransformer`` or ``Encoder``.
        calibrator: A fitted calibrator of the encoder's dimension.
        training: What is known about the fit, kept with the model.

    Attributes:
        results: What was measured of this model, kept with it and shown in its card: see ``add_result``.
        card: More YAML for the model card that only the author knows, such as ``{"license": "mit", "language": "en"}``.

    Example:
        >>> from bertflow import BertFlow
        >>> from bertflow.data import sample_sentences
        >>> model = BertFlow.fit(sample_sentences(), encoder="mini")
        >>> model.encode("One sentence.").shape
        (256,)
    """

    def __init__(self, encoder: Any, calibrator: Calibrator, training: dict[str, Any] | None = None) -> None:
        self.encoder: TextEncoder = as_encoder(encoder)
        self.calibrator = calibrator
        self.training = training or {}
        self.results: list[Result] = []
        self.card: dict[str, Any] = {}
        check_is_fitted(calibrator)
        if calibrator.n_features_in_ != self.encoder.dim:
            raise InputError(
                f"The calibrator was fitted on {calibrator.n_features_in_} dimensions, but the encoder {self.encoder.name!r} "
                f"gives {self.encoder.dim}: they do not belong together."
            )

    @classmethod
    def fit(
        cls,
        sentences: Sequence[str],
        encoder: Any = "mini",
        pooling: str | None = None,
        preset: str = "default",
        *,
        calibrator: Calibrator | None = None,
        random_state: int = 0,
        show_progress_bar: bool = False,
        **encoder_options: Any,
    ) -> BertFlow:
        """Encode unlabelled sentences with a frozen encoder and fit a calibrator on their vectors.

        Args:
            sentences: Text like the text to be compared later, a few thousand sentences or more; repeated ones count once.
            encoder: ``"mini"``, a Hugging Face id, a folder, a ``SentenceTransformer`` or an ``Encoder``.
            pooling: One of ``bertflow.POOLINGS``; default ``"first-last-avg"``. Not with a SentenceTransformer.
            preset: Of the flow: ``"default"`` or ``"paper"``. For encoders that are not tuned for similarity also ``"static"``,
                which looks tokens up in a table, and ``"best"``, which adds the words in their sentence.
            calibrator: Instead of a ``FlowCalibrator`` of that preset.
            random_state: Makes the result repeatable.
            show_progress_bar: Show progress of encoding and fitting.
            encoder_options: ``device``, ``max_length``, ``dtype``… of ``Encoder``.
        """
        texts = list(dict.fromkeys(check_sentences(sentences)))
        if len(texts) < 2:
            raise InputError(
                "All sentences are the same one; at least two different ones are needed, better thousands."
            )
        if len(texts) < FEW:
            logger.warning("Only %d different sentences: calibration wants a few thousand to be worth it.", len(texts))
        of_flow: dict[str, Any] = {
            "random_state": random_state,
            "device": encoder_options.get("device"),
            "verbose": show_progress_bar,
        }
        text_encoder: TextEncoder
        if preset in TOKEN_PRESETS:
            if pooling is not None or calibrator is not None:
                raise InputError(f"The preset {preset!r} brings its own pooling and calibrator; leave out yours.")
            options = {"random_state": random_state, "show_progress_bar": show_progress_bar, **encoder_options}
            text_encoder = distill(preset, encoder, texts, **options)
            calibrator = calibrator_for(text_encoder, **of_flow)
        else:
            text_encoder = as_encoder(encoder, pooling, **encoder_options)
        vectors = text_encoder.encode(texts, show_progress_bar=show_progress_bar)
        calibrator = FlowCalibrator(preset=preset, **of_flow) if calibrator is None else calibrator
        return cls(text_encoder, calibrator.fit(vectors), _training(texts, calibrator))

    def partial_fit(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> BertFlow:
        """Adapt the calibrator to more unlabelled sentences; the encoder stays frozen. Returns itself.

        For little text of one's own, on top of a model that knows more, such as ``"mini-flow"``. A flow moves towards the
        new sentences, unless that would make unseen ones of them less likely; a linear calibrator counts them in with the
        earlier ones. What was measured of the model before (``results``) no longer holds and is dropped.

        Args:
            sentences: Text like the text to be compared later, a hundred sentences or more; repeated ones count once.
            show_progress_bar: Show progress of encoding.
        """
        if not hasattr(self.calibrator, "partial_fit"):
            raise InputError(f"{type(self.calibrator).__name__} has no partial_fit: fit a new model with BertFlow.fit.")
        texts = list(dict.fromkeys(check_sentences(sentences)))
        self.calibrator.partial_fit(self.encoder.encode(texts, show_progress_bar=show_progress_bar))
        known = ("sentences", "fitted_vectors", "earlier_sentences")  # the second where it was fitted on shards
        earlier = sum(self.training.get(name) or 0 for name in known)
        self.training = _training(texts, self.calibrator) | {"earlier_sentences": earlier}
        self.results = []
        return self

    @property
    def dim(self) -> int:
        """Dimensions of the calibrated vectors."""
        return int(self.calibrator._n_features_out)

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
        show_progress_bar: bool = False,
    ) -> Any:
        """Map one text to its calibrated vector (d,), or n texts to (n, d).

        Args:
            sentences: One text or many.
            normalize_embeddings: Scale each vector to length one, so that a dot product is the cosine.
            convert_to_tensor: Return a torch tensor instead of a numpy array.
            show_progress_bar: Show progress.
        """
        single = isinstance(sentences, str)
        vectors = self.encoder.encode(_listed(sentences), show_progress_bar=show_progress_bar)
        vectors = self.calibrator.transform(vectors)
        if normalize_embeddings:
            vectors = unit_rows(vectors)
        result = vectors[0] if single else vectors
        return torch.from_numpy(result) if convert_to_tensor else result

    def similarity(self, a: Any, b: Any) -> Any:
        """Return the cosine of two texts, or the matrix (n, m) of cosines between two lists of texts or of vectors.

        Args:
            a: A text, texts, or calibrated vectors (n, d).
            b: Likewise.
        """
        left, right = self._vectors(a), self._vectors(b)
        if left.shape[1] != right.shape[1]:
            raise InputError(
                f"Vectors of {left.shape[1]} dimensions cannot be compared with those of {right.shape[1]}; this model "
                f"gives {self.dim}."
            )
        matrix = unit_rows(left) @ unit_rows(right).T
        return float(matrix[0, 0]) if isinstance(a, str) and isinstance(b, str) else matrix

    def score_samples(self, sentences: str | Sequence[str]) -> Matrix:
        """Return the log-density (n,) of each text under the flow: the least likely texts are the odd ones out."""
        if not hasattr(self.calibrator, "score_samples"):
            raise InputError(f"{type(self.calibrator).__name__} is not a density; fit a FlowCalibrator for that.")
        return self.calibrator.score_samples(self.encoder.encode(_listed(sentences)))

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
        # an encoder may have a table that is found nowhere else, and goes with the model in any case
        write = getattr(self.encoder, "save" if bundle_encoder else "save_table", None)
        if bundle_encoder and write is None:
            raise InputError(f"{type(self.encoder).__name__} has no save(folder), so it cannot be bundled.")
        return model_folder.save(save_directory, self._config(), self.calibrator.get_state()[1], write)

    def _config(self) -> dict[str, Any]:
        parts = {"encoder": self.encoder.describe(), "calibrator": self.calibrator.get_state()[0]}
        return parts | {"training": self.training, "results": self.results, "card": self.card}

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
    ) -> BertFlow:
        """Load a saved model.

        Args:
            path_or_id: A folder, an id on the Hugging Face hub, or ``"mini-flow"``, which ships inside: ``"mini"`` with a
                flow that was fitted on general text.
            encoder: An encoder in place of the one that the model names; a warning says so if it is another one.
            device: Default: cuda, then mps, then cpu.
            revision: Branch, tag or commit on the hub.
            token: Access token for private models.
            cache_dir: Where downloads are kept.
            local_files_only: Never ask the hub.
            force_download: Download again what is there already.
        """
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir, "force_download": force_download}
        folder = model_folder.locate(path_or_id, local_files_only=local_files_only, **hub)
        return cls._from_pretrained(folder, encoder, device, local_files_only)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, folder: Path, encoder: Any, device: str | None, local_files_only: bool
    ) -> BertFlow:
        config, arrays = model_folder.load(folder)
        with model_folder.hanging_together(folder):
            given = config.get("encoder", {"name": None})  # not there: a calibrator alone
            if encoder is None and given["name"] is None:
                raise InputError("'encoder' is missing; for a calibrator alone, give encoder=…")
            known = {"fingerprint": None, **given, "name": given["name"]}
            calibrator = Calibrator.from_state(config["calibrator"], arrays, device=device)
        named = encoder is None
        if encoder is None:
            encoder = _load_encoder(known, folder if config.get("bundled_encoder") else None, device, local_files_only)
        model = cls(encoder, calibrator, config.get("training"))
        model.card = config.get("card", {})
        if known["name"] is None or model.encoder.fingerprint == known["fingerprint"]:
            model.results = config.get("results", [])
        elif named and folder == mini_flow_folder():
            raise ModelFolderError(
                "The flow 'mini-flow' was fitted on another encoder than the 'mini' that is here, whose weights or settings "
                "differ. Install bertflow anew, or fit a flow on it: BertFlow.fit(sentences, encoder='mini')."
            )
        else:
            warnings.warn(
                f"The calibrator was fitted on the encoder {known['name']!r}; {model.encoder.name!r} has other weights or "
                "settings, so its vectors may be calibrated wrongly. Fit anew to be sure.",
                stacklevel=3,
            )
        return model

    def _vectors(self, texts_or_vectors: Any) -> Matrix:
        many = texts_or_vectors if hasattr(texts_or_vectors, "__len__") else list(texts_or_vectors)
        if isinstance(next(iter(many), ""), str):
            return self.encode(_listed(many))
        return as_matrix(many, "vectors")

    def __repr__(self) -> str:
        return f"BertFlow(encoder={self.encoder.name!r}, calibrator={self.calibrator!r}, dim={self.dim})"


def _listed(sentences: str | Sequence[str]) -> list[str]:
    return [sentences] if isinstance(sentences, str) else check_sentences(sentences)


def _training(texts: list[str], calibrator: Calibrator) -> dict[str, Any]:
    history = getattr(calibrator, "history_", None)
    return {
        "sentences": len(texts),
        "sentences_sha256": hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest(),
        **(history.summary() if history else {}),
    }


def _load_encoder(
    known: dict[str, Any], bundle: Path | None, device: str | None, local_files_only: bool
) -> TextEncoder:
    place = str(bundle / model_folder.ENCODER) if bundle else known["name"]
    theirs = known.get("kind") == "sentence-transformers"
    library = require("sentence_transformers", "sentence-transformers") if theirs else None
    options = {"device": device, "local_files_only": local_files_only}
    try:
        if known.get("kind") == "static":
            return StaticEncoder.load(place)
        if known.get("kind") == "joined":
            return JoinedEncoder.load(place, known["contextual"], **options)
        if library:
            return SentenceTransformerEncoder(library.SentenceTransformer(place, **options), name=known["name"])
        revision = None if bundle else known.get("revision")
        options |= {"max_length": known.get("max_length"), "words_only": known.get("words_only", False)}
        encoder = as_encoder(place, known.get("pooling"), revision=revision, **options)
    except Exception as error:  # sentence-transformers raises many kinds
        raise ModelFolderError(
            f"The model's encoder {known['name']!r} cannot be loaded: {error} Give one with encoder=…, or save the model with "
            "bundle_encoder=True where there is one."
        ) from error
    encoder.name = known["name"]
    return encoder
