"""Where damaged files are read: a forked process that reports what came of it, and can be killed when it hangs."""

import hashlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .formats import Format
from .mutations import OUTSIDE, damage

PATIENCE = 20.0  # seconds; more is a hang
ROOM = 3 << 30  # bytes that a case may take on top of what is there
# What no reader has any business doing: events of Python's own auditing. They are stopped, not only noted.
CODE = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "builtins.input", "pickle.find_class")
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
GOOD = ("equal", "refused")


class Verdict(NamedTuple):
    """What came of one case.

    Args:
        kind: ``"equal"``, ``"refused"`` (a clean error), ``"other"`` (another result), ``"traceback"``, ``"hang"``,
            ``"crash"``, ``"outside"`` (something outside the folder was touched) or ``"code"`` (something was run).
        detail: A digest of the result, or the error.
    """

    kind: str
    detail: str


def attack(form: Format, template: Path, room: Path, seeds: Iterable[int]) -> Iterator[tuple[int, str, Verdict]]:
    """Damage copies of a good file or folder and read each; yields (seed, what was damaged, verdict).

    Args:
        form: The format.
        template: A folder with the good file or folder in it, as ``form.make`` left it.
        room: An empty folder to work in.
        seeds: One case each.
    """
    (room / OUTSIDE).mkdir(parents=True)
    (room / OUTSIDE / "canary").write_text("alive")
    with reader(form, room) as read:
        sound = read(shutil.copytree(template, room / "sound"))
        assert sound.kind == "equal", f"{form.name}: the sound one is not read: {sound}"
        for seed in seeds:
            case = Path(shutil.copytree(template, room / f"case-{seed}", symlinks=True))
            done = damage(case, random.Random(f"{form.name} {seed}"))
            verdict = read(case)
            if verdict.kind == "equal" and verdict.detail != sound.detail:
                verdict = Verdict("silent" if form.hashed else "other", verdict.detail)
            if (room / OUTSIDE / "canary").read_text() != "alive" or len(list((room / OUTSIDE).iterdir())) > 1:
                verdict = Verdict("outside", done)
            shutil.rmtree(case, ignore_errors=True)
            yield seed, done, verdict


def is_good(form: Format, verdict: Verdict) -> bool:
    """Whether a case came out as we promise."""
    return verdict.kind in GOOD or (verdict.kind == "other" and not form.hashed)


@contextmanager
def reader(form: Format, room: Path) -> Iterator[Callable[[Path], Verdict]]:
    """Yield a function that reads a path in a forked process; the process is forked again when a case ended it."""
    context = multiprocessing.get_context("fork")
    state: dict[str, Any] = {}

    def start() -> None:
        here, there = context.Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
            process = context.Process(target=_serve, args=(form, room, there), daemon=True)
            process.start()
        there.close()
        state.update(process=process, pipe=here)

    def stop() -> None:
        state["pipe"].close()
        with suppress(ProcessLookupError):
            os.kill(state["process"].pid, signal.SIGKILL)
        state["process"].join()

    def read(path: Path) -> Verdict:
        if not state["process"].is_alive():
            stop()
            start()
        state["pipe"].send(str(path))
        try:
            if state["pipe"].poll(PATIENCE):
                return Verdict(*state["pipe"].recv())
        except EOFError:
            state["process"].join(5)
            return Verdict("crash", f"exit code {state['process'].exitcode}")
        stop()
        start()
        return Verdict("hang", f"more than {PATIENCE:.0f} s")

    start()
    try:
        yield read
    finally:
        stop()


def _serve(form: Format, room: Path, pipe: Any) -> None:
    """Read one path after another, in the forked process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["HOME"] = str(room)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    warnings.simplefilter("ignore")
    seen: list[str] = []
    sys.addaudithook(_watch(room, seen))
    while True:
        try:
            path = Path(pipe.recv())
        except EOFError:
            os._exit(0)
        seen.clear()
        os.chdir(path)
        verdict = _read(form, path)
        if seen:
            verdict = ("code" if seen[0].split()[0] in CODE else "outside", "; ".join(seen))
        pipe.send(verdict)


def _read(form: Format, path: Path) -> tuple[str, str]:
    from bertflow.errors import BertflowError

    try:
        return "equal", digest(form.read(path))
    except BertflowError as error:
        said = str(error)
        if not said.strip() or len(said) > 2000:
            return "traceback", f"an error message of {len(said)} characters: {said[:200]}"
        return "refused", said
    except Forbidden as stopped:
        return "outside", str(stopped)
    except Exception:
        return "traceback", traceback.format_exc(limit=-8)


class Forbidden(BaseException):
    """Stops what no reader may do; no ``except Exception`` swallows it."""


def _watch(room: Path, seen: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that notes and stops what no reader may do: run code, or change anything outside its folder."""
    outside = str(room / OUTSIDE)
    allowed = (str(room), tempfile.gettempdir() + "/tmp", "/dev/null", "/dev/shm", "/proc/self")

    def stop(event: str, what: object) -> None:
        seen.append(f"{event} {what!r:.100}")
        raise Forbidden(seen[-1])

    def check(event: str, name: object) -> None:
        if not isinstance(name, str | bytes | os.PathLike):
            return
        head, tail = os.path.split(os.fsdecode(name))
        # names are changed where they stand; only opening follows a link
        real = os.path.realpath(os.fsdecode(name)) if event == "open" else f"{os.path.realpath(head or '.')}/{tail}"
        if not real.startswith(allowed) or real.startswith(outside):
            stop(event, real)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if arguments[2] and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                check(event, arguments[0])
        elif event in CHANGES:
            for name in arguments[:2]:
                check(event, name)
        elif event in CODE:
            stop(event, arguments)

    return hook


def digest(value: Any) -> str:
    """Return a hash of a result: of the bytes of arrays, of the words of the rest."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        elif isinstance(part, dict):
            add(sorted(part.items(), key=lambda item: str(item[0])))
        elif isinstance(part, list | tuple):
            found.update(f"{len(part)}(".encode())
            for inner in part:
                add(inner)
        else:
            found.update(repr(part).encode("utf-8", "surrogatepass"))

    add(value)
    return found.hexdigest()[:16]
