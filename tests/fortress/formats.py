"""Every file format that bertflow reads. To put one under attack, add a function here: how to make a good one, how to read it.

``@attacked("name", make=..., hashed=...)`` on a function that takes the folder and returns what was read. ``hashed`` says that
the format carries checksums, so that a damaged file may not give another result in silence.
"""

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TEXTS = [
    f"the {a} {b} on a {c}" for a in ("cat", "dog", "bird") for b in ("sat", "runs", "sings") for c in ("mat", "house")
]
ASKED = ["the red cat", "tea", ""]
Make = Callable[[Path, Path], None]  # (folder, a tiny BERT's folder)


@dataclass(frozen=True)
class Format:
    """One format.

    Args:
        name: Its name.
        make: Writes a good one into a folder; its second argument is the folder of a tiny BERT.
        read: Reads it; what it returns is compared.
        hashed: Whether it carries checksums.
        needs: Modules without which it cannot be read.
    """

    name: str
    make: Make
    read: Callable[[Path], Any]
    hashed: bool
    needs: tuple[str, ...] = field(default=())

    def there(self) -> bool:
        """Whether its modules are installed; they are imported, so that forked readers find them loaded."""
        try:
            for module in self.needs:
                importlib.import_module(module)
        except ImportError:
            return False
        return True


FORMATS: dict[str, Format] = {}


