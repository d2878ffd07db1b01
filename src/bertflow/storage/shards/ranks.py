"""Which part of the work is this process's: from arguments, or from what torchrun, slurm and Kubernetes set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from bertflow.errors import InputError


@dataclass(frozen=True)
class Rank:
    """One of ``world_size`` processes that share the work: shard i belongs to number i % world_size.

    Args:
        number: 0 to world_size − 1.
        world_size: How many processes there are.
    """

    number: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        """Refuse a rank outside its world."""
        if not 0 <= self.number < self.world_size:
            raise InputError(
                f"Rank {self.number} of {self.world_size} processes does not exist; they count from 0 to world size − 1."
            )

    def owns(self, shard: int) -> bool:
        """Whether a shard is this process's."""
        return shard % self.world_size == self.number

    def __str__(self) -> str:
        return f"rank {self.number} of {self.world_size}"

    @classmethod
    def choose(cls, number: int | None = None, world_size: int | None = None) -> Rank:
        """Return the rank given, or that of the environment; both numbers or none must be given."""
        if (number is None) != (world_size is None):
            raise InputError(
                "Give rank and world size together, or neither: then RANK, WORLD_SIZE or slurm's are read."
            )
        return cls.of(os.environ) if number is None or world_size is None else cls(number, world_size)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Rank:
        """Read RANK and WORLD_SIZE (torchrun), JOB_COMPLETION_INDEX and WORLD_SIZE (Kubernetes), or slurm's variables.

        In a slurm array of jobs with several tasks each, every task of every job is a rank.
        """
        number = {name: int(value) for name, value in environment.items() if name in _NAMES and value.isdigit()}
        rank = number.get("RANK", number.get("JOB_COMPLETION_INDEX"))
        if rank is not None and "WORLD_SIZE" in number:
            return cls(rank, number["WORLD_SIZE"])
        tasks = number.get("SLURM_NTASKS", 1) if "SLURM_PROCID" in number else 1
        jobs = number.get("SLURM_ARRAY_TASK_COUNT", 1)
        first = number.get("SLURM_ARRAY_TASK_MIN", 0)
        job = (number.get("SLURM_ARRAY_TASK_ID", first) - first) // number.get("SLURM_ARRAY_TASK_STEP", 1)
        return cls(job * tasks + number.get("SLURM_PROCID", 0) % tasks, jobs * tasks)


def local_device(device: str | None) -> str | None:
    """Return the device asked for; where a launcher started several processes on a machine, each one's own GPU."""
    local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", ""))
    if device is not None or not local.isdigit():
        return device
    import torch

    return f"cuda:{local}" if int(local) < torch.cuda.device_count() else None


_NAMES = {
    "RANK",
    "WORLD_SIZE",
    "JOB_COMPLETION_INDEX",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_STEP",
}
