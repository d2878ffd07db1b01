"""Every failure is a sentence and an exit code: 2 for usage, 1 for failure, 130 for Ctrl-C; never a traceback."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from bertflow.cli import failures, output
from bertflow.data import sample_sentences
from bertflow.errors import InputError

from .commands import Command, bertflow


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(sample_sentences()[:300]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "arguments", [["--no-such-option"], ["no-such-verb"], ["embed"], ["embed", "a", "--shard-rows", "x"]]
)
def test_usage_is_2(run, arguments):
    assert run(*arguments)[0] == 2


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputError("What came, what was wanted."), "bertflow: What came, what was wanted."),
        (
            OSError(errno.ENOSPC, "No space left on device", "out.npy"),
            "out.npy: No space left on device. The disk is full",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/a"), "cannot be written to: give another"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/a"), "A file was expected there"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "--port"),
        (OSError("76800 requested and 468 written"), "is the disk full?"),
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
            "not enough memory",
        ),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), "save it as UTF-8"),
        (KeyError("fingerprint"), "This should not happen: KeyError: 'fingerprint' Please report it as a bug"),
    ],
)
def test_whatever_is_raised_becomes_a_sentence(capsys, monkeypatch, error, sentence):
    def verb():
        raise error

    app = typer.Typer(cls=failures.Group, pretty_exceptions_enable=False)
    app.command()(verb)
    app.command("other")(verb)
    monkeypatch.setattr(sys, "argv", ["bertflow", "verb"])
    with pytest.raises(SystemExit) as caught:
        failures.run(app)
    assert caught.value.code == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.fixture
def long(tmp_path):
    """Text that takes a minute."""
    path = tmp_path / "long.txt"
    path.write_text("\n".join(f"sentence number {i}" for i in range(200_000)), encoding="utf-8")
    return path


def test_ctrl_c_is_130_and_keeps_what_is_finished(tmp_path, long):
    folder = tmp_path / "shards"
    command = Command("embed", long, "-e", "mini", "--raw", "-o", folder, "--shard-rows", 500, "-q")
    for _ in range(1000):
        if list(folder.glob("0*.npy")):
            break
        time.sleep(0.1)
    os.kill(command.pid, signal.SIGINT)
    ended = command.end()
    assert ended.code == 130
    assert "kept" in ended.err
    assert list(folder.glob("0*.npy"))


def test_ctrl_c_in_any_verb(tmp_path, long):
    command = Command("fit", long, "-o", tmp_path / "m", "-q")
    time.sleep(1.5)
    os.kill(command.pid, signal.SIGINT)
    ended = command.end()
    assert ended.code == 130, ended
    assert "Stopped" in ended.err
    assert not (tmp_path / "m").exists()


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.parametrize("name", ["v.npy", "v.jsonl", "v.parquet", "shards", "model"])
def test_a_full_disk(tmp_path, text, name):
    place = tmp_path / "out" / name
    verb = ["fit", text, "--recipe", "whitening"] if name == "model" else ["embed", text, "-e", "mini", "--raw"]
    code, _, said = bertflow(*verb, "-o", place, "-q", before=small_files)
    assert code == 1
    assert said.count("\n") == 1, said
    assert "File too large" in said or "disk full" in said
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".npy", ".jsonl", ".parquet")]
    code, _, said = bertflow(*verb, "-o", place, "-q")
    assert code == 0, said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_on_a_full_disk():
    ended = bertflow("info", "mini-flow", "--json", out="/dev/full")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "No space left on device" in ended.err


def test_a_closed_pipe():
    command = f"{sys.executable} -m bertflow --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_terminal_without_unicode():
    ended = bertflow("info", "mini-flow", before=lambda: sys.stdout.reconfigure(encoding="ascii"))
    assert ended.code == 0, ended.err
    assert ended.out.isascii()


HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202etxt\u2066 \r\x08 [bold]x[/nothing]"


def test_texts_do_not_command_the_terminal(capsys):
    from rich.markup import escape

    output.say(escape(HOSTILE))
    output.table(escape(HOSTILE), ["a", escape(HOSTILE)], [[escape(HOSTILE), "1"]])
    output.print_json({"text": HOSTILE})
    with pytest.raises(SystemExit):
        output.fail(HOSTILE)
    out, err = capsys.readouterr()
    for said in (out, err):
        assert not set(said) & set("\x1b\x07\x9b\u202e\u2066\r\x08")
        assert r"\x1b" in said or r"\u001b" in said
    output.print_json(HOSTILE)
    assert json.loads(capsys.readouterr().out) == HOSTILE
