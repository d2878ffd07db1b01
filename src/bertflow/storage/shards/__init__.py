"""Vectors on disk, of any number: numbered shards and a manifest, written by one process or many, resumed, read in flat memory.

A folder of shards holds ``manifest.json`` and one ``.npy`` file for every ``shard_rows`` texts. Each shard is written whole
or not at all and leaves a record with its checksum, so that a run killed at any moment goes on where it was.
"""

from bertflow.storage.shards.manifest import Manifest, ShardsError, is_shards, read_manifest
from bertflow.storage.shards.ranks import Rank, local_device
from bertflow.storage.shards.reading import Shards
from bertflow.storage.shards.writing import ShardWriter

__all__ = [
    "Manifest",
    "Rank",
    "ShardWriter",
    "Shards",
    "ShardsError",
    "is_shards",
    "local_device",
    "read_manifest",
]
