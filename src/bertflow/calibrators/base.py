"""What every calibrator is: a fixed map from sentence vectors to sentence vectors, fitted without labels.

*Calibration* here means: after pooling, before cosine, apply one map that was fitted on unlabelled vectors. A calibrator
is a scikit-learn transformer (``fit``, ``transform``, ``inverse_transform``) that can say all it knows as plain
settings and a dictionary of arrays, which is what ``save_pretrained`` writes to disk.
"""

from __future__ import annotations

import numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bertflow.arrays import Matrix
from bertflow.errors import InputError, ModelFolderError
from bertflow.storage import model_folder

if TYPE_CHECKING:
    from typing import Self

    from torch import nn


class Calibrator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Contract of all calibrators; see the module's docstring.

    A subclass implements ``fit``, ``_transform``, ``_inverse``, ``_arrays`` and ``_restore``, and sets ``_n_features_out``
    in ``fit``.
    """

    registry: ClassVar[dict[str, type[Calibrator]]] = {}
    n_features_in_: int
    _n_features_out: int
    _unsaved: ClassVar[frozenset[str]] = (
        frozenset()
    )  # parameters that say nothing about the fitted map, such as a device

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make every calibrator loadable by its class name."""
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            Calibrator.registry[cls.__name__] = cls

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_fit(self, x: object) -> Matrix:
        """Validate training rows as scikit-learn does; remembers the number of features."""
        return validate_data(self, x, dtype=[np.float64, np.float32], ensure_min_samples=2, ensure_min_features=2)

    def _check(self, x: object) -> Matrix:
        """Validate rows for a fitted calibrator."""
        check_is_fitted(self)
        return validate_data(self, x, dtype=[np.float64, np.float32], reset=False)

    def _check_latents(self, z: object) -> Matrix:
        """Validate rows of latents, which may be fewer dimensions than the input's."""
        check_is_fitted(self)
        latents = check_array(z, dtype=[np.float64, np.float32])
        if latents.shape[1] != self._n_features_out:
            raise InputError(
                f"Latents have {latents.shape[1]} dimensions; this calibrator gives {self._n_features_out}."
            )
        return latents

    @property
    def dim(self) -> int:
        """Dimensions of the calibrated vectors."""
        check_is_fitted(self)
        return int(self._n_features_out)

    def to(self, device: Any) -> Self:
        """Move to a device what computes there; returns itself. Affine maps compute on the CPU."""
        return self

    def as_module(self) -> nn.Module:
        """Return the fitted map as a torch module from (n, d) to (n, k), for exports."""
        raise InputError(
            f"{type(self).__name__} is neither affine nor a flow, so it has no torch form and cannot be exported."
        )

    def transform(self, X: object) -> Matrix:
        """Map sentence vectors (n, d) to calibrated vectors (n, k)."""
        x = self._check(X)
        return self._transform(x).astype(x.dtype, copy=False)

    def inverse_transform(self, Z: object) -> Matrix:
        """Map calibrated vectors (n, k) back to sentence vectors (n, d)."""
        z = self._check_latents(Z)
        return self._inverse(z).astype(z.dtype, copy=False)

    def _transform(self, x: Matrix) -> Matrix:
        raise NotImplementedError

    def _inverse(self, z: Matrix) -> Matrix:
        raise NotImplementedError

    def _arrays(self) -> dict[str, Matrix]:
        """Return the fitted arrays, named as they will stand in the safetensors file."""
        raise NotImplementedError

    def _restore(self, arrays: dict[str, Matrix]) -> None:
        """Set the fitted state from ``_arrays``'s dictionary, refusing missing, extra or misshapen ones."""
        raise NotImplementedError

    def get_state(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        """Return (settings, arrays): all there is to know about this fitted calibrator, as JSON and as numbers."""
        check_is_fitted(self)
        settings = {
            "class": type(self).__name__,
            "params": {k: _plain(v) for k, v in self.get_params(deep=False).items() if k not in self._unsaved},
            "n_features_in": int(self.n_features_in_),
            "n_features_out": int(self._n_features_out),
        }
        return settings, self._arrays()

    @classmethod
    def from_state(cls, settings: dict[str, Any], arrays: dict[str, Matrix], **unsaved: Any) -> Calibrator:
        """Rebuild what ``get_state`` returned; ``unsaved`` sets parameters that are not kept, such as ``device``."""
        name = settings.get("class")
        if name not in cls.registry:
            raise InputError(f"Unknown calibrator {name!r}; this version knows {', '.join(sorted(cls.registry))}.")
        try:
            kind = cls.registry[name]
            calibrator = kind(**settings["params"], **{k: v for k, v in unsaved.items() if k in kind._unsaved})
            calibrator.n_features_in_ = settings["n_features_in"]
            calibrator._n_features_out = settings["n_features_out"]
        except (KeyError, TypeError) as error:
            raise InputError(f"The settings of {name} are not what this version wrote: {error}.") from None
        calibrator._restore(arrays)
        return calibrator

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write this fitted calibrator to a folder of its own, whole or not at all.

        Args:
            folder: Where; an earlier model or calibrator of bertflow there is replaced.
        """
        settings, arrays = self.get_state()
        return model_folder.save(Path(folder), {"calibrator": settings}, arrays)

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path, *, device: str | None = None, **hub: Any) -> Self:
        """Load a saved calibrator, or that of a saved model of one part.

        Args:
            path_or_id: A folder, ``"mini-flow"``, or an id on the Hugging Face hub.
            device: Default: cuda, then mps, then cpu.
            hub: ``revision``, ``token``, ``cache_dir``, ``local_files_only``, ``force_download``.
        """
        folder = model_folder.locate(path_or_id, **hub)
        config, arrays = model_folder.load(folder)
        with model_folder.consistent(folder):
            parts = config.get("parts", ())
            if len(parts) > 1:
                raise ModelFolderError(
                    f"{folder} holds a model of {len(parts)} parts, which has no single calibrator: load it with "
                    "BertFlow.from_pretrained and see its parts."
                )
            settings = parts[0]["calibrator"] if parts else config["calibrator"]
            arrays = model_folder.arrays_of_part(arrays, 0) if parts else arrays
            calibrator = Calibrator.from_state(settings, arrays, device=device)
        if not isinstance(calibrator, cls):
            raise InputError(f"{folder} holds a {type(calibrator).__name__}, not a {cls.__name__}.")
        return calibrator


def take_arrays(arrays: dict[str, Matrix], shapes: dict[str, tuple[int, ...]]) -> dict[str, Matrix]:
    """Return ``arrays`` if its names and shapes are exactly ``shapes``; name the first difference otherwise."""
    odd = sorted(set(shapes) ^ set(arrays))
    if odd:
        raise InputError(f"Array {odd[0]!r} is {'missing' if odd[0] in shapes else 'not expected'}.")
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(f"Array {name!r} has shape {arrays[name].shape}; {shape} was expected.")
    return arrays


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """One integer seed from scikit-learn's ``random_state``, for a generator of our own."""
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _plain(value: Any) -> Any:
    """JSON has no numpy scalars and no generators."""
    if isinstance(value, np.generic):
        return value.item()
    return None if isinstance(value, np.random.RandomState) else value
