"""sentence-transformers: our modules for it; ``attach`` and ``to_sentence_transformer`` put them on a model.

The paths ``bertflow.integrations.sentence_transformers.FlowModule``, ``….PartsModule`` and ``….JoinedModule`` stand in saved
models, so they are **frozen forever**: the classes may grow, but must stay here, under these names, and load what any
earlier version saved.

Importing this module imports sentence-transformers, which takes seconds; ``bertflow.attach`` waits until it is called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bertflow.calibrators import Calibrator
from bertflow.calibrators.modules import AffineMap
from bertflow.encoders.modules import ViewModule
from bertflow.errors import InputError, ModelFolderError, require
from bertflow.integrations.hidden_states import keep_hidden_states
from bertflow.integrations.sentence_transformers_export import attach, to_sentence_transformer
from bertflow.parts import Part

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FlowModule", "JoinedModule", "PartsModule", "attach", "to_sentence_transformer"]

FORMAT_VERSION = 1

_Module: Any = require("sentence_transformers.sentence_transformer.modules", "sentence-transformers").Module


class _FixedModule(_Module):
    """A fitted map as a module of a ``SentenceTransformer``.

    It computes in float32 (or in float64, if it was fitted on such rows) whatever the dtype of the transformer, also under
    autocast. It is fixed: its weights are in the ``state_dict``, but no optimizer changes them, and gradients pass through.

    A saved model that has such a module is loaded by ``SentenceTransformer(folder, trust_remote_code=True)``: since 6.0
    sentence-transformers asks for that flag wherever a class is not its own, although here nothing but the installed
    bertflow is imported.
    """

    def get_config_dict(self) -> dict[str, Any]:
        """Return what ``config.json`` holds."""
        raise NotImplementedError

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write ``config.json`` and ``model.safetensors``; the unsafe format that could be asked for is not written."""
        self.save_config(output_path)
        self.save_torch_weights(output_path)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Read what ``save`` wrote, from a folder or the hub."""
        hub = {
            "subfolder": subfolder,
            "token": token,
            "cache_folder": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        place = f"{model_name_or_path}/{subfolder}"
        missing = [
            name
            for name in (cls.config_file_name, "model.safetensors")
            if cls.load_file_path(model_name_or_path, name, **hub) is None
        ]
        if missing:
            raise ModelFolderError(
                f"{place} has no {missing[0]}, so there is no {cls.__name__} in it: copy the whole folder again, or export "
                "again."
            )
        try:
            config = cls.load_config(model_name_or_path, **hub)
            if config.pop("format_version") > FORMAT_VERSION:
                raise ModelFolderError("it is from a newer version: run  pip install --upgrade bertflow")
            return cls._restored(config, cls.load_torch_weights(model_name_or_path, **hub))
        except Exception as error:  # damaged files alone raise four kinds
            raise ModelFolderError(f"The {cls.__name__} in {place} cannot be loaded: {error}") from error

    @classmethod
    def _restored(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> Self:
        raise NotImplementedError

    def on_model_ready(self, model: Any) -> None:
        """See to it that the model, now loaded, can work in a pool of processes."""
        keep_hidden_states(model)

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """Yield this module alone: with a ``device_map`` the library casts every inner layer that it can see."""
        memo = set() if memo is None else memo
        if self not in memo:
            memo.add(self)
            yield prefix, self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Let ``to``, ``half`` and the library's own cast move the weights to another device, but not round them."""

        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        return super()._apply(moved, recurse=True)


