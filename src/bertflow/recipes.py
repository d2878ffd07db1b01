"""Every recipe by name: the only place that lists them.

A recipe is the name of a list of parts. Help, error messages, completion and docs are made from this table.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import bertflow as bf  # whose public names are imported when they are used: names and help of recipes cost nothing
from bertflow.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from bertflow import Calibrator, Part, View

RAW, DEFAULT, DEFAULT_OF_ONE_VIEW = "raw", "best", "whitening-half"
SHRINKAGE = 0.5  # adds the mean eigenvalue to all
WORDS_SHARE = 4  # one dimension in so many of best-K is of the words in their sentence

Make: TypeAlias = "Callable[[View, int], list[Part]]"


@dataclass(frozen=True)
class Recipe:
    """A row of the table.

    Args:
        pattern: Its name, in which ``K`` stands for a number.
        help: What it is, in one line.
        make: From the view of the text, and the number, to parts that are not fitted yet.
        brings_views: Whether it has views of its own, so that no pooling can be named with it.
    """

    pattern: str
    help: str
    make: Make
    brings_views: bool = False

    def match(self, name: str) -> int | None:
        """Return the number in ``name`` (0 where the pattern has none), or None if it is another recipe's."""
        found = re.fullmatch(re.escape(self.pattern).replace("K", r"(0|[1-9]\d{0,5})"), name)
        return None if found is None else int(found[1]) if found.groups() else 0


TABLE: dict[str, Recipe] = {}
ALIASES = {"none": RAW}
PRESETS = {"default": "flow", "paper": "flow-paper", "static": "static", "best": "best"}  # what they were called in 0.1
TUNED = (
    "This encoder says that sentence-transformers made it, so it is most likely tuned already; calibrating it usually costs "
    "points (all-MiniLM-L6-v2: 78.8 raw, 76.4 whitened on seven STS sets, results/tuned-encoder.md). "
    "`bertflow advise` tells more; a recipe that you name is fitted without this warning."
)


def register_recipe(pattern: str, help: str, *, brings_views: bool = False) -> Callable[[Make], Make]:  # noqa: A002
    """Add a recipe under its name, as a decorator: every verb, help and contract test knows it from then on."""

    def register(make: Make) -> Make:
        TABLE[pattern] = Recipe(pattern, help, make, brings_views)
        return make

    return register


@register_recipe(RAW, "the encoder's vectors as they are")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.Identity())]


@register_recipe("sn", "each dimension standardised")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.Standardize())]


@register_recipe("natsv-K", "centred, the top K directions removed (all-but-the-top)")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.RemoveTopComponents(k))]


@register_recipe("sn+natsv-K", "standardised, then the top K directions removed")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.RemoveTopComponents(k, standardize=True))]


@register_recipe("whitening", "unit covariance (BERT-whitening)")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.Whitening())]


@register_recipe("whitening-K", "the same, only the K strongest directions")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.Whitening(k))]


@register_recipe("whitening-half", "principal axes scaled half-way to unit variance: safe for most uses")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.Whitening(alpha=0.5))]


@register_recipe("alpha-K", "the same, K percent of the way: alpha-0 only centres, alpha-100 is whitening")
def _(view: View, k: int) -> list[Part]:
    if k > 100:
        raise InputError(f"alpha-{k}: a share is a number from 0 to 100.")
    return [bf.Part(view, bf.Whitening(alpha=k / 100))]


@register_recipe("flow", "the paper's normalizing flow, trained our faster way")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.FlowCalibrator())]


@register_recipe("flow-paper", "the flow with the paper's own training")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.FlowCalibrator(preset="paper"))]


@register_recipe("flow-paper-nli", "the same for a large general corpus: 0.15 epochs at 2e-5")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.FlowCalibrator(preset="paper", epochs=0.15, learning_rate=2e-5))]


@register_recipe("static", "a table of token vectors, whitened: no transformer when encoding", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.TokenTable(), bf.Whitening(shrinkage=SHRINKAGE))]


@register_recipe("static-K", "the same in K dimensions", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.TokenTable(), bf.Whitening(k, shrinkage=SHRINKAGE))]


