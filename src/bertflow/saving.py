"""A model on disk and on the hub: save, load, push, card."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard, ModelHubMixin

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator
from bertflow.encoders.base import Deferred, TextEncoder, View
from bertflow.encoders.choosing import as_encoder, load_encoder
from bertflow.errors import InputError, ModelFolderError
from bertflow.parts import Part
from bertflow.storage import model_folder
from bertflow.storage.cards import Result, model_card

if TYPE_CHECKING:
    from typing import Self


class SavedModel(ModelHubMixin):
    """What a model does with disk and hub; ``BertFlow`` is the whole."""

    encoder: TextEncoder
    parts: list[Part]
    training: dict[str, Any]
    recipe: str | None
    results: list[Result]
    card: dict[str, Any]

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
        defer_encoder: bool = False,
    ) -> Self:
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
            defer_encoder: Load the encoder only when it is needed, if at all: to calibrate vectors that are there already.
            accept_changed_encoder: Load also where the encoder has other weights or settings than the one of the fit.
        """
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir, "force_download": force_download}
        folder = model_folder.locate(path_or_id, local_files_only=local_files_only, **hub)
        options = {"device": device, "local_files_only": local_files_only, "trust_remote_code": trust_remote_code}
        return cls._from_pretrained(folder, encoder, accept_changed_encoder, defer_encoder, options)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, folder: Path, encoder: Any, accept_changed_encoder: bool, defer_encoder: bool, options: dict[str, Any]
    ) -> Self:
        config, arrays = model_folder.load(folder)
        with model_folder.consistent(folder):
            known = config.get("encoder")
            if known is None and encoder is None:
                raise InputError("'encoder' is missing; for a calibrator alone, give encoder=…")
            if known is None:
                return cls(encoder, Calibrator.from_state(config["calibrator"], arrays, device=options["device"]))
            encoder_name = known["name"]
            kinds = [View.registry.get(part["view"]["class"], View) for part in config["parts"]]
        needed = any(kind.needs_encoder for kind in kinds) and not defer_encoder
        given = as_encoder(encoder) if encoder is not None else None
        if needed and given is None and "class" not in known:
            raise ModelFolderError(f"The model's encoder {encoder_name!r} is one of your own: give it with encoder=….")
        bundle = folder / model_folder.ENCODER if config.get("bundled_encoder") else None
        load = partial(load_encoder, known, bundle, **options)
        loaded = given or (load() if needed else Deferred(known, load))
        with model_folder.consistent(folder):
            model_folder.refuse_arrays_of_no_part(config, arrays)
            parts = [_load_part(folder, config, arrays, i, loaded, options) for i in range(len(kinds))]
        model = cls(loaded, None, config.get("training"), parts=parts, recipe=config.get("recipe"))
        model.card, model.results = config.get("card", {}), config.get("results", [])
        if needed and loaded.fingerprint != known.get("fingerprint"):
            _changed_encoder(encoder_name, loaded.name, accept_changed_encoder)
            model.results = []
        return model


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
