import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bertflow.storage import atomic, model_folder
from bertflow.storage.atomic import atomic_file, atomic_folder, recover


@pytest.fixture
def target(tmp_path):
    """A folder with one file in it, alone in its parent."""
    folder = tmp_path / "place" / "model"
    folder.mkdir(parents=True)
    (folder / "old.txt").write_text("old")
    return folder


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch):
    """Both ways to replace a folder: with the system call that swaps, and without it."""
    if request.param == "two renames":
        monkeypatch.setattr(atomic, "_exchange", lambda _a, _b: False)
    return request.param


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# --- folders


def test_folder_is_made_with_its_parents(tmp_path, way):
    with atomic_folder(tmp_path / "a" / "b") as temporary:
        assert not (tmp_path / "a" / "b").exists()
        (temporary / "x").write_text("new")
    assert names(tmp_path / "a") == ["b"]
    assert names(tmp_path / "a" / "b") == ["x"]


def test_folder_replaces_the_old_one_wholly(target, way):
    with atomic_folder(target) as temporary:
        (temporary / "part").mkdir()
        (temporary / "part" / "new.txt").write_text("new")
        assert names(target) == ["old.txt"]
    assert names(target) == ["part"]
    assert (target / "part" / "new.txt").read_text() == "new"
    assert names(target.parent) == ["model"]


def fill_and_fail(path: Path, error: BaseException) -> None:
    with atomic_folder(path) as temporary:
        (temporary / "half.txt").write_text("half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), OSError("disk full")], ids=repr)
def test_folder_stays_when_writing_fails(target, way, error):
    with pytest.raises(type(error)):
        fill_and_fail(target, error)
    assert names(target) == ["old.txt"]
    assert names(target.parent) == ["model"]


def test_nothing_is_left_of_a_first_write_that_fails(tmp_path):
    with pytest.raises(RuntimeError):
        fill_and_fail(tmp_path / "new", RuntimeError("no"))
    assert names(tmp_path) == []


def test_folder_behind_a_link_is_replaced_and_the_link_stays(target, way):
    link = target.parent.parent / "link"
    link.symlink_to(target, target_is_directory=True)
    with atomic_folder(link) as temporary:
        (temporary / "new.txt").write_text("new")
    assert link.is_symlink()
    assert names(target) == ["new.txt"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_others_may_read_what_the_umask_lets_them(tmp_path):
    before = os.umask(0o022)
    try:
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "x").write_text("x")
        with atomic_file(tmp_path / "file.txt") as path:
            path.write_text("x")
        assert os.umask(0o022) == 0o022  # looking at it did not change it
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "file.txt").stat().st_mode) == 0o644


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may have no such call")
def test_linux_swaps_in_one_call(target):
    other = target.parent / "other"
    other.mkdir()
    (other / "new.txt").write_text("new")
    if not atomic._exchange(other, target):
        pytest.skip("this file system has no exchange")
    assert names(target) == ["new.txt"]
    assert names(other) == ["old.txt"]
    assert atomic._exchange(target, target.parent / "nothing") is False


# --- without an exchange: killed between the two renames, or after them


def test_recover_brings_back_a_folder_that_was_set_aside(target):
    aside = target.rename(atomic._aside(target))
    recover(target)
    assert names(target) == ["old.txt"]
    assert not aside.exists()


def test_recover_leaves_a_folder_that_is_there(target, tmp_path):
    atomic._aside(target).mkdir()
    recover(target)
    assert names(target) == ["old.txt"]
    recover(tmp_path / "never" / "was")
    assert not (tmp_path / "never").exists()


def test_a_write_after_a_kill_between_the_renames_goes_on(target, way):
    target.rename(atomic._aside(target))
    with pytest.raises(RuntimeError):
        fill_and_fail(target, RuntimeError("no"))
    assert names(target) == ["old.txt"]
    target.rename(atomic._aside(target))
    with atomic_folder(target) as temporary:
        (temporary / "new.txt").write_text("new")
    assert names(target) == ["new.txt"]
    assert names(target.parent) == ["model"]


def test_a_kill_after_the_renames_leaves_nothing_for_long(target, way):
    """What was set aside is taken away by the next write, so that it never comes back as a ghost."""
    atomic._aside(target).mkdir()
    with atomic_folder(target) as temporary:
        (temporary / "new.txt").write_text("new")
    assert names(target.parent) == ["model"]


