"""What one client may ask of the service, and who may ask: limits and keys."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from bertflow.errors import InputError

KEYS_VARIABLE = "BERTFLOW_API_KEYS"
SHORTEST_KEY = 8


@dataclass(frozen=True)
class Limits:
    """Bounds on requests; what lies beyond is refused with 413, or with 429 where the queue is full.

    Args:
        texts: In one request.
        characters: In one text.
        body: Bytes of a request.
        queue: Texts of all requests that may wait for a model.
        batch_tokens: Tokens computed together, estimated where the model cannot count them.
    """

    texts: int = 2048
    characters: int = 100_000
    body: int = 16 << 20
    queue: int = 16_384
    batch_tokens: int = 8192

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"The limit {name!r} is {value!r}; it must be a whole number, 1 or more.")
        if self.queue < self.texts:
            raise InputError(
                f"The queue holds {self.queue} texts, but one request may bring {self.texts}: raise the queue's limit "
                "or lower that of texts."
            )


class Keys:
    """The keys that clients may show; none means that everybody may ask."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        for number, key in enumerate(keys, 1):
            if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
                raise InputError(
                    f"Key {number} of {len(keys)} cannot be used: a key has {SHORTEST_KEY} or more letters, digits and "
                    "signs of ASCII, without blanks. Make one with  openssl rand -hex 24"
                )
        self._keys = [key.encode() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def hold(self, authorization: bytes) -> bool:
        """Whether a header ``Bearer KEY`` shows one of the keys, compared in constant time with all of them."""
        scheme, _, shown = authorization.partition(b" ")
        matches = [hmac.compare_digest(shown.strip(), key) for key in self._keys]
        return any(matches) and scheme.lower() == b"bearer"


def read_keys(file: str | Path | None) -> Keys:
    """Read keys from a file, one a line with ``#`` for remarks, and from BERTFLOW_API_KEYS, separated by commas."""
    found = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",")]
    if file is not None:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The keys cannot be read from {file}: {error}.") from None
        rows = [line.strip() for line in lines if not line.lstrip().startswith("#")]
        if not any(rows):
            raise InputError(f"{file} holds no key, so the service would be open to everybody: write one key a line.")
        found += rows
    return Keys([key for key in found if key])
