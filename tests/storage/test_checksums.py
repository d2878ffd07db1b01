import hashlib
import os

import pytest

from bertflow.errors import InputError, ModelFolderError
from bertflow.storage import checksums
from bertflow.storage.checksums import checksum, verify


def test_the_checksum_is_sha_256(tmp_path):
    content = os.urandom(3_000_001)
    (tmp_path / "a").write_bytes(content)
    assert checksum(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_a_sound_file_is_read_once_and_a_changed_one_again(tmp_path, monkeypatch):
    path, reads = tmp_path / "a", []
    monkeypatch.setattr(checksums, "checksum", lambda path: reads.append(path) or checksum(path))
    path.write_bytes(b"sound")
    known = checksum(path)
    for _ in range(3):
        verify(path, known, "copy it again")
    assert len(reads) == 1
    path.write_bytes(b"other")
    with pytest.raises(ModelFolderError, match=r"damaged or belongs to something else.*copy it again"):
        verify(path, known, "copy it again")


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="is missing: embed it again"):
        verify(tmp_path / "a", "0", "embed it again", InputError)
    with pytest.raises(ModelFolderError, match="cannot be read"):
        verify(tmp_path, "0", "embed it again")
    (tmp_path / "a").write_bytes(b"")
    for known in (None, [], 3):
        with pytest.raises(ModelFolderError, match="damaged"):
            verify(tmp_path / "a", known, "embed it again")
