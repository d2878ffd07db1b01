"""The command line in forked processes: as apart from the tests as a fresh interpreter, without its seconds of imports."""

import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LIMIT = 120.0  # seconds


class Ended(NamedTuple):
    """How a command ended: exit code (negative: the signal that ended it), and what it wrote."""

    code: int
    out: str
    err: str


class Command:
    """A command that runs in a forked process.

    Args:
        arguments: As after ``bertflow``.
        before: Called in the process before the command, to set limits.
        out: Where standard output goes; default: kept.
    """

    def __init__(self, *arguments: object, before: Callable[[], None] | None = None, out: str | None = None) -> None:
        self._room = tempfile.TemporaryDirectory()
        self._files = [out or f"{self._room.name}/out", f"{self._room.name}/err"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
            self.pid = os.fork()
        if self.pid == 0:
            self._run([str(argument) for argument in arguments], before)

    def _run(self, arguments: list[str], before: Callable[[], None] | None) -> None:
        code = 99
        try:
            for number, name in enumerate(self._files, 1):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
            sys.stdin = Path(os.devnull).open()  # noqa: SIM115
            sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf-8"), os.fdopen(2, "w", 1, encoding="utf-8")
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if before:
                before()
            code = _main(arguments)
            sys.stderr.flush()
        finally:
            os._exit(code)

    def end(self) -> Ended:
        """Wait for the end; refuse tracebacks and hangs."""
        deadline = time.monotonic() + LIMIT
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"The command hung for {LIMIT:.0f} s: {self._said(1)}")
            time.sleep(0.005)
        ended = Ended(os.waitstatus_to_exitcode(status), self._said(0), self._said(1))
        self._room.cleanup()
        assert "Traceback" not in ended.err, ended.err
        assert "This should not happen" not in ended.err, ended.err
        return ended

    def _said(self, number: int) -> str:
        path = Path(self._files[number])
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def bertflow(*arguments: object, before: Callable[[], None] | None = None, out: str | None = None) -> Ended:
    """Run a command to its end."""
    return Command(*arguments, before=before, out=out).end()


def _main(arguments: list[str]) -> int:
    from rich.console import Console

    from bertflow.cli import main, output

    output.console = Console()  # the one of this process's standard output
    sys.argv = ["bertflow", *arguments]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
