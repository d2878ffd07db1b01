"""One writer a rank in a folder: a lock file that says who holds it, and that a killed holder cannot keep for ever.

Shards are written whole and the same by whoever writes them, so that two writers would waste work, not spoil it; the lock
spares the work.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertflow.storage.shards.manifest import ShardsError
from bertflow.storage.shards.ranks import Rank

BEAT = 20.0  # seconds between two signs of life
SILENCE = 600.0  # seconds without one after which a holder, on whatever machine, counts as dead

_held: set[Path] = set()  # by this process: another one in a container may have had the same host name and number


@contextmanager
def locked(folder: Path, rank: Rank) -> Iterator[None]:
    """Hold the lock of a rank in a folder; raise when a living process holds it, or works in another number of ranks."""
    path = (folder / f"rank-{rank.number}.lock").resolve()
    _refuse_living(folder, rank, path)
    me = {"host": socket.gethostname(), "pid": os.getpid(), "world_size": rank.world_size}
    path.unlink(missing_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(me, file)
    except FileExistsError:
        raise ShardsError(f"{folder}: another process has just begun as {rank}; let it go on.") from None
    _held.add(path)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, stop), daemon=True)
    beat.start()
    try:
        yield
    finally:
        stop.set()
        beat.join()
        _held.discard(path)
        path.unlink(missing_ok=True)


def _beat(path: Path, stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        with suppress(OSError):
            os.utime(path)


def _refuse_living(folder: Path, rank: Rank, mine: Path) -> None:
    for path in sorted(folder.glob("rank-*.lock")):
        holder = _holder(path)
        same = path.resolve() == mine
        if not holder or (not same and holder.get("world_size") == rank.world_size) or not _lives(path, holder):
            continue
        raise ShardsError(
            f"{folder} is being written by process {holder.get('pid')} on {holder.get('host')} ({path.name}, "
            f"{holder.get('world_size')} in all): let it finish, or stop it and run this again. If it is gone, delete "
            f"{path}, or wait {SILENCE / 60:.0f} minutes."
        )


def _holder(path: Path) -> dict[str, Any]:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # gone, or its holder was killed while it wrote
    return holder if isinstance(holder, dict) else {}


def _lives(path: Path, holder: dict[str, Any]) -> bool:
    pid = holder.get("pid")
    if holder.get("host") == socket.gethostname() and isinstance(pid, int):
        if pid == os.getpid():
            return path.resolve() in _held
        if not _runs(pid):
            return False
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < SILENCE
    return False


def _runs(pid: int) -> bool:
    if os.name == "nt":
        return True  # there os.kill would end it: its signs of life have to do
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True
