"""What a measure returns: numbers under names, which can be written as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figures:
    """Base of the results of measures, which are frozen dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)
