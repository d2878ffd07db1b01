"""Doors to the tools around: each module here opens one, and needs the extra of its name."""
