"""A model on disk and on the hub: save, load, push, card."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bertflow.errors import InputError, ModelFolderError
from bertflow.runtime.light import LightParts, choose_runtime
from bertflow.storage import model_folder
from bertflow.storage.cards import Result, measured, merged, model_card

if TYPE_CHECKING:
    from typing import Self

    from huggingface_hub import ModelCard

    from bertflow.arrays import Matrix
    from bertflow.encoders.base import TextEncoder
    from bertflow.evaluation import Score
    from bertflow.parts import Part


class SavedModel:
    """What a model does with disk and hub; ``BertFlow`` is the whole.

    A loaded model runs without torch where that gives the same vectors. Its encoder and its parts are then loaded when they
    are asked for, and from then on they run.
    """

    encoder: TextEncoder
    parts: list[Part]
    training: dict[str, Any]
    recipe: str | None
    results: list[Result]
    card: dict[str, Any]
    _light: LightParts | None = None
    _load_whole: Callable[[], SavedModel]

    def __getattr__(self, name: str) -> Any:
        """Load with torch what a model that runs without it left out."""
        if name not in ("encoder", "parts") or self._light is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        whole = self._load_whole()
        self.encoder, self.parts, self._light = whole.encoder, whole.parts, None
        return getattr(self, name)

    @property
    def runtime(self) -> str:
        """What runs the model: ``"numpy"``, ``"onnxruntime"`` or ``"torch"``."""
        return "torch" if self._light is None else self._light.runtime

    def _encode(self, texts: list[str], **options: Any) -> Matrix:
        """Map n texts to calibrated vectors (n, k)."""
        if self._light:
            return self._light.encode(texts, **options)
        from bertflow.parts import encode_parts

        return encode_parts(self.parts, texts, **options)

    def add_result(self, dataset: str, score: Score, split: str | None = "test") -> None:
        """Keep a measured score with the model: it goes into config.json and, as ``model-index``, into the model card.

        Args:
            dataset: Its name, such as ``"STS-B"``.
            score: What ``bertflow.evaluation.evaluate_task(task, model.encode)`` returned.
            split: Which part of the data set, if it has parts.
        """
        self.results = merged(self.results, [measured(dataset, score, split)])

    def save_pretrained(self, folder: str | Path, *, bundle_encoder: bool = False, runtime: str | None = None) -> Path:
        """Write the model to a folder, whole or not at all.

        Args:
            folder: Where; an earlier bertflow model there is replaced.
            bundle_encoder: Put the encoder's weights into it too; otherwise it is named and loaded again from where it was.
            runtime: ``"onnx"``: put the encoder's ONNX graph into it too, so that the model runs without torch. Models of
                ``"mini"``, whose graph ships with bertflow, and those without a transformer do so anyway.
        """
        if runtime not in (None, "onnx"):
            raise InputError(f"Unknown runtime {runtime!r} to save for; it is 'onnx', or left out.")
        write = getattr(self.encoder, "save", None) if bundle_encoder else None
        if bundle_encoder and write is None:
            raise InputError(f"{type(self.encoder).__name__} has no save(folder), so it cannot be bundled.")
        write_graph = None
        if runtime and any(part.view.needs_encoder for part in self.parts):
            from bertflow.runtime.graph_export import graph_writer

            write_graph = graph_writer([part.view for part in self.parts])
        states = [part.calibrator.get_state()[1] for part in self.parts]
        arrays = {f"{i}.{name}": array for i, state in enumerate(states) for name, array in state.items()}

        def write_views(room: Path) -> None:
            for i, part in enumerate(self.parts):
                part.view.save(room / model_folder.PARTS / str(i))

        return model_folder.save(folder, self._config(), arrays, write_views, write, write_graph)

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
        from huggingface_hub import ModelCard

        return ModelCard(model_card(self._config(), name))

    @classmethod
    def from_pretrained(
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
        runtime: str | None = None,
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
            runtime: ``"light"``: without torch, or an error that says why not. ``"torch"``: with it. Default: the lightest that
                is here and gives the same vectors; ``repr`` tells which.
        """
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir, "force_download": force_download}
        folder = model_folder.locate(path_or_id, local_files_only=local_files_only, **hub)
        options = {"device": device, "local_files_only": local_files_only, "trust_remote_code": trust_remote_code}
        config, arrays = model_folder.load(folder)
        free = encoder is None and not defer_encoder
        light = choose_runtime(folder, config, arrays, device=device, runtime=runtime) if free else None
        load = partial(cls._load, folder, config, encoder, accept_changed_encoder, defer_encoder, options)
        return load() if light is None else cls._of_light(light, config, load)

    @classmethod
    def _of_light(cls, light: LightParts, config: dict[str, Any], load: Callable[[], Self]) -> Self:
        """Return a model that runs without torch until its parts are asked for."""
        model = cls.__new__(cls)
        model._light, model._load_whole = light, load
        model.training, model.recipe = config.get("training") or {}, config.get("recipe")
        model.card, model.results = config.get("card", {}), config.get("results", [])
        return model

    @classmethod
    def _load(
        cls,
        folder: Path,
        known: dict[str, Any],
        encoder: Any,
        accept_changed_encoder: bool,
        defer_encoder: bool,
        options: dict[str, Any],
    ) -> Self:
        from bertflow.calibrators import Calibrator
        from bertflow.encoders.base import Deferred, View
        from bertflow.encoders.choosing import as_encoder, load_encoder

        make: Any = cls
        config, arrays = model_folder.load(folder)
        if config.get("sha256") != known.get("sha256"):
            raise ModelFolderError(f"{folder} has changed since the model was loaded from it: load it again.")
        with model_folder.consistent(folder):
            named = config.get("encoder")
            if named is None and encoder is None:
                raise InputError("'encoder' is missing; for a calibrator alone, give encoder=…")
            if named is None:
                return make(encoder, Calibrator.from_state(config["calibrator"], arrays, device=options["device"]))
            encoder_name = named["name"]
            kinds = [View.registry.get(part["view"]["class"], View) for part in config["parts"]]
        needed = any(kind.needs_encoder for kind in kinds) and not defer_encoder
        given = as_encoder(encoder) if encoder is not None else None
        if needed and given is None and "class" not in named:
            raise ModelFolderError(f"The model's encoder {encoder_name!r} is one of your own: give it with encoder=….")
        bundle = folder / model_folder.ENCODER if config.get("bundled_encoder") else None
        load = partial(load_encoder, named, bundle, **options)
        loaded = given or (load() if needed else Deferred(named, load))
        with model_folder.consistent(folder):
            model_folder.refuse_arrays_of_no_part(config, arrays)
            parts = [_load_part(folder, config, arrays, i, loaded, options) for i in range(len(kinds))]
        model = make(loaded, None, config.get("training"), parts=parts, recipe=config.get("recipe"))
        model.card, model.results = config.get("card", {}), config.get("results", [])
        if needed and loaded.fingerprint != named.get("fingerprint"):
            _changed_encoder(encoder_name, loaded.name, accept_changed_encoder)
            model.results = []
        return model


def _load_part(
    folder: Path, config: dict[str, Any], arrays: dict[str, Matrix], i: int, encoder: Any, options: dict[str, Any]
) -> Part:
    from bertflow.calibrators import Calibrator
    from bertflow.encoders.base import View
    from bertflow.parts import Part

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
