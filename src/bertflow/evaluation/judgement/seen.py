"""What is looked at before judging: a corpus' vectors by every recipe, from one pass through the encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.arrays import Matrix
from bertflow.encoders.choosing import as_encoder, is_tuned
from bertflow.encoders.token_table import has_fast_tokenizer
from bertflow.evaluation.judgement.evidence import Evidence, look_at_spaces, share_of_copies, share_unknown
from bertflow.evaluation.judgement.labels import one_task
from bertflow.evaluation.judgement.result import RAW
from bertflow.evaluation.judgement.splices import Splices, make_splices, splice_score
from bertflow.evaluation.tasks import Encode, Task
from bertflow.parts import encode_parts, fit_parts
from bertflow.recipes import make_parts, readings
from bertflow.storage.remembering import Remembering

RECIPES = (RAW, "natsv-1", "whitening-half", "whitening", "static", "best")
PROMPTS = ("prompt", "prompt-half")  # what is tried on a decoder besides
TOKENIZED = 1000  # texts whose tokens are counted


class VectorsAsEncoder:
    """Vectors (n, d) as an encoder of their numbers."""

    name = "vectors"

    def __init__(self, rows: Matrix) -> None:
        self.rows, self.dim, self.texts = rows, rows.shape[1], [str(i) for i in range(len(rows))]
        self.fingerprint = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Return the rows (n, d) of these numbers."""
        return self.rows[[int(text) for text in sentences]]

    def describe(self) -> dict[str, Any]:
        """Return what it is, as JSON."""
        return {"name": self.name, "fingerprint": self.fingerprint}


@dataclass(frozen=True, eq=False)
class Seen:
    """A corpus' vectors by every recipe, each fitted on the corpus.

    Args:
        texts: The corpus.
        encoder: Loaded.
        tuned: The encoder's folder says that it was tuned for similarity.
        splices: Pseudo-pairs; recipes were not fitted on their sentences. None where there are none.
        encodes: By recipe what looks up the vectors of texts, of splices and of labelled texts.
        seed: Draws the sentences that are looked at.
    """

    texts: list[str]
    encoder: Any
    tuned: bool
    splices: Splices | None = None
    encodes: dict[str, Encode] = field(default_factory=dict)
    seed: int = 0

    def evidence(self) -> Evidence:
        """Measure what needs no labels."""
        rows = np.random.default_rng(self.seed).permutation(len(self.texts))
        some = [self.texts[i] for i in rows[:TOKENIZED]]
        vectors = {name: encode(self.texts) for name, encode in self.encodes.items()}
        tokenizer = getattr(self.encoder, "tokenizer", None)
        of_text = not isinstance(self.encoder, VectorsAsEncoder)
        return Evidence(
            sentences=len(self.texts),
            tuned=self.tuned,
            unknown=None if tokenizer is None else share_unknown(tokenizer, some),
            copies=share_of_copies(self.texts, vectors[RAW], self.seed) if of_text else 0.0,
            spaces=look_at_spaces(vectors, self._spliced(), RAW, self.seed),
        )

    def _spliced(self) -> dict[str, float]:
        pairs = self.splices
        if pairs is None:
            return {}
        return {
            name: splice_score(pairs, encode(pairs.sentences), encode(pairs.splices))
            for name, encode in self.encodes.items()
        }


def see(
    texts: list[str],
    encoder: Any,
    recipes: Sequence[str] = RECIPES,
    labels: Task | None = None,
    *,
    prompts: bool = False,
    fit: Sequence[str] | None = None,
    spliced: bool = True,
    pooling: str | None = None,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> Seen:
    """Encode a corpus once and fit every recipe on it.

    Args:
        texts: The corpus, each text once.
        encoder: As for ``judge``.
        recipes: Names, raw vectors among them; those of tokens are left out where an encoder has no tokens.
        labels: Their texts are encoded too; without, splices are made.
        prompts: Also those with a prompt, where the encoder is a decoder.
        fit: Only these of the recipes are fitted.
        spliced: Make splices where there are no labels.
        pooling: As for ``judge``.
        random_state: Seeds fits and draws.
        device: For an encoder given by name.
        show_progress_bar: Show progress.
    """
    loaded = as_encoder(encoder, pooling, **({} if device is None else {"device": device}))
    of_text = not isinstance(loaded, VectorsAsEncoder)
    asked = PROMPTS if prompts and getattr(loaded, "architecture", None) == "decoder" else ()
    names = _possible([*recipes, *asked], loaded)
    known = Remembering(loaded, readings(names, loaded), show_progress_bar=show_progress_bar) if of_text else loaded
    splices = make_splices(texts, random_state) if of_text and spliced and labels is None else None
    more = [*(splices.splices if splices else ()), *(one_task(labels).sentences if labels else ())]
    every = list(dict.fromkeys([*texts, *more]))
    drawn = set(splices.sentences) if splices else set()  # a recipe is judged on splices of what it has not seen
    unseen = [text for text in texts if text not in drawn]
    if hasattr(known, "encode_views"):
        known.encode_views(every, readings(names, known))
    row, encodes = {text: i for i, text in enumerate(every)}, {}
    for name in tqdm([name for name in names if fit is None or name in fit], "judging", disable=not show_progress_bar):
        parts = make_parts(name, random_state=random_state)
        fit_parts(parts, known, unseen)
        encodes[name] = _look_up(encode_parts(parts, every), row)
    tuned = is_tuned(encoder) or is_tuned(str(getattr(loaded, "name", "")))
    return Seen(texts, loaded, tuned, splices, encodes, random_state)


def _possible(names: Sequence[str], encoder: Any) -> tuple[str, ...]:
    """Leave out recipes of tokens where the encoder has none that can be had."""
    if has_fast_tokenizer(encoder):
        return tuple(names)
    return tuple(name for name in names if all(part.view.needs_encoder for part in make_parts(name)))


def _look_up(vectors: Matrix, row: dict[str, int]) -> Encode:
    return lambda texts: vectors[[row[text] for text in texts]]