@register_recipe(
    "best", "tokens by themselves, beside the words in their sentence, flattened in part", brings_views=True
)
def _(view: View, k: int) -> list[Part]:
    return _tokens_beside_words(None, None)


@register_recipe("best-K", "the same in K dimensions", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    words = max(1, k // WORDS_SHARE)
    return _tokens_beside_words(k - words, words)


@register_recipe("soft-zca", "whitening with a tenth of the mean eigenvalue added, rotated back")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.Whitening(shrinkage=0.1, method="zca"))]


@register_recipe("mean-direction", "the mean direction taken out of unit vectors")
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(view, bf.RemoveMeanDirection())]


@register_recipe(
    "sif", "token vectors weighted by smooth inverse frequency, first direction removed", brings_views=True
)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.Sif(), bf.RemoveTopComponents(1, center=False))]


@register_recipe("usif", "the same with unsupervised weights, five directions removed in part", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.Usif(), bf.RemoveTopComponents(5, center=False, partly=True))]


@register_recipe("zipfian", "token vectors whitened with word frequencies as the measure", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.ZipfianWhitening(), bf.Identity())]


@register_recipe("prompt", "what the model answers when it is asked what a text means", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.Prompt(), bf.Identity())]


@register_recipe("prompt-half", "the same, principal axes scaled half-way: for decoders", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    return [bf.Part(bf.Prompt(), bf.Whitening(alpha=0.5))]


@register_recipe("best-prompt", "tokens by themselves, beside the same: for decoders", brings_views=True)
def _(view: View, k: int) -> list[Part]:
    table = bf.Part(bf.TokenTable(), bf.Whitening(alpha=0.75, shrinkage=SHRINKAGE))
    return [table, bf.Part(bf.Prompt(), bf.Whitening(alpha=0.5))]


def _tokens_beside_words(tokens: int | None, words: int | None) -> list[Part]:
    """The parts of ``best``, which count as much as they have dimensions. results/uses.md tells how they were chosen."""
    table = bf.Part(bf.TokenTable(), bf.Whitening(tokens, alpha=0.75, shrinkage=SHRINKAGE), weight=None)
    view = bf.Pooled("first-last-avg", words_only=True)
    return [table, bf.Part(view, bf.Whitening(words, alpha=0.5), weight=None)]


def recipes() -> dict[str, str]:
    """Return every recipe with its line of help; ``K`` in a name stands for a number.

    Example:
        >>> import bertflow
        >>> bertflow.recipes()["whitening"]
        'unit covariance (BERT-whitening)'
    """
    return {recipe.pattern: recipe.help for recipe in TABLE.values()}


def check_recipe(name: str) -> str:
    """Return a recipe's name, without aliases; refuse one that does not exist, with the nearest that does."""
    _parse(name)
    base, at, pooling = name.partition("@")
    return ALIASES.get(base, base) + at + pooling


def make_parts(
    recipe: str,
    pooling: str | None = None,
    *,
    random_state: int | None = 0,
    device: str | None = None,
    verbose: bool = False,
) -> list[Part]:
    """Return the parts of a recipe, not fitted yet.

    Args:
        recipe: A name from the table, also with a pooling: ``"whitening@cls"``.
        pooling: The same, said apart.
        random_state: Seeds what is random.
        device: For what trains.
        verbose: Show progress of what trains.

    Example:
        >>> make_parts("whitening-128@cls")
        [Part(view=Pooled(pooling='cls'), calibrator=Whitening(n_components=128), weight=1.0, scale=1.0)]
    """
    found, number, named = _parse(recipe)
    if named and pooling and named != pooling:
        raise InputError(f"The recipe {recipe!r} names a pooling, and pooling={pooling!r} is another one: say one.")
    if found.brings_views and (named or pooling):
        raise InputError(f"The recipe {found.pattern!r} brings its own pooling; leave out {named or pooling!r}.")
    parts = found.make(bf.Pooled(named or pooling), number)
    settings = {"random_state": random_state, "device": device, "verbose": verbose}
    for estimator in (known for part in parts for known in (part.view, part.calibrator)):
        known = estimator.get_params(deep=False)
        estimator.set_params(**{name: value for name, value in settings.items() if name in known})
    return parts


def calibrator_of(recipe: str, **settings: Any) -> Calibrator:
    """Return the calibrator of a recipe of one view, for vectors that are there already; settings of ``make_parts``."""
    found, _, pooling = _parse(recipe)
    if found.brings_views or pooling:
        raise InputError(f"The recipe {recipe!r} needs text; for vectors name one of a single view: 'whitening'.")
    return make_parts(recipe, **settings)[0].calibrator


def choose_parts(
    encoder: Any,
    *,
    pooling: str | None = None,
    preset: str | None = None,
    recipe: str | None = None,
    parts: Sequence[Part] | None = None,
    calibrator: Calibrator | None = None,
    **settings: Any,
) -> tuple[str | None, list[Part]]:
    """Return a recipe's name, if it is one, and its parts, from what ``BertFlow.fit`` was given.

    Args:
        encoder: What the user named or handed in; not loaded yet.
        pooling: For recipes of one view.
        preset: Deprecated.
        recipe: A name.
        parts: The user's own.
        calibrator: The user's own, for the encoder's vectors.
        settings: ``random_state``, ``device``, ``verbose`` of ``make_parts``.
    """
    said = {"preset": preset, "recipe": recipe, "parts": parts, "calibrator": calibrator}.items()
    given = [name for name, value in said if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} were given, and each says what to fit: leave one of them.")
    if parts is not None:
        return None, list(parts)
    if calibrator is not None:
        return None, [bf.Part(bf.Pooled(pooling), calibrator)]
    if preset is not None:
        recipe = _recipe_of(preset)
    recipe = check_recipe(recipe or _default(encoder, pooling))
    return recipe, make_parts(recipe, pooling, **settings)


def _default(encoder: Any, pooling: str | None) -> str:
    from bertflow.encoders.choosing import is_tuned
    from bertflow.encoders.token_table import has_fast_tokenizer

    if is_tuned(encoder):
        warnings.warn(TUNED, stacklevel=4)
        return DEFAULT_OF_ONE_VIEW
    named = isinstance(encoder, str | Path) and not Path(encoder).is_file()
    return DEFAULT if pooling is None and (named or has_fast_tokenizer(encoder)) else DEFAULT_OF_ONE_VIEW


def _recipe_of(preset: str) -> str:
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise InputError(f"Unknown preset {preset!r}{hint}; known are: {', '.join(PRESETS)}. Better, name a recipe.")
    warnings.warn(f"preset={preset!r} is deprecated; write recipe={PRESETS[preset]!r}.", FutureWarning, stacklevel=4)
    return PRESETS[preset]


def is_random(recipe: str) -> bool:
    """Whether a recipe depends on its seed."""
    return any("random_state" in known.get_params() for p in make_parts(recipe) for known in (p.view, p.calibrator))


def readings(names: Sequence[str], encoder: Any) -> list[Any]:
    """Return what one pass through an encoder has to give for these recipes, or nothing where it needs no pass."""
    found = (part.view.reading_on(encoder) for name in names for part in make_parts(name))
    return list(dict.fromkeys(reading for reading in found if reading is not None))


def _parse(name: object) -> tuple[Recipe, int, str | None]:
    """Return a recipe, its number and its pooling."""
    if not isinstance(name, str):
        raise InputError(f"A recipe is a name such as 'best'; got {name!r}.")
    base, at, pooling = name.partition("@")
    base = ALIASES.get(base, base)
    if at:
        from bertflow.encoders.pooling import check_pooling

        check_pooling(pooling)
    for recipe in TABLE.values():
        if (number := recipe.match(base)) is not None:
            return recipe, number, pooling or None
    hint = did_you_mean(base, [*TABLE, *ALIASES])
    raise InputError(f"Unknown recipe {name!r}{hint}; known are: {', '.join(TABLE)} (K is a number).")


class _Table(ModuleType):
    """So that ``bertflow.recipes()`` works, and ``bertflow.recipes.check_recipe`` too."""

    def __call__(self) -> dict[str, str]:
        return recipes()


sys.modules[__name__].__class__ = _Table
