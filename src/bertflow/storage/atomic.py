"""Writes that are there whole or not at all: a kill at any moment leaves what was before, or what comes after."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STALE_AFTER = 24 * 3600  # seconds until what a killed writer left beside its target is swept away


@contextmanager
def atomic_file(path: str | Path, *, follow_link: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends well, it becomes ``path``.

    The temporary name keeps the suffix, since writers such as numpy's add a missing one.

    Args:
        path: The file.
        follow_link: Where ``path`` is a link, write what it leads to, as users expect of their own. ``False`` replaces the
            link itself: for files in a folder that may come from a stranger, whose links lead anywhere.
    """
    target = Path(path).resolve() if follow_link else Path(path).parent.resolve() / Path(path).name
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.saving-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _to_disk(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; when the block ends well, it becomes ``path``, replacing what was there."""
    target = Path(path).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    recover(target)
    _sweep(target)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.saving-", dir=target.parent))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _to_disk(file)
        temporary.chmod(0o777 & ~_umask())
        _put(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def recover(path: str | Path) -> None:
    """Bring back the old folder if a writer without an atomic exchange was killed between its two renames."""
    target = Path(path).resolve()
    old = _aside(target)
    if old.is_dir() and not target.exists():
        old.rename(target)


def _put(new: Path, target: Path) -> None:
    """Make ``new`` stand at ``target``; afterwards ``new`` is gone or holds the old content."""
    if not target.exists():
        new.rename(target)
        return
    old = _aside(target)
    shutil.rmtree(old, ignore_errors=True)  # of a writer killed after its second rename
    if not _exchange(new, target):
        target.rename(old)
        new.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.bertflow-old")


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths in one system call, where the system has one (Linux, macOS)."""
    names = os.fsencode(a), os.fsencode(b)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return libc.renamex_np(*names, 2) == 0  # RENAME_SWAP
        here = -100  # AT_FDCWD
        return libc.renameat2(here, names[0], here, names[1], 2) == 0  # RENAME_EXCHANGE
    except (AttributeError, OSError, TypeError):
        return False


def _sweep(target: Path) -> None:
    for left in target.parent.glob(f".{glob.escape(target.name)}.saving-*"):
        with suppress(OSError):  # another writer may have taken it away
            if time.time() - left.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _to_disk(file: Path) -> None:
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
