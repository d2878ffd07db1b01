"""Views that ask the model: what it makes of a text that stands in a prompt. Only hidden states are read.

The strongest vectors published of frozen language models come from prompts: PromptBERT (Jiang et al., 2022) reads the state at
the mask of a template, PromptEOL (Jiang et al., 2024) the last token of one that ends in "in one word:", Echo (Springer et al.,
2024) shows a decoder the text twice. Token prepending (Fu et al., 2025) is not here, since it changes what layers are given.
A prompt is text and nothing else: chat templates are applied only where somebody writes them into it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertflow.encoders.base import Deferred, Reading, Template, TextEncoder, View
from bertflow.encoders.prompt_modules import PromptedTokens, lone_template, prompting_encoder
from bertflow.encoders.token_table import surrounding_ids
from bertflow.errors import InputError

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger(__name__)

SMALL = 50_000_000  # parameters; with mini's 9 million every prompt lost
TEXT, MASK = "{text}", "{mask}"
MASKED, DECODER = "masked", "decoder"  # what Encoder.architecture says
PROMPTS = {
    MASKED: 'This sentence: "{text}" means {mask}.',
    DECODER: 'This sentence: "{text}" means in one word: "',
}
AGAINST = {
    MASKED: 'The irrelevant information of this sentence: "{text}" means {mask}.',
    DECODER: 'The irrelevant information of this sentence: "{text}" means in one word: "',
}
TWICE = "Rewrite the sentence: {text}, rewritten sentence: {text}"


class Prompted(View):
    """What all views have in common that put a text into a template."""

    layer: int | None

    def fit(self, encoder: TextEncoder, texts: Iterable[str], *, show_progress_bar: bool = False) -> Self:
        """Bind the view to an encoder; a small one is told of."""
        super().fit(encoder, texts, show_progress_bar=show_progress_bar)
        size = sum(parameter.numel() for parameter in self.encoder.model.parameters())
        if size < SMALL:
            logger.warning(
                "%s has %d million parameters: prompts lose there, they want 100 million or more (results/decoders.md).",
                encoder.name,
                size // 1_000_000,
            )
        return self

    def _bind(self, encoder: TextEncoder, show_progress_bar: bool) -> None:
        if not hasattr(encoder, "encode_views"):
            raise InputError(
                f"{type(self).__name__} needs a transformer, given by its name or folder; the encoder {encoder.name!r} brings "
                "its own pooling."
            )
        self.dim = encoder.dim
        self._reading()  # refuses what does not fit together

    def restore(self, folder: Path, described: dict[str, Any], encoder: Any) -> None:
        """Bind to the encoder; one that is not loaded yet stays so."""
        if not isinstance(encoder, Deferred):
            return super().restore(folder, described, encoder)
        self.encoder, self.dim = encoder, int(described["dim"])
        return None

    @property
    def reading(self) -> Reading:
        """The templates, as token ids."""
        return self._reading()

    def _reading(self) -> Reading:
        raise NotImplementedError

    def as_encoder(self) -> Any:
        """Return a copy of the encoder whose tokenizer puts every text into the prompt."""
        return prompting_encoder(self.encoder, lone_template(self._reading(), type(self).__name__))

    def as_module(self, pad_token_id: int) -> PromptedTokens:
        """Return what reads the tokens of ``as_encoder``."""
        reading = self._reading()
        template = lone_template(reading, type(self).__name__)
        return PromptedTokens(reading.pooling, self._layers(), template.pieces, template.place)

    def _of_one_token(
        self, prompts: Sequence[tuple[str, float]], architecture: str, subtract_bias: bool | None = None
    ) -> Reading:
        """Return the reading of the token that answers, of prompts with their weights."""
        biased = architecture == MASKED if subtract_bias is None else subtract_bias
        templates = [make_template(self.encoder, prompt) for prompt, _ in prompts]
        weighted = zip(templates, prompts, strict=True)
        found = (template._replace(weight=weight, subtract_bias=biased) for template, (_, weight) in weighted)
        return Reading("last-token", layers=self._layers(), templates=tuple(found))

    def _layers(self) -> tuple[int, ...]:
        layer = -1 if self.layer is None else self.layer
        count = int(self.encoder.model.config.num_hidden_layers)
        if isinstance(layer, bool) or not isinstance(layer, int) or not -count - 1 <= layer <= count:
            raise InputError(
                f"The layer {self.layer!r} does not exist: {self.encoder.name!r} has {count} of them, from 1 (or -{count}) to "
                f"{count} (or -1); 0 is what goes into the first."
            )
        return (layer,)


class Prompt(Prompted):
    """The state of one token of a prompt: the mask in a masked model, the last token in a decoder.

    Args:
        template: The prompt, with ``{text}`` where the text goes, and for masked models ``{mask}``; of several, the vectors are
            averaged. Default: ``This sentence: "{text}" means {mask}.`` or ``This sentence: "{text}" means in one word: "``.
            It is never cut when a text is too long: the text is.
        layer: The hidden state that is read (-1: the last, -2: the one before it).
        subtract_bias: Subtract what the template gives with the text blanked, at the same positions; default: in masked models.

    Example:
        >>> Prompt().fit(Encoder("mini"), ()).encode(["One sentence."]).shape
        (1, 256)
    """

    def __init__(
        self,
        template: str | Sequence[str] | None = None,
        *,
        layer: int | None = None,
        subtract_bias: bool | None = None,
    ) -> None:
        self.template = template
        self.layer = layer
        self.subtract_bias = subtract_bias

    def _reading(self) -> Reading:
        architecture = architecture_of(self.encoder)
        given = [PROMPTS[architecture]] if self.template is None else self.template
        prompts = [given] if isinstance(given, str) else list(given)
        if not prompts:
            raise InputError("There are no prompts: the list is empty. Leave it out for the default one.")
        return self._of_one_token([(prompt, 1 / len(prompts)) for prompt in prompts], architecture, self.subtract_bias)


class Contrast(Prompted):
    """The difference of two prompts: what a text means, less what in it does not matter.

    Args:
        template: The prompt, as in ``Prompt``; one only.
        against: The prompt whose vectors are subtracted. Default: one that asks for the irrelevant information.
        strength: How much is subtracted.
        layer: The hidden state that is read.
    """

    def __init__(
        self,
        template: str | None = None,
        against: str | None = None,
        *,
        strength: float = 0.5,
        layer: int | None = None,
    ) -> None:
        self.template = template
        self.against = against
        self.strength = strength
        self.layer = layer

    def _reading(self) -> Reading:
        architecture = architecture_of(self.encoder)
        pair = self.template or PROMPTS[architecture], self.against or AGAINST[architecture]
        return self._of_one_token([(pair[0], 1.0), (pair[1], -self.strength)], architecture)


class Echo(Prompted):
    """The text twice, the mean over its second copy: there a decoder has read all of it before.

    A text that is too long to be read twice is refused, since of a cut one the second copy would know only as much.

    Args:
        template: With ``{text}`` twice. Default: ``Rewrite the sentence: {text}, rewritten sentence: {text}``.
        layer: The hidden state that is read.
    """

    def __init__(self, template: str | None = None, *, layer: int | None = None) -> None:
        self.template = template
        self.layer = layer

    def _reading(self) -> Reading:
        architecture_of(self.encoder)
        template = make_template(self.encoder, self.template or TWICE, copies=2)._replace(place=None, cuts=False)
        return Reading("mean", layers=self._layers(), templates=(template,))


def ask(views: Iterable[View], template: str | Sequence[str] | None = None, layer: int | None = None) -> None:
    """Give views that are not fitted yet the user's own prompts and layer; refuse if none of them has a prompt."""
    prompted = [view for view in views if isinstance(view, Prompted)]
    if not prompted:
        raise InputError("This recipe has no prompt, so there is no prompt and no layer to set; 'prompt-half' has one.")
    for view in prompted:
        given = {"template": template, "layer": layer}
        view.set_params(**{name: value for name, value in given.items() if value is not None})


