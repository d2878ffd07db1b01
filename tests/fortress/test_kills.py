"""Killed with SIGKILL at random moments, or beaten to it by another process: what was there, or all of the new; never a half.

FORTRESS_KILLS says how often each verb is killed.
"""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bertflow.data import sample_sentences

from .arena import digest
from .commands import Command, bertflow

KILLS = int(os.environ.get("FORTRESS_KILLS", "1"))


def _model(path: Path) -> Any:
    from bertflow import BertFlow

    return BertFlow.from_pretrained(path, device="cpu").encode(["a cat", "tea"])


def _vectors(path: Path) -> Any:
    from bertflow.storage.vector_files import read_vectors

    return read_vectors(path)


def _shards(path: Path) -> Any:
    from bertflow.storage.shards import Shards

    shards = Shards(path)
    shards.verify()
    return shards.rows(0, len(shards))


def _onnx(path: Path) -> Any:
    from bertflow import OnnxModel

    return OnnxModel.from_pretrained(path, threads=1).encode(["a cat"]).shape


def _index(path: Path) -> Any:
    from bertflow.integrations.faiss import SearchIndex

    return [hit.text for hit in SearchIndex.load(path, device="cpu").search("a cat", 3).hits[0]]


def _page(path: Path) -> Any:
    content = path.read_bytes()
    assert content.rstrip().endswith(b"</html>")
    return len(content) > 10_000


def _folder(path: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(path), device="cpu", trust_remote_code=False).encode(["a cat"])


# A verb: its arguments (TEXT, MODEL and RAW are made beforehand), where its output is, and how that is read when it is whole.
VERBS = {
    "fit": (["fit", "TEXT", "-r", "whitening", "-o", "OUT/model"], "model", _model),
    "embed .npy": (["embed", "TEXT", "-m", "MODEL", "-o", "OUT/v.npy", "--overwrite"], "v.npy", _vectors),
    "embed .parquet": (["embed", "TEXT", "-m", "MODEL", "-o", "OUT/v.parquet"], "v.parquet", _vectors),
    "embed shards": (["embed", "TEXT", "-m", "MODEL", "-o", "OUT/shards", "--shard-rows", "40"], "shards", _shards),
    "transform": (["transform", "RAW", "-m", "MODEL", "-o", "OUT/shards"], "shards", _shards),
    "index": (["index", "build", "TEXT", "OUT/index", "-m", "MODEL"], "index", _index),
    "report": (["report", "TEXT", "-m", "MODEL", "-o", "OUT/page.html"], "page.html", _page),
    "export onnx": (["export", "onnx", "MODEL", "OUT/onnx"], "onnx", _onnx),
    "export st": (["export", "sentence-transformers", "MODEL", "OUT/st"], "st", _folder),
}
NEEDS = {
    "index": "faiss",
    "embed .parquet": "pyarrow",
    "export onnx": "onnxscript",
    "export st": "sentence_transformers",
}
SLOW = (
    "report",
    "export onnx",
    "export st",
    "index",
    "embed .parquet",
)  # minutes on a busy machine: in `make fortress` alone
RESUMED = ("embed shards", "transform")  # what a kill leaves there is a beginning, which the next run goes on with


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A text, a model and raw shards of it."""
    from bertflow import BertFlow, Encoder
    from bertflow.scale import write_shards

    room = tmp_path_factory.mktemp("kills")
    texts = sample_sentences()[:200]
    (room / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    BertFlow.fit(texts, Encoder("mini", device="cpu"), recipe="whitening").save_pretrained(room / "model")
    write_shards(texts, Encoder("mini", device="cpu"), room / "raw", shard_rows=40)
    return {"TEXT": room / "texts.txt", "MODEL": room / "model", "RAW": room / "raw"}


def _arguments(words, places, out):
    return [*(str(places.get(word, word)).replace("OUT", str(out)) for word in words), "-q"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_leaves_the_old_or_the_new(tmp_path, places, verb, record_property):
    words, name, read = VERBS[verb]
    pytest.importorskip(NEEDS.get(verb, "numpy"))
    if verb in SLOW and KILLS < 10:
        pytest.skip("slow: make fortress")
    arguments, rng = _arguments(words, places, tmp_path), random.Random(verb)
    began = time.monotonic()
    assert bertflow(*arguments).code == 0
    took = time.monotonic() - began
    whole = digest(read(tmp_path / name))
    states = []
    for number in range(KILLS):
        if verb in RESUMED or number % 2:  # sometimes nothing is there before, sometimes a whole one
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            (tmp_path / name).unlink(missing_ok=True) if (tmp_path / name).is_file() else None
        command = Command(*arguments)
        time.sleep(rng.uniform(0, took))
        os.kill(command.pid, signal.SIGKILL)
        code = command.end().code
        if verb not in RESUMED and (tmp_path / name).exists():
            assert digest(read(tmp_path / name)) == whole
        states.append((code, (tmp_path / name).exists()))
        seen = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]
        assert set(seen) <= {name}, f"half-written files are in sight: {seen}"
    ended = bertflow(*arguments)
    assert ended.code == 0, ended
    assert digest(read(tmp_path / name)) == whole
    record_property("kills", len(states))


@pytest.mark.parametrize("verb", ["fit", "embed .npy", "embed shards", "index"])
def test_of_several_writers_one_wins_and_the_others_say_so(tmp_path, places, verb):
    words, name, read = VERBS[verb]
    pytest.importorskip(NEEDS.get(verb, "numpy"))
    if verb in SLOW and KILLS < 10:
        pytest.skip("slow: make fortress")
    arguments = _arguments(words, places, tmp_path)
    ended = [command.end() for command in [Command(*arguments) for _ in range(3)]]
    assert any(one.code == 0 for one in ended)
    assert all(one.code == 0 or one.err.count("\n") == 1 for one in ended), ended
    read(tmp_path / name)
