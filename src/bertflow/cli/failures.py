"""What goes wrong, as a sentence: what came, what was wanted, what to do. No command ends in a traceback.

Exit codes: 2 where the command line itself is wrong, 1 for every failure, 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any

import typer.core

from bertflow.cli.output import fail
from bertflow.errors import BertflowError

TRACEBACK = "BERTFLOW_TRACEBACK"  # set in the environment: show the traceback, to report a bug
_REMEDIES = {
    errno.ENOSPC: "The disk is full: make room and run the same command again",
    errno.EDQUOT: "Your quota is used up: make room and run the same command again",
    errno.EFBIG: "The file would be larger than is allowed here: write it to another place",
    errno.EROFS: "This place cannot be written to: give another",
    errno.EACCES: "You may not read or write it: give another place, or ask for the right",
    errno.EPERM: "You may not read or write it: give another place, or ask for the right",
    errno.EISDIR: "A file was expected there: give its name",
    errno.ENOTDIR: "A folder was expected there: give another place",
    errno.EEXIST: "Something is there already: give another name",
    errno.ENOENT: "Check the name",
    errno.ENAMETOOLONG: "Give a shorter name",
    errno.EMFILE: "Too many files are open: raise the limit with ulimit -n",
    errno.EADDRINUSE: "Another program has this port: give another with --port",
}
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "bad allocation", "std::bad_alloc")


class Group(typer.core.TyperGroup):
    """The command's groups: Ctrl-C in any subcommand ends with one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("Stopped. What was finished before is kept; nothing is left half-written.", 130)


def run(app: typer.Typer) -> None:
    """Run a command line; whatever it raises becomes one sentence and an exit code."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without Unicode shows \\u2014 instead of failing
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk or a closed pipe may show only here
    except BrokenPipeError:
        _quiet_end()
        raise SystemExit(1) from None
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        _quiet_end(only_if_broken=True)
        fail(sentence_of(error))


def sentence_of(error: Exception) -> str:
    """Return an error as a sentence with a remedy."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, BertflowError):
        return str(error)
    if isinstance(error, MemoryError) or any(words in first for words in _NO_MEMORY):
        return (
            f"There is not enough memory ({first[:200]}): take fewer texts or a smaller model, or a machine with more."
        )
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        remedy = _REMEDIES.get(error.errno, "Put that right and run the same command again")
        return f"{where}{error.strerror or first}. {remedy}."
    if isinstance(error, OSError):  # numpy's own, of writes cut short
        return f"Reading or writing failed ({first[:200]}): is the disk full? Make room and run the same command again."
    if isinstance(error, UnicodeError):
        return f"A text or a name has bytes that are no characters ({first[:200]}): save it as UTF-8."
    return (
        f"This should not happen: {type(error).__name__}: {first[:500]} Please report it as a bug, with what the same command "
        f"shows when {TRACEBACK}=1 is set in the environment."
    )


def _quiet_end(*, only_if_broken: bool = False) -> None:
    """Keep Python from failing once more over an output that takes nothing."""
    with suppress(OSError, ValueError):
        if only_if_broken:
            try:
                sys.stdout.flush()
                return
            except OSError:
                pass
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
