"""The only room that knows the disk and the hub: model folders, atomic writing, cards, the vector cache, shards, text files."""
