"""Vectors on disk, of any number: numbered shards and a manifest, written by one process or many, resumed, read in flat memory.

A folder of shards holds ``manifest.json`` and one ``.npy`` file for every ``shard_rows`` texts. Each shard is written whole
or not at all and leaves a record with its checksum, so that a run killed at any moment goes on where it was.
"""

from bertflow.shards.filling import transform_shards, write_shards
from bertflow.shards.fitting import fit_shards
from bertflow.shards.manifest import Manifest, ShardsError, is_shards, read_manifest
from bertflow.shards.ranks import Rank, local_device
from bertflow.shards.reading import Shards
from bertflow.shards.writing import ShardWriter

__all__ = [
    "Manifest",
    "Rank",
    "ShardWriter",
    "Shards",
    "ShardsError",
    "fit_shards",
    "is_shards",
    "local_device",
    "read_manifest",
    "transform_shards",
    "write_shards",
]