class FlowModule(_FixedModule):
    """A fitted flow as the last module of a ``SentenceTransformer``.

    Args:
        calibrator: A fitted ``FlowCalibrator``, which is copied.
    """

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        flow = getattr(calibrator, "flow_", None)
        if flow is None:
            raise InputError(
                f"{type(calibrator).__name__} is neither affine nor a flow, so no module can stand for it."
            )
        self.settings, _ = calibrator.get_state()
        self.flow = copy.deepcopy(flow).requires_grad_(False)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Replace the sentence embeddings (n, d) by their latents (n, d), float32."""
        # a model with truncate_dim was calibrated on its first dimensions, and cuts them off only after the last module
        x: Tensor = features["sentence_embedding"][:, : self.get_embedding_dimension()]
        with torch.autocast(x.device.type, enabled=False):
            latents, _ = self.flow(x.to(next(self.flow.parameters()).dtype))
        features["sentence_embedding"] = latents.float()
        return features

    def get_embedding_dimension(self) -> int:
        """Return d."""
        return int(self.settings["n_features_out"])

    def get_config_dict(self) -> dict[str, Any]:
        """Return what ``config.json`` holds."""
        return {"format_version": FORMAT_VERSION, **self.settings}

    @classmethod
    def _restored(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> Self:
        return cls(_flow_calibrator(config, weights))


class PartsModule(_FixedModule):
    """The parts of a model as the last module: views with their calibrators, side by side.

    It stands where a pooling would, after the module that gives the vectors of tokens, of all layers where they are needed.

    Args:
        views: Of each part.
        calibrators: Of each part.
        parts: What is known of each: ``view``, ``calibrator`` (None where it is affine), ``scale`` and ``dim``, as JSON.
    """

    def __init__(
        self, views: Sequence[ViewModule], calibrators: Sequence[nn.Module], parts: Sequence[dict[str, Any]]
    ) -> None:
        super().__init__()
        self.views, self.calibrators = nn.ModuleList(views), nn.ModuleList(calibrators)
        self.parts = list(parts)
        self.reads_hidden_states = any(layer != -1 for view in views for layer in view.layers)

    @classmethod
    def of(cls, parts: Sequence[Part], pad_token_id: int) -> PartsModule:
        """Make it of a model's fitted parts; ``pad_token_id`` stands where a text has no token at all."""
        views = [part.view.as_module(pad_token_id) for part in parts]
        calibrators = [part.calibrator.as_module() for part in parts]
        known = [
            {
                "view": view.describe(),
                "calibrator": None if hasattr(part.calibrator, "as_affine") else part.calibrator.get_state()[0],
                "scale": part.scale,
                "dim": part.calibrator.dim,
            }
            for view, part in zip(views, parts, strict=True)
        ]
        return cls(views, calibrators, known)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Make sentence embeddings (n, k), float32, of token ids and the vectors of tokens (n, tokens, d)."""
        states, ids, mask = self._states(features), features["input_ids"], features["attention_mask"]
        with torch.autocast(ids.device.type, enabled=False):
            found = [
                part["scale"] * calibrator(view(states, ids, mask))
                for part, view, calibrator in zip(self.parts, self.views, self.calibrators, strict=True)
            ]
        features["sentence_embedding"] = torch.cat(found, dim=1)
        return features

    def _states(self, features: dict[str, Any]) -> Any:
        """The hidden states by their number, or the vectors (n, d) of an encoder that pools by itself."""
        if "sentence_embedding" in features:
            return features["sentence_embedding"]
        return features["all_layer_embeddings"] if self.reads_hidden_states else {-1: features["token_embeddings"]}

    def get_embedding_dimension(self) -> int:
        """Return k."""
        return sum(int(part["dim"]) for part in self.parts)

    def get_config_dict(self) -> dict[str, Any]:
        """Return what ``config.json`` holds."""
        return {"format_version": FORMAT_VERSION, "parts": self.parts}

    @classmethod
    def _restored(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> Self:
        views: list[ViewModule] = []
        calibrators: list[nn.Module] = []
        for i, part in enumerate(config["parts"]):
            views.append(ViewModule.rebuild(part["view"], _below(f"views.{i}.", weights)))
            known, tensors = part["calibrator"], _below(f"calibrators.{i}.", weights)
            calibrators.append(_flow_calibrator(known, tensors).as_module() if known else AffineMap(**tensors))
        return cls(views, calibrators, config["parts"])


class JoinedModule(FlowModule):
    """The preset ``best`` of version 0.1: tokens looked up in a table, beside the words in their sentence with a flow.

    Only loaded, never made any more: ``PartsModule`` took its place. It stands where a pooling would.

    Args:
        calibrator: The fitted flow of the words in their sentence.
        tables: By name: features ``vectors`` (tokens, k) and ``weights`` (tokens,) of single tokens, and those of
            ``nothing`` (k,); which tokens are ``words`` (tokens,) and which ``special``, around every text (tokens,);
            ``matrix`` (k, k) and ``bias`` (k,), which whiten the features; ``scales`` (2,) of both parts.
    """

    TABLES = ("vectors", "weights", "nothing", "words", "special", "matrix", "bias", "scales")

    def __init__(self, calibrator: Calibrator, tables: dict[str, Tensor]) -> None:
        super().__init__(calibrator)
        for name in self.TABLES:
            self.register_buffer(name, tables[name])

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Make sentence embeddings (n, k + d), float32, of token ids and the vectors of tokens (n, tokens, d)."""
        states, ids, mask = (features[name] for name in ("token_embeddings", "input_ids", "attention_mask"))
        with torch.autocast(states.device.type, enabled=False):
            words = _shares(mask * self.words[ids], mask)
            latents, _ = self.flow((words[:, None] @ states.float())[:, 0].to(next(self.flow.parameters()).dtype))
            tokens = mask * ~self.special[ids]
            shares = _shares(tokens * self.weights[ids], tokens)
            means = (shares[:, None] @ self.vectors[ids].float())[:, 0]
            means = torch.where(tokens.any(1, keepdim=True), means, self.nothing)
            parts = (means @ self.matrix + self.bias) * self.scales[0], latents.float() * self.scales[1]
        features["sentence_embedding"] = torch.cat(parts, dim=1)
        return features

    def get_embedding_dimension(self) -> int:
        """Return k + d."""
        return len(self.bias) + super().get_embedding_dimension()

    @classmethod
    def _restored(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> Self:
        tables = {name: weights.pop(name) for name in cls.TABLES}
        return cls(_flow_calibrator(config, weights), tables)


def _below(head: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(head): tensor for name, tensor in weights.items() if name.startswith(head)}


def _flow_calibrator(config: dict[str, Any], weights: dict[str, Tensor]) -> Any:
    arrays = {name.removeprefix("flow."): tensor.numpy() for name, tensor in weights.items()}
    return Calibrator.from_state(config, arrays, device="cpu")


def _shares(weights: Tensor, otherwise: Tensor) -> Tensor:
    """Weights (n, tokens) that sum to one in each row; where all are 0, those that ``otherwise`` gives."""
    weights = torch.where(weights.any(1, keepdim=True), weights, otherwise).float()
    return weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
