"""No verb writes over its own input, and none over another file that bertflow did not write."""

import re
import shutil
from pathlib import Path

import pytest

from bertflow.data import sample_sentences

from .commands import bertflow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, an index and raw shards, each with a text of the user's inside, and files of the user's."""
    from bertflow import BertFlow, Encoder
    from bertflow.scale import write_shards

    room, texts = tmp_path_factory.mktemp("made"), sample_sentences()[:60]
    for name in ("t.txt", "t.html", "t.md"):
        (room / name).write_text("\n".join(texts), encoding="utf-8")
    rows = "".join(f'{{"text": "a text {i}", "embedding": {i}, "label": {i}}}\n' for i in range(9))
    (room / "t.jsonl").write_text(rows)
    (room / "pairs.csv").write_text("sentence1,sentence2,score\n" + "".join(f"a {i},b {i},{i % 5}\n" for i in range(9)))
    model = BertFlow.fit(texts, Encoder("mini", device="cpu"), recipe="whitening")
    model.save_pretrained(room / "model")
    shutil.copy(room / "t.txt", room / "model" / "own.txt")
    write_shards(texts, Encoder("mini", device="cpu"), room / "raw", shard_rows=40)
    return room


def _state(room: Path) -> dict[str, bytes]:
    return {path.relative_to(room).as_posix(): path.read_bytes() for path in sorted(room.rglob("*")) if path.is_file()}


LOSSES = {
    "embed over its text": "embed t.jsonl -e mini -o t.jsonl",
    "embed over its text, as is said twice": "embed t.jsonl -e mini -o t.jsonl --overwrite",
    "embed over its text by a link": "embed link.jsonl -e mini -o t.jsonl --overwrite",
    "embed over its text, spelt otherwise": "embed t.jsonl -e mini -o ./model/../t.jsonl --overwrite",
    "embed over a file of the user's": "embed t.txt -e mini -o t.jsonl",
    "embed into its text's folder": "embed t.txt -e mini -o . --shards",
    "embed over its model": "embed t.txt -m model -o model --shards",
    "fit over its text": "fit model/own.txt -r sn -o model",
    "fit over its vectors": "fit raw -r sn -o raw",
    "transform over its vectors": "transform raw -m model -o raw",
    "transform over its model": "transform raw -m model -o model",
    "index over its text": "index build model/own.txt model -e mini",
    "index over its model": "index build t.txt model -m model",
    "export over its model": "export onnx model model",
    "export over its model, to sentence-transformers": "export sentence-transformers model model",
    "export over the text": "export onnx model t.txt",
    "report over its text": "report t.html -m model -o t.html",
    "report over a file of the user's": "report t.txt -m model -o t.html",
    "compare over its pairs": "compare --pairs pairs.csv -e mini -r sn -o pairs.csv --format csv",
    "evaluate over a file of the user's": "evaluate --pairs pairs.csv -e mini -r sn -o t.md",
    "duplicates over the text": "duplicates t.txt -o t.txt",
    "clusters over the text": "cluster t.txt -o t.jsonl",
}


# each for the right reason, not for a wrong option
REFUSED = re.compile(r"which would be lost|--overwrite|exists|is a folder|is a file|holds something else|raw vectors")


@pytest.mark.parametrize("loss", LOSSES)
def test_what_would_lose_a_file_is_refused(made, tmp_path, loss):
    room = shutil.copytree(made, tmp_path / "room")
    (room / "link.jsonl").symlink_to(room / "t.jsonl")
    before = _state(room)
    words = [str(room / word) if (room / word.split("/")[0]).exists() else word for word in LOSSES[loss].split()]
    ended = bertflow(*words, "-q")
    assert _state(room) == before, "something of the user's was changed"
    assert ended.code in (1, 2), ended
    assert REFUSED.search(ended.err), ended.err


@pytest.mark.parametrize("name", ["v.jsonl", "v.parquet", "v.npz", "v.safetensors", "page.html"])
def test_our_own_output_is_replaced_without_asking(made, tmp_path, name):
    words = [
        "report" if name == "page.html" else "embed",
        made / "t.txt",
        "-m",
        made / "model",
        "-o",
        tmp_path / name,
        "-q",
    ]
    for _ in range(2):
        ended = bertflow(*words)
        assert ended.code == 0, ended.err
