"""The two contracts of this room: what a frozen encoder is, and what a view of it is.

An *encoder* is a frozen language model. A *view* is one way to read vectors out of it: a pooling of some layers, a prompt,
or a table of token vectors. A view's constructor only stores settings, as in scikit-learn; ``fit`` binds it to an encoder
and may learn from the user's text, without labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from sklearn.base import BaseEstimator

from bertflow.arrays import Matrix
from bertflow.errors import InputError

if TYPE_CHECKING:
    from typing import Self

    from bertflow.encoders.modules import ViewModule


class Template(NamedTuple):
    """What a text is put into before a transformer reads it, as token ids.

    Args:
        pieces: The ids before, between and behind the copies of the text: one piece more than copies.
        place: The token whose state is read, as its piece and its number in it (-1: the token before that piece); None: the
            last copy of the text is pooled.
        lead: Space that goes with the text, since most tokenizers tell ``" word"`` from ``"word"``.
        weight: Vectors are multiplied by it; those of a reading's templates are added up.
        subtract_bias: Subtract the vectors of the same template with the text blanked, at the same positions.
        cuts: Whether a text that is too long is cut; else it is refused. The template itself is never cut.
    """

    pieces: tuple[tuple[int, ...], ...]
    place: tuple[int, int] | None = None
    lead: str = ""
    weight: float = 1.0
    subtract_bias: bool = False
    cuts: bool = True

    @property
    def length(self) -> int:
        """How many tokens it has without the text."""
        return sum(map(len, self.pieces))

    @property
    def copies(self) -> int:
        """How many times it has the text."""
        return len(self.pieces) - 1

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """Put a text's token ids into it."""
        first, *others = self.pieces
        return [*first, *chain.from_iterable((*ids, *piece) for piece in others)]


class Reading(NamedTuple):
    """What one pass through a transformer is to give.

    Args:
        pooling: One of ``bertflow.POOLINGS``.
        words_only: Pool only tokens that have a letter or a digit.
        layers: The hidden states to pool (0 = embeddings, -1 = last), instead of the pooling's own.
        templates: What the text is put into, each a pass of its own, whose vectors are added up; none: the text as it is.
    """

    pooling: str
    words_only: bool = False
    layers: tuple[int, ...] | None = None
    templates: tuple[Template, ...] = ()

    def __repr__(self) -> str:
        """Tell what is not the default: vectors in caches are found by it."""
        more = {name: value for name in ("layers", "templates") if (value := getattr(self, name))}
        told = {"pooling": self.pooling, "words_only": self.words_only} | more
        return f"Reading({', '.join(f'{name}={value!r}' for name, value in told.items())})"


class TokenRows(NamedTuple):
    """A table of token vectors: a text's vector is the weighted mean of its tokens' rows.

    Args:
        tokenizer: A ``tokenizers.Tokenizer``.
        vectors: Of each token (tokens, d).
        weights: Of each token (tokens,).
        nothing: The vector of a text without tokens (d,).
    """

    tokenizer: Any
    vectors: Matrix
    weights: Matrix
    nothing: Matrix


@runtime_checkable
class TextEncoder(Protocol):
    """What bertflow asks of an encoder: this much, and a model can be fitted on top of it."""

    name: str
    dim: int

    @property
    def fingerprint(self) -> str:
        """Identify weights and settings: equal fingerprints give equal vectors."""

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to (n, d)."""

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load it again, as JSON."""


