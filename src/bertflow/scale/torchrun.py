"""Fitting by several processes, on one machine or many: each computes its part, and sums are shared by torch.distributed.

    torchrun --nproc-per-node 2 -m bertflow.scale.torchrun vectors --output model

An affine calibrator (whitening) reads every row once, each process its own, and is exact. A flow is trained on the batches
that one process would take, each batch split over the processes: the result is that of one, whatever their number.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor
from torch import distributed as processes

from bertflow.arrays import Matrix, as_matrix, choose_device
from bertflow.calibrators import Calibrator, FlowCalibrator
from bertflow.errors import BertflowError, InputError
from bertflow.flows.reducer import ALONE, Reducer
from bertflow.model import BertFlow
from bertflow.moments import Moments
from bertflow.recipes import calibrator_of
from bertflow.scale.embedding import refuse_calibrated
from bertflow.scale.fitting import SAMPLE_ROWS, columns_of, parts_for, scale_parts
from bertflow.storage.shards import Rank, Shards, is_shards, local_device

logger = logging.getLogger("bertflow.scale.torchrun")  # not __name__, which is __main__ under torchrun

_BLOCK_ROWS = 8192


class ProcessGroup:
    """The processes of an initialised ``torch.distributed``, as a ``Reducer``.

    Args:
        device: Where the group sums: for nccl a GPU, for gloo the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank, self.world_size, self.device = processes.get_rank(), processes.get_world_size(), device

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors."""
        total = tensor.detach().to(self.device).contiguous()
        processes.all_reduce(total)
        return total.to(tensor.device)


def sum_moments(moments: Moments, dim: int, reducer: Reducer) -> Moments:
    """Return the moments of all processes' rows, as if one had seen them all.

    Args:
        moments: Of this process's rows, of which there may be none.
        dim: Dimensions d of the rows.
        reducer: The processes.
    """

    def total(values: Any) -> Any:
        return reducer.sum(torch.tensor(values, dtype=torch.float64)).numpy()

    count = int(total(float(moments.count)))
    if not count:
        return Moments()
    mine = moments if moments.count else Moments(0, np.zeros(dim), np.zeros((dim, dim)))
    mean = total(mine.mean * (mine.count / count))
    mean = mean + total((mine.mean - mean) * (mine.count / count))  # what rounding lost of a mean of 1e8
    gap = mine.mean - mean
    return Moments(count, mean, total(mine.scatter + np.outer(gap, gap) * mine.count))


def fit(
    vectors: Shards | Matrix,
    calibrator: Calibrator,
    reducer: Reducer,
    *,
    rows: int | None = SAMPLE_ROWS,
    random_state: int = 0,
) -> Calibrator:
    """Fit a calibrator together with the other processes; each calls this with the same arguments and gets the same one.

    Args:
        vectors: Raw vectors, which all processes see: a folder of shards or an array (n, d), memory-mapped at best.
        calibrator: Unfitted.
        reducer: The processes.
        rows: Rows that a flow is fitted on, drawn evenly from all and held by every process; None for all of them.
            Affine calibrators see all rows.
        random_state: Seeds the sample.
    """
    _agree(vectors, reducer)
    if isinstance(vectors, Shards):
        refuse_calibrated(vectors)
    if isinstance(calibrator, FlowCalibrator):
        return _fit_flow(calibrator, _sample(vectors, rows or len(vectors), random_state), reducer)
    moments = Moments()
    for block in _own_blocks(vectors, reducer):
        moments.add(block)
    fitted: Any = calibrator
    return fitted.fit_moments(sum_moments(moments, _dim(vectors), reducer))


def fit_recipe(
    shards: Shards,
    recipe: str,
    reducer: Reducer,
    *,
    rows: int | None = SAMPLE_ROWS,
    random_state: int = 0,
    **settings: Any,
) -> BertFlow:
    """Fit a recipe on raw shards together with the other processes; each gets the same model, its encoder not loaded.

    Args:
        shards: Raw vectors of the recipe's views, which all processes see.
        recipe: Its name.
        reducer: The processes.
        rows: As in ``fit``.
        random_state: Seeds the sample and the flow.
        settings: ``device``, ``verbose`` of ``bertflow.recipes.make_parts``.
    """
    name, parts = parts_for(shards, recipe, random_state=random_state, **settings)
    training: dict[str, Any] = {"vectors": len(shards), "texts_sha256": shards.manifest.source["sha256"]}
    for part, columns in zip(parts, columns_of(shards, parts), strict=True):
        fit(columns, part.calibrator, reducer, rows=rows, random_state=random_state)
        history = getattr(part.calibrator, "history_", None)
        fitted = min(rows or len(shards), len(shards)) if history else len(shards)
        training |= {"fitted_vectors": fitted, **(history.summary() if history else {})}
    scale_parts(parts, shards)
    return BertFlow(parts[0].view.encoder, training=training, parts=parts, recipe=name)


def _fit_flow(calibrator: FlowCalibrator, x: Matrix, reducer: Reducer) -> FlowCalibrator:
    """Train in float64, whatever is kept then.

    Processes that share a batch add in another order than one does. In float32 that sometimes decides whether a ReLU on its
    edge lets a row pass, and from there two fits part.
    """
    if x.dtype == np.float64 or choose_device(calibrator.device).type == "mps":  # which has no float64
        return calibrator.fit(x, reducer=reducer)
    calibrator.fit(x.astype(np.float64), reducer=reducer)
    calibrator.flow_.float()
    return calibrator


def _agree(vectors: Shards | Matrix, reducer: Reducer) -> None:
    """Refuse data that differs between machines; unnoticed, the processes would wait for each other without end."""
    shape = torch.tensor([len(vectors), _dim(vectors)], dtype=torch.float64)
    if not torch.equal(reducer.sum(shape.clone()), shape * reducer.world_size):
        raise InputError(
            f"The processes do not see the same vectors: process {reducer.rank} has {len(vectors)} rows of {_dim(vectors)}."
        )


def _own_blocks(vectors: Shards | Matrix, reducer: Reducer) -> Iterator[Matrix]:
    """Yield this process's rows: one contiguous stretch, so that each reads its own shards."""
    first, last = (len(vectors) * number // reducer.world_size for number in (reducer.rank, reducer.rank + 1))
    if isinstance(vectors, Shards):
        yield from vectors.blocks(_BLOCK_ROWS, start=first, stop=last)
        return
    for start in range(first, last, _BLOCK_ROWS):
        yield vectors[start : min(start + _BLOCK_ROWS, last)]


def _sample(vectors: Shards | Matrix, rows: int, seed: int) -> Matrix:
    if isinstance(vectors, Shards):
        return vectors.sample(rows, seed)
    if rows >= len(vectors):
        return as_matrix(vectors, "vectors")
    chosen = np.sort(np.random.default_rng(seed).choice(len(vectors), rows, replace=False))
    return as_matrix(vectors[chosen], "vectors")


def _dim(vectors: Shards | Matrix) -> int:
    return vectors.dim if isinstance(vectors, Shards) else int(vectors.shape[1])


@contextmanager
def joined(device: str | None = None) -> Iterator[tuple[Reducer, str | None]]:
    """Join the processes that torchrun started; yield them and this one's device. Without torchrun it is a group of one.

    Args:
        device: Default: this process's own GPU where there are GPUs, else the CPU.
    """
    mine = local_device(device)
    if Rank.choose().world_size == 1:
        yield ALONE, mine
        return
    on_gpu = torch.cuda.is_available() and not (mine or "").startswith("cpu")
    place = torch.device((mine or "cuda") if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(place)
    processes.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield ProcessGroup(place), mine
    finally:
        processes.destroy_process_group()


def main(
    vectors: Annotated[Path, typer.Argument(help="Raw vectors: a folder of shards, or a .npy file (n, d).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model, or for the calibrator alone.")],
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", "--calibrator", "-c", help="`flow`, `whitening-half`, `best`…")
    ] = "flow",
    rows: Annotated[int, typer.Option(min=0, help="Rows that a flow is fitted on; 0 for all.")] = SAMPLE_ROWS,
    seed: Annotated[int, typer.Option(help="Makes the result repeatable.")] = 0,
    device: Annotated[str | None, typer.Option(help="`cuda` or `cpu`; the best there is by default.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no remarks.")] = False,
) -> None:
    """Fit a calibrator by all processes that torchrun started; the first one saves it."""
    data = Shards(vectors) if is_shards(vectors) else _mapped(vectors)
    with joined(device) as (group, own_device):
        first = group.rank == 0
        logging.basicConfig(level=logging.INFO if first and not quiet else logging.ERROR, format="%(message)s")
        settings: dict[str, Any] = {"rows": rows or None, "random_state": seed}
        look: dict[str, Any] = {"device": own_device, "verbose": first and not quiet and sys.stderr.isatty()}
        fitted: BertFlow | Calibrator
        if isinstance(data, Shards):
            fitted = fit_recipe(data, recipe, group, **settings, **look)
        else:
            fitted = fit(data, calibrator_of(recipe, random_state=seed, **look), group, **settings)
        if first:
            fitted.save_pretrained(output)
            logger.info(
                "%d processes fitted %s on %d vectors; saved to %s.", group.world_size, recipe, len(data), output
            )


def _mapped(path: Path) -> Matrix:
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is neither a folder of shards nor a .npy file: {error}.") from None
    if array.ndim != 2:
        raise InputError(f"{path} has shape {array.shape}; vectors have two axes (n, d).")
    return array


if __name__ == "__main__":
    try:
        typer.run(main)
    except BertflowError as error:
        raise SystemExit(f"bertflow: {error}") from None