def architecture_of(encoder: Any) -> str:
    """Return whether an encoder is a masked model or a decoder; refuse what is neither."""
    if encoder.architecture not in PROMPTS:
        raise InputError(
            f"{encoder.name!r} is neither a masked language model with a mask token nor a decoder, so there is no token in a "
            "prompt that would tell what a text means. Use a pooling, such as recipe='whitening-half'."
        )
    return str(encoder.architecture)


def make_template(encoder: Any, prompt: str, copies: int = 1) -> Template:
    """Return a prompt as token ids; its place is the mask or, without one, the last token.

    Args:
        encoder: Whose tokenizer cuts it.
        prompt: With ``{text}`` and perhaps ``{mask}``.
        copies: How often it must have ``{text}``.
    """
    if not isinstance(prompt, str) or prompt.count(TEXT) != copies:
        often = "once" if copies == 1 else f"{copies} times"
        raise InputError(f"A prompt has {TEXT} {often}, where the text goes; got {prompt!r:.80}.")
    masked, tokenizer = encoder.architecture == MASKED, encoder.tokenizer
    if MASK in prompt and not masked:
        raise InputError(
            f"The prompt {prompt!r:.80} has {MASK}, and {encoder.name!r} is a decoder, which has no masks: let the prompt end "
            "where the model should answer."
        )
    parts = prompt.replace(MASK, str(tokenizer.mask_token)).split(TEXT)
    lead = " " if parts[-2].endswith(" ") and not _adds_space(tokenizer) else ""
    parts = [*(part.removesuffix(" ") for part in parts[:-1]), parts[-1]]
    before, after = surrounding_ids(tokenizer)
    pieces = [_ids(tokenizer, parts[0]), *(_continuing_ids(tokenizer, part) for part in parts[1:])]
    pieces[0], pieces[-1] = [*before, *pieces[0]], [*pieces[-1], *(after if masked else [])]
    template = Template(tuple(map(tuple, pieces)), lead=lead)
    if copies > 1 or not masked:
        return template._replace(place=(copies, len(pieces[-1]) - 1))
    return template._replace(place=_place_of_mask(template, tokenizer.mask_token_id, prompt))


def _place_of_mask(template: Template, mask: int, prompt: str) -> tuple[int, int]:
    places = [(i, j) for i, piece in enumerate(template.pieces) for j, token in enumerate(piece) if token == mask]
    if len(places) != 1:
        raise InputError(
            f"The prompt {prompt!r:.80} has {len(places)} masks; a masked language model answers at one: write {MASK} there, "
            f"as in {PROMPTS[MASKED]!r}."
        )
    return places[0]


def _adds_space(tokenizer: Any) -> bool:
    """Whether a tokenizer puts a space before a text by itself."""
    return any(token.startswith("\u2581") for token in tokenizer.convert_ids_to_tokens(_ids(tokenizer, "a")))


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def _continuing_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of text that follows on a word: some tokenizers put a space before whatever comes first."""
    word, both = _ids(tokenizer, "a"), _ids(tokenizer, f"a{text}")
    return both[len(word) :] if text and both[: len(word)] == word else _ids(tokenizer, text)