def test_second_rename_fails(target, monkeypatch):
    monkeypatch.setattr(atomic, "_exchange", lambda _a, _b: False)
    rename = Path.rename

    def fail_on_new(self, to):
        if ".saving-" in self.name:
            raise OSError("no")
        return rename(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail_on_new)
        with pytest.raises(OSError, match="no"), atomic_folder(target) as temporary:
            (temporary / "new.txt").write_text("new")
    recover(target)
    assert names(target) == ["old.txt"]


# --- what a killed writer left


@pytest.mark.parametrize("name", ["model", "model [v1] *"])
def test_old_leftovers_are_swept_and_fresh_ones_stay(tmp_path, name):
    """A fresh one may belong to a writer that is still at work."""
    stale, fresh = tmp_path / f".{name}.saving-a", tmp_path / f".{name}.saving-b"
    foreign = tmp_path / ".something.saving-c"
    for folder in (stale, fresh, foreign):
        folder.mkdir()
        (folder / "x").write_text("x")
    long_ago = time.time() - atomic.STALE_AFTER - 60
    for folder in (stale, foreign):
        os.utime(folder, (long_ago, long_ago))
    with atomic_folder(tmp_path / name) as temporary:
        (temporary / "x").write_text("x")
    assert not stale.exists()
    assert fresh.exists()
    assert foreign.exists()


def test_old_leftovers_of_files_are_swept_too(tmp_path):
    stale = tmp_path / ".x.npy.saving-abc.npy"
    stale.write_text("half")
    long_ago = time.time() - atomic.STALE_AFTER - 60
    os.utime(stale, (long_ago, long_ago))
    with atomic_file(tmp_path / "x.npy") as path:
        np.save(path, np.ones(3))
    assert names(tmp_path) == ["x.npy"]


# --- files


def test_file_is_replaced_when_the_block_ends_well(tmp_path):
    path = tmp_path / "deep" / "x.npy"
    for value in (1, 2):
        with atomic_file(path) as temporary:
            np.save(temporary, np.full(3, value))  # numpy adds a missing suffix: the temporary name has it
        assert np.load(path).tolist() == [value] * 3
    assert names(path.parent) == ["x.npy"]


def test_file_stays_when_writing_fails(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")

    def write_half():
        with atomic_file(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


# --- kill -9

# Imports once, then forks a writer for every line it gets: a kill hits only saving, and starting costs nothing.
WRITERS = """
import os, sys
import numpy as np
from bertflow.storage import atomic, model_folder

folder, way = sys.argv[1:]
if way == "two renames":
    atomic._exchange = lambda a, b: False

def save(n):
    def write_encoder(place):
        place.mkdir()
        (place / "a.txt").write_text(str(n))
        (place / "b.txt").write_text(str(n))
    arrays = {f"array{i}": np.full((50, 50), n, dtype=np.float64) for i in range(4)}
    part = {"view": {"class": "Pooled", "params": {}, "dim": 2}, "calibrator": {"class": "Any", "params": {}}}
    config = {"encoder": {"name": f"/encoder-{n}"}, "parts": [part], "number": n}
    model_folder.save(folder, config, arrays, write_encoder=write_encoder)

def forever(n):
    while True:
        n += 1
        save(n)

save(1)
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        forever(int(line))
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("dead", flush=True)
"""


def number_of_whole_model(folder: Path) -> int:
    """Load the model and check that all its parts are of one save; return which one."""
    config, arrays = model_folder.load(folder)
    number = config["number"]
    assert names(folder) == ["README.md", "config.json", "encoder", "model.safetensors"]
    assert len(arrays) == 4
    assert all((array == number).all() and array.shape == (50, 50) for array in arrays.values())
    assert [(folder / "encoder" / name).read_text() for name in ("a.txt", "b.txt")] == [str(number)] * 2
    assert f"`encoder-{number}`" in (folder / "README.md").read_text()
    return number


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("how", ["exchange", "two renames"])
def test_a_killed_save_leaves_the_old_model_or_the_new_one(tmp_path, how):
    folder, rng = tmp_path / "model", np.random.default_rng(0)
    command = [sys.executable, "-c", WRITERS, str(folder), how]
    source = str(Path(model_folder.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout.readline() == "ready\n"
        number = number_of_whole_model(folder)
        for _ in range(15):
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            pid = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.1))
            os.kill(pid, signal.SIGKILL)
            assert process.stdout.readline() == "dead\n"
            after = number_of_whole_model(folder)
            assert after >= number
            number = after
        process.stdin.close()
    assert number > 1  # some saves were whole: the kills hit saving, not starting
