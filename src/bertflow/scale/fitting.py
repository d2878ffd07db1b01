"""Fitting a recipe on shards, in flat memory: exactly for the affine calibrators, on a sample or in full passes for flows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.encoders.base import Deferred, View
from bertflow.encoders.choosing import load_encoder
from bertflow.encoders.views import Pooled
from bertflow.errors import InputError
from bertflow.flows import train
from bertflow.flows.presets import preset
from bertflow.model import BertFlow
from bertflow.moments import Moments
from bertflow.parts import Part, set_scale
from bertflow.recipes import DEFAULT_OF_ONE_VIEW, make_parts
from bertflow.scale.embedding import refuse_calibrated
from bertflow.storage.shards.reading import BLOCK_ROWS, Shards

SAMPLE_ROWS = 200_000


def fit_shards(
    shards: Shards,
    recipe: str | Calibrator | None = None,
    *,
    rows: int | None = SAMPLE_ROWS,
    random_state: int = 0,
    device: str | None = None,
    show_progress_bar: bool = False,
) -> BertFlow:
    """Fit a recipe on raw shards; the encoder itself is not loaded.

    An affine calibrator sees every row, by exact moments. A flow of 0.1 M numbers is learnt from a sample drawn evenly from
    all rows; memory is that of the sample. With ``rows=None`` every row is seen once, in blocks of 200 000 drawn from all
    over the shards: the first block is fitted as ever, each further one goes on from there with a falling learning rate
    and is kept only where it does not lower the likelihood of its own held-out rows. Repeated texts count as often as
    they come.

    Args:
        shards: Raw vectors.
        recipe: Its views must be those of the shards; or a calibrator for shards of one view. Default: the recipe that the
            shards were written for, else ``"whitening-half"``.
        rows: Rows of a flow's sample; None for full passes.
        random_state: Seeds the sample and the flow.
        device: For a flow.
        show_progress_bar: Show progress.

    Example:
        >>> fit_shards(Shards("vectors"), "whitening").save_pretrained("model")  # doctest: +SKIP
    """
    name, parts = parts_for(shards, recipe, random_state=random_state, device=device, verbose=show_progress_bar)
    if rows is not None and rows < 2:
        raise InputError(f"At least 2 rows are needed to fit; {rows} were asked for.")
    training: dict[str, Any] = {"vectors": len(shards), "texts_sha256": shards.manifest.source["sha256"]}
    for part, columns in zip(parts, columns_of(shards, parts), strict=True):
        training |= _fit(part.calibrator, columns, rows, random_state, show_progress_bar)
    scale_parts(parts, shards)
    return BertFlow(parts[0].view.encoder, training=training, parts=parts, recipe=name)


def parts_for(shards: Shards, recipe: str | Calibrator | None, **settings: Any) -> tuple[str | None, list[Part]]:
    """Return a recipe's name and its parts with the views that shards hold, or refuse a recipe that has other views.

    Args:
        shards: Raw vectors.
        recipe: Its name, or a calibrator for one view.
        settings: ``random_state``, ``device``, ``verbose`` of ``make_parts``.
    """
    refuse_calibrated(shards)
    views = views_of(shards)
    name = None if isinstance(recipe, Calibrator) else recipe or shards.manifest.recipe or DEFAULT_OF_ONE_VIEW
    parts = make_parts(name, **settings) if name else [Part(Pooled(), recipe)]  # type: ignore[arg-type]
    wanted = [_asked(part.view) for part in parts]
    if len(views) != len(parts) or not all(_same(a, b) for a, b in zip(wanted, map(_found, views), strict=True)):
        raise InputError(
            f"{shards.folder} holds the views {', '.join(map(repr, views))}, and {name or 'a calibrator'} needs "
            f"{', '.join(repr(part.view) for part in parts)}: write the shards for that recipe, "
            f"bertflow embed --raw --recipe {name or '…'}."
        )
    for part, view in zip(parts, views, strict=True):
        part.view = view
    return name, parts


def views_of(shards: Shards) -> list[View]:
    """Return the views of raw shards, on an encoder that is loaded only if somebody needs it."""
    manifest = shards.manifest
    encoder = Deferred(manifest.encoder, partial(load_encoder, manifest.encoder))
    own = {"class": "Pooled", "params": {}, "dim": manifest.dim}
    return [View.load(shards.views / str(i), known, encoder) for i, known in enumerate(manifest.views or [own])]


def columns_of(shards: Shards, parts: list[Part]) -> list[Shards]:
    """Return the shards of each part's view alone."""
    ends = np.cumsum([part.view.dim for part in parts]).tolist()
    return [shards.columns(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def scale_parts(parts: list[Part], shards: Shards) -> None:
    """Scale several fitted parts to their weights, by the mean square length over all rows."""
    if len(parts) == 1:
        return
    for part, columns in zip(parts, columns_of(shards, parts), strict=True):
        total = sum(float(np.square(part.calibrator.transform(x), dtype=np.float64).sum()) for x in columns.blocks())
        set_scale(part, total / len(shards))


def _asked(view: View) -> tuple[str, dict[str, Any]]:
    params = {name: value for name, value in view.get_params().items() if name not in ("random_state", "features")}
    return type(view).__name__, params


def _found(view: View) -> tuple[str, dict[str, Any]]:
    """What a view of shards is; where it leaves that to its encoder, what the encoder does."""
    name, params = _asked(view)
    own = view.encoder.describe()
    return name, {key: own.get(key) if value is None else value for key, value in params.items()}


def _same(wanted: tuple[str, dict[str, Any]], there: tuple[str, dict[str, Any]]) -> bool:
    """Whether a view is the one asked for; what is not said (None) may be anything."""
    return wanted[0] == there[0] and all(value in (None, there[1].get(name)) for name, value in wanted[1].items())


def _fit(calibrator: Any, shards: Shards, rows: int | None, seed: int, show_progress_bar: bool) -> dict[str, Any]:
    """Fit one calibrator on its columns; return what is known about it."""
    if not isinstance(calibrator, FlowCalibrator):
        _fit_moments(calibrator, shards, show_progress_bar)
        return {"fitted_vectors": len(shards)}
    if rows is None and len(shards) > SAMPLE_ROWS:
        fitted = len(shards)
        _full_pass(calibrator, shards, seed)
    else:
        fitted = min(rows or len(shards), len(shards))
        calibrator.fit(shards.sample(fitted, seed))
    return {"fitted_vectors": fitted} | calibrator.history_.summary()


def _fit_moments(calibrator: Any, shards: Shards, show_progress_bar: bool) -> None:
    if not hasattr(calibrator, "fit_moments"):
        raise InputError(f"{type(calibrator).__name__} has no fit_moments, so it cannot be fitted on shards.")
    moments, steps = Moments(), math.ceil(len(shards) / BLOCK_ROWS)
    for block in tqdm(shards.blocks(), "reading shards", steps, disable=not show_progress_bar):
        moments.add(block)
    calibrator.fit_moments(moments)


def _full_pass(calibrator: FlowCalibrator, shards: Shards, seed: int) -> None:
    """Fit on the first block, then go on through the others at a rate that falls to nothing after the last."""
    blocks = math.ceil(len(shards) / SAMPLE_ROWS)
    changes = {name: getattr(calibrator, name) for name in ("epochs", "batch_size", "learning_rate")}
    config = replace(preset(calibrator.preset), **{name: value for name, value in changes.items() if value is not None})
    for number, block in enumerate(shards.shuffled(math.ceil(len(shards) / blocks), seed)):
        if number == 0:
            calibrator.fit(block)
            continue
        rate = config.learning_rate * 0.5 * (1 + math.cos(math.pi * number / blocks))
        more = train(
            calibrator.flow_,
            torch.from_numpy(block),
            replace(config, learning_rate=rate),
            seed=seed + number,
            initialize=False,
            callbacks=calibrator.callbacks or (),
            show_progress_bar=calibrator.verbose,
        )
        more.best_step += len(calibrator.history_.losses)
        more.losses = calibrator.history_.losses + more.losses
        calibrator.history_ = more
