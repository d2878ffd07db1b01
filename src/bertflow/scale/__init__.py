"""Text and vectors of any number: encoding, fitting and calibrating in flat memory, by one process or many."""

from bertflow.scale.embedding import transform_shards, write_shards
from bertflow.scale.fitting import fit_shards

__all__ = ["fit_shards", "transform_shards", "write_shards"]
