"""`bertflow serve`: what it refuses before any work, and a whole life of it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import bertflow
from bertflow.errors import InputError
from bertflow.serving import loading

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give a model"),
        (["mini-flow", "--port", "70000"], "The port is 70000"),
        (["mini-flow", "--host", "no.such.host.invalid"], "is not known"),
        (["mini-flow", "--keys", "absent.txt"], "cannot be read"),
        (["mini-flow", "--max-texts", "0"], "'texts' is 0"),
        (["mini-flow", "--texts", "absent.txt"], "absent.txt"),
        (["a=mini-flow", "a=other", "--port", "0"], "Two are called 'a'"),
        (["=mini-flow", "--port", "0"], "is not NAME=FOLDER"),
        (["absent-folder", "--port", "0"], "absent-folder"),
    ],
)
def test_bad_arguments_are_one_sentence(run, arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("serve", *arguments)
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""


def test_an_index_is_not_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": "bertflow-index"}), encoding="utf-8")
    with pytest.raises(InputError, match="serve it with --index"):
        loading.load_models([str(tmp_path)])


def test_a_folder_gives_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_load_model", lambda place, device: place)
    (tmp_path / "a=b").mkdir()
    loaded = loading.load_models([str(tmp_path / "a=b"), "new=someone/model", "someone/other"])
    assert loaded == {"a=b": str(tmp_path / "a=b"), "new": "someone/model", "someone/other": "someone/other"}


# the command as it is, but for the model, which is at hand at once
PROGRAM = """
from bertflow.cli import main
from bertflow.serving import loading
from tests.serving.conftest import Words

loading._load_model = lambda place, device: Words(seconds=0.1)
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to stop with")
def test_it_answers_what_it_took_before_it_stops():
    httpx = pytest.importorskip("httpx", reason="needs pip install httpx")
    source = {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(bertflow.__file__).parents[1]}"}
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "serve",
        "mine=anything",
        "--port",
        "0",
        "--json",
        "--batch-tokens",
        "500",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | source
    ) as running:
        told = json.loads("".join(_until(iter(running.stdout.readline, ""), "}\n")))
        assert (told["models"], told["indexes"], told["keys"]) == (["mine"], [], False)
        codes = []

        def ask():
            body = {"model": "mine", "input": [f"a cat sat on the mat {i}" for i in range(300)]}
            answer = httpx.post(f"{told['url']}/v1/embeddings", json=body, timeout=60)
            codes.append((answer.status_code, len(answer.json()["data"])))

        asking = threading.Thread(target=ask)
        asking.start()
        while 'bertflow_batch_texts_count{model="mine"}' not in httpx.get(f"{told['url']}/metrics").text:
            time.sleep(0.02)  # until the first of its batches is done
        running.send_signal(signal.SIGTERM)
        asking.join(60)
        assert codes == [(200, 300)]
        assert "Traceback" not in running.communicate(timeout=30)[1]


def _until(lines, last):
    for line in lines:
        yield line
        if line == last:
            return