class View(BaseEstimator):
    """Contract of all views. A subclass is loadable by its class name from then on.

    A subclass implements ``_bind`` (and ``learn`` if it learns from text), and either ``reading`` or ``encode``.

    Attributes:
        encoder: The frozen encoder, after ``fit``.
        dim: Dimensions of the vectors, after ``fit``.
    """

    registry: ClassVar[dict[str, type[View]]] = {}
    learns: ClassVar[bool] = False  # whether ``learn`` looks at the user's text
    needs_encoder: ClassVar[bool] = True  # whether a fitted view runs the encoder
    encoder: Any
    dim: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make every view loadable by its class name."""
        super().__init_subclass__(**kwargs)
        View.registry[cls.__name__] = cls

    def fit(self, encoder: TextEncoder, texts: Iterable[str], *, show_progress_bar: bool = False) -> Self:
        """Bind the view to an encoder and learn what it learns from unlabelled texts.

        Args:
            encoder: The frozen encoder.
            texts: Gone through once, by views that learn; never by the others.
            show_progress_bar: Show progress.
        """
        self.encoder = encoder
        self._bind(encoder, show_progress_bar)
        if self.learns:
            self.learn(texts)
        return self

    def _bind(self, encoder: TextEncoder, show_progress_bar: bool) -> None:
        """Set ``dim`` and what else follows from the encoder alone."""
        raise NotImplementedError

    def learn(self, texts: Iterable[str]) -> None:
        """Learn from unlabelled texts, gone through once."""

    @property
    def reading(self) -> Any:
        """What a pass through the encoder, shared with other views, has to give; None where the view needs none."""
        return None

    def reading_on(self, encoder: Any) -> Any:
        """What a pass through an encoder would have to give for this view, which need not be fitted; None without one."""
        if not self.needs_encoder or not hasattr(encoder, "encode_views"):
            return None
        self.encoder = encoder
        return self.reading

    def encode(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        return encode_views([self], texts, show_progress_bar=show_progress_bar)[0]

    def as_module(self, pad_token_id: int) -> ViewModule:
        """Return the fitted view as a torch module, for exports.

        Args:
            pad_token_id: The token that stands where a text has none at all.
        """
        raise InputError(f"{type(self).__name__} has no torch form, so it cannot be exported.")

    def as_encoder(self) -> Any:
        """Return the encoder whose tokenizer makes the tokens that ``as_module`` reads; None: the model's own."""
        return None

    def as_table(self) -> TokenRows | None:
        """Return the rows whose weighted means the vectors are; None where they are nothing like that."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return class and settings as JSON."""
        return {"class": type(self).__name__, "params": self.get_params(deep=False), "dim": self.dim}

    @property
    def fingerprint(self) -> str:
        """Identify encoder, settings and what was learnt: equal fingerprints give equal vectors."""
        text = json.dumps([self.encoder.fingerprint, self.describe()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def save(self, folder: Path) -> None:
        """Write what was learnt, beside ``describe``, to a folder; nothing where nothing was."""

    def restore(self, folder: Path, described: dict[str, Any], encoder: Any) -> None:
        """Read what ``save`` wrote and bind to the encoder."""
        self.encoder = encoder
        self._bind(encoder, False)

    @staticmethod
    def load(folder: Path, described: dict[str, Any], encoder: Any) -> View:
        """Rebuild the view that ``describe`` and ``save`` kept."""
        name = described.get("class")
        if name not in View.registry:
            raise InputError(f"Unknown view {name!r}; this version knows {', '.join(sorted(View.registry))}.")
        try:
            view = View.registry[name](**described["params"])
        except TypeError as error:
            raise InputError(f"The settings of {name} are not what this version wrote: {error}.") from None
        view.restore(folder, described, encoder)
        return view


def encode_views(
    views: Sequence[View], texts: Sequence[str], *, batch_size: int | None = None, show_progress_bar: bool = False
) -> list[Matrix]:
    """Return each view's vectors (n, d) of n texts: one tokenisation and one pass for all that share an encoder."""
    shared = [view for view in views if view.reading is not None]
    runs: dict[int, list[View]] = {}
    for view in shared:
        runs.setdefault(id(view.encoder), []).append(view)
    found: dict[int, Matrix] = {}
    options: dict[str, Any] = {"show_progress_bar": show_progress_bar}
    options |= {} if batch_size is None else {"batch_size": batch_size}
    for together in runs.values():
        readings = list(dict.fromkeys(view.reading for view in together))
        vectors = together[0].encoder.encode_views(texts, readings, **options)
        found |= {id(view): vectors[readings.index(view.reading)] for view in together}
    alone = {id(view): view for view in views if view.reading is None}
    found |= {key: view.encode(texts, show_progress_bar=show_progress_bar) for key, view in alone.items()}
    return [found[id(view)] for view in views]


def exported_encoder(views: Sequence[View], encoder: Any) -> Any:
    """Return the encoder that an export of these views takes; all of them have to read the same tokens."""
    own = [found for view in views if (found := view.as_encoder()) is not None]
    if own and len(views) > 1:
        raise InputError(
            "A prompt beside other parts cannot be exported: an export reads a text once, either in the prompt or without it. "
            "Export a model of one part, such as recipe='prompt-half'."
        )
    return own[0] if own else encoder


class Deferred:
    """An encoder that is described but not loaded until somebody needs it: a table of tokens, for one, never does.

    Args:
        described: What its ``describe`` said.
        load: Loads it.
    """

    def __init__(self, described: dict[str, Any], load: Callable[[], TextEncoder]) -> None:
        self.name, self.fingerprint = str(described["name"]), str(described.get("fingerprint"))
        self._described, self._load = described, load
        self._loaded: TextEncoder | None = None

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load it, as JSON."""
        return dict(self._described)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._loaded is None:
            self._loaded = self._load()
        return getattr(self._loaded, name)
