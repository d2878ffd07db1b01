"""Fitting a calibrator on shards, in flat memory: exactly for the affine ones, on a sample or in full passes for the flow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from tqdm.auto import tqdm

from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.errors import InputError
from bertflow.flows import train
from bertflow.flows.presets import preset
from bertflow.moments import Moments
from bertflow.scale.embedding import refuse_calibrated
from bertflow.storage.shards.reading import BLOCK_ROWS, Shards

SAMPLE_ROWS = 200_000


def fit_shards(
    shards: Shards,
    calibrator: Calibrator | None = None,
    *,
    rows: int | None = SAMPLE_ROWS,
    random_state: int = 0,
    show_progress_bar: bool = False,
) -> tuple[Calibrator, dict[str, Any]]:
    """Fit a calibrator on raw shards; return it and what is known about the fit.

    An affine calibrator sees every row, by exact moments. A flow of 0.1 M numbers is learnt from a sample drawn evenly from
    all rows; memory is that of the sample. With ``rows=None`` every row is seen once, in blocks of 200 000 drawn from all
    over the shards: the first block is fitted as ever, each further one goes on from there with a falling learning rate
    and is kept only where it does not lower the likelihood of its own held-out rows. Repeated texts count as often as
    they come.

    Args:
        shards: Raw vectors.
        calibrator: Unfitted; default: a ``FlowCalibrator``.
        rows: Rows of a flow's sample; None for full passes.
        random_state: Seeds the sample and the flow.
        show_progress_bar: Show progress.

    Example:
        >>> calibrator, training = fit_shards(Shards("vectors"))  # doctest: +SKIP
        >>> BertFlow("bert-base-uncased", calibrator, training).save_pretrained("model")  # doctest: +SKIP
    """
    refuse_calibrated(shards)
    if rows is not None and rows < 2:
        raise InputError(f"At least 2 rows are needed to fit; {rows} were asked for.")
    chosen = calibrator or FlowCalibrator(random_state=random_state, verbose=show_progress_bar)
    known = {"vectors": len(shards), "texts_sha256": shards.manifest.source["sha256"]}
    if not isinstance(chosen, FlowCalibrator):
        return _fit_moments(chosen, shards, show_progress_bar), known | {"fitted_vectors": len(shards)}
    if rows is None and len(shards) > SAMPLE_ROWS:
        fitted = len(shards)
        _full_pass(chosen, shards, random_state)
    else:
        fitted = min(rows or len(shards), len(shards))
        chosen.fit(shards.sample(fitted, random_state))
    return chosen, known | {"fitted_vectors": fitted} | chosen.history_.summary()


def _fit_moments(calibrator: Any, shards: Shards, show_progress_bar: bool) -> Calibrator:
    if not hasattr(calibrator, "fit_moments"):
        raise InputError(f"{type(calibrator).__name__} has no fit_moments, so it cannot be fitted on shards.")
    moments, steps = Moments(), math.ceil(len(shards) / BLOCK_ROWS)
    for block in tqdm(shards.blocks(), "reading shards", steps, disable=not show_progress_bar):
        moments.add(block)
    return calibrator.fit_moments(moments)


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