def attacked(name: str, make: Make, *, hashed: bool, needs: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Put the decorated reader under attack."""

    def register(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        FORMATS[name] = Format(name, make, read, hashed, needs)
        return read

    return register


# --- texts and tables --------------------------------------------------------------------------------------------------


def _write(name: str, text: str) -> Make:
    return lambda folder, tiny: _put(folder / name, text)


def _put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _parquet(folder: Path, tiny: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {"text": TEXTS, "n": list(range(len(TEXTS))), "vector": [[1.0, 2.0]] * len(TEXTS)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "a.parquet")


@attacked("text", _write("a.txt", "\n".join([*TEXTS, "", "naïve — “über” 🙂"]) + "\n"), hashed=False)
def read_text(folder: Path) -> Any:
    from bertflow.storage.text_files import read_sentences

    return read_sentences(folder / "a.txt")


_QUOTED = "".join(f'{i},"{text}, ""said"""\n' for i, text in enumerate(TEXTS))


@attacked("csv", _write("a.csv", "n,text\n" + _QUOTED), hashed=False)
def read_csv(folder: Path) -> Any:
    from bertflow.storage.text_files import read_sentences

    return read_sentences(folder / "a.csv")


@attacked("tsv", _write("a.tsv", "n\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS))), hashed=False)
def read_tsv(folder: Path) -> Any:
    from bertflow.storage.text_files import read_sentences

    return read_sentences(folder / "a.tsv")


_OBJECTS = "".join(json.dumps({"n": i, "text": text, "x": {"y": [1]}}) + "\n" for i, text in enumerate(TEXTS))


@attacked("jsonl", _write("a.jsonl", _OBJECTS), hashed=False)
def read_jsonl(folder: Path) -> Any:
    from bertflow.storage.text_files import read_sentences

    return read_sentences(folder / "a.jsonl")


@attacked("parquet", _parquet, hashed=False, needs=("pyarrow.parquet",))
def read_parquet(folder: Path) -> Any:
    from bertflow.storage.text_files import read_sentences, read_table

    return read_sentences(folder / "a.parquet"), list(read_table(folder / "a.parquet"))


_PAIRS = "".join(f"{a}\t{b}\t{i % 6}\n" for i, (a, b) in enumerate(zip(TEXTS, reversed(TEXTS), strict=True)))


@attacked("pairs", _write("a.tsv", "sentence1\tsentence2\tscore\n" + _PAIRS), hashed=False)
def read_pair_file(folder: Path) -> Any:
    from bertflow.evaluation.pairs import read_pairs

    pairs, metric = read_pairs(folder / "a.tsv")
    return pairs.sentences1, pairs.sentences2, pairs.gold, metric


@attacked("nli", _write("a.tsv", "".join(f"{t}\t{t} now\tneutral\n" for t in TEXTS)), hashed=False)
def read_nli_file(folder: Path) -> Any:
    from bertflow.paper.nli_data import read_nli

    rows = read_nli(folder / "a.tsv")
    return rows.premises, rows.hypotheses, rows.labels


_COUNTS = "".join(f"{word}\t{9**i}\n" for i, word in enumerate(["the", "a", "cat", "dog"]))


@attacked("word counts", _write("a.txt", _COUNTS), hashed=False)
def read_counts(folder: Path) -> Any:
    from bertflow.geometry.frequency import read_word_counts

    return read_word_counts(folder / "a.txt")


def _vectors_in_binary(folder: Path, tiny: Path) -> None:
    rng, words = np.random.default_rng(0), ["the", "cat", "tea", "red"]
    rows = b"".join(word.encode() + b" " + rng.normal(size=8).astype("<f4").tobytes() + b"\n" for word in words)
    (folder / "a.bin").write_bytes(b"4 8\n" + rows)


_GLOVE = "".join(f"{word} 0.25 -1 {i}\n" for i, word in enumerate(["the", "cat", "tea", "red", "on"]))


@attacked("word vectors", _write("a.txt", _GLOVE), hashed=False)
def read_word_vectors(folder: Path) -> Any:
    from bertflow.encoders.word_vectors import AveragedWordVectors

    return AveragedWordVectors(folder / "a.txt").encode(ASKED)


@attacked("binary word vectors", _vectors_in_binary, hashed=False)
def read_binary_word_vectors(folder: Path) -> Any:
    from bertflow.encoders.word_vectors import AveragedWordVectors

    return AveragedWordVectors(folder / "a.bin").encode(ASKED)


# --- encoders ----------------------------------------------------------------------------------------------------------


def _copy_of_tiny(folder: Path, tiny: Path) -> None:
    shutil.copytree(tiny, folder, dirs_exist_ok=True)


def _sentence_transformer(folder: Path, tiny: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(tiny))
    model = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device="cpu"
    )
    model.save_pretrained(str(folder), create_model_card=False)


@attacked("encoder", _copy_of_tiny, hashed=False, needs=("transformers.models.bert.modeling_bert",))
def read_encoder(folder: Path) -> Any:
    from bertflow import Encoder

    return Encoder(folder, device="cpu").encode(ASKED)


@attacked("sentence-transformers", _sentence_transformer, hashed=False, needs=("sentence_transformers",))
def read_sentence_transformer(folder: Path) -> Any:
    from bertflow.encoders.pretrained import load_sentence_transformer
    from bertflow.encoders.sentence_transformer import SentenceTransformerEncoder

    return SentenceTransformerEncoder(load_sentence_transformer(str(folder), device="cpu")).encode(ASKED)


# --- saved models ------------------------------------------------------------------------------------------------------


def _model(recipe: str, **options: Any) -> Make:
    def make(folder: Path, tiny: Path) -> None:
        from bertflow import BertFlow

        saved = {"bundle_encoder": options.pop("bundle_encoder", False)}
        model = BertFlow.fit(TEXTS, tiny, recipe=recipe, device="cpu", **options)
        model.save_pretrained(folder / "model", **saved)

    return make


def _read_model(folder: Path) -> Any:
    from bertflow import BertFlow

    return BertFlow.from_pretrained(folder / "model", device="cpu").encode(ASKED)


for _recipe in ("whitening", "natsv-1", "flow", "best", "static"):
    attacked(f"model {_recipe}", _model(_recipe), hashed=True)(_read_model)
attacked("model with its encoder", _model("whitening-half", bundle_encoder=True), hashed=True)(_read_model)


def _old_model(folder: Path, tiny: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "fixtures" / "version-0.1" / "best", folder / "model")


attacked("model of version 0.1", _old_model, hashed=False)(_read_model)


@attacked("model's card and results", _model("whitening"), hashed=False)
def add_to_card(folder: Path) -> Any:
    from bertflow.storage import model_folder

    result = {
        "task": "similarity",
        "dataset": "mine",
        "split": "test",
        "metric": "spearman",
        "setting": "all",
        "value": 50.0,
    }
    return model_folder.add_results(folder / "model", [result])


# --- vectors on disk ---------------------------------------------------------------------------------------------------


def _shards(folder: Path, tiny: Path) -> None:
    from bertflow import Encoder
    from bertflow.scale import write_shards

    write_shards(TEXTS, Encoder(tiny, device="cpu"), folder / "shards", shard_rows=7, dtype="float32")


@attacked("shards", _shards, hashed=True)
def read_shards(folder: Path) -> Any:
    from bertflow.storage.shards import Shards

    shards = Shards(folder / "shards")
    return shards.rows(0, len(shards)), shards.sample(5), shards.manifest.encoder


def _encode_for_cache(sentences: list[str]) -> Any:
    return np.stack([np.arange(6, dtype=np.float32) + len(sentence) for sentence in sentences])


def _cache(folder: Path, tiny: Path) -> None:
    from bertflow.storage.vector_cache import CachedEncoder

    for start in (0, 5):
        CachedEncoder(_encode_for_cache, "one", folder).encode(TEXTS[start : start + 5])


@attacked("vector cache", _cache, hashed=True)
def read_cache(folder: Path) -> Any:
    from bertflow.storage.vector_cache import CachedEncoder

    return CachedEncoder(_encode_for_cache, "one", folder).encode(TEXTS)


def _vector_file(name: str) -> Make:
    def make(folder: Path, tiny: Path) -> None:
        from bertflow.storage.vector_files import write_vectors

        write_vectors(folder / name, np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))

    return make


def _vectors_of(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        from bertflow.storage.vector_files import holds_vectors, read_vectors

        return holds_vectors(folder / name), np.asarray(read_vectors(folder / name))

    return read


for _name in ("v.npy", "v.npz", "v.safetensors"):
    attacked(f"vectors {_name}", _vector_file(_name), hashed=False)(_vectors_of(_name))
attacked("vectors v.parquet", _vector_file("v.parquet"), hashed=False, needs=("pyarrow.parquet",))(
    _vectors_of("v.parquet")
)


# --- for other programs ------------------------------------------------------------------------------------------------


def _onnx(calibrator_only: bool) -> Make:
    def make(folder: Path, tiny: Path) -> None:
        from bertflow import BertFlow, Encoder
        from bertflow.integrations.onnx import export_onnx

        model = BertFlow.fit(TEXTS, Encoder(tiny, device="cpu"), recipe="whitening")
        export_onnx(model.calibrator if calibrator_only else model, folder / "model")

    return make


_ONNX = ("onnx", "onnxscript", "onnxruntime", "tokenizers")


@attacked("onnx", _onnx(False), hashed=True, needs=_ONNX)
def read_onnx(folder: Path) -> Any:
    from bertflow import OnnxModel

    return OnnxModel.from_pretrained(folder / "model", threads=1).encode(ASKED)


@attacked("onnx calibrator", _onnx(True), hashed=True, needs=_ONNX)
def read_onnx_calibrator(folder: Path) -> Any:
    from bertflow import OnnxCalibrator

    return OnnxCalibrator.from_pretrained(folder / "model", threads=1).transform(np.ones((2, 16), np.float32))


@attacked("model without torch", _model("flow"), hashed=True)
def read_portable(folder: Path) -> Any:
    from bertflow.runtime.portable import load_calibrator

    return load_calibrator(folder / "model").transform(np.ones((2, 16), np.float32))


def _index(folder: Path, tiny: Path) -> None:
    from bertflow import BertFlow
    from bertflow.integrations.faiss import build_index

    build_index(BertFlow.fit(TEXTS, tiny, recipe="whitening", device="cpu"), TEXTS).save(folder / "index")


@attacked("search index", _index, hashed=True, needs=("faiss",))
def read_index(folder: Path) -> Any:
    from bertflow.integrations.faiss import SearchIndex

    return SearchIndex.load(folder / "index", device="cpu").search(ASKED[:2], 3).hits
