"""The commands around one model: demo, fit, embed, similarity, info."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Device, EncoderName, PoolingName, Quiet, Seed, print_json, say, start, table
from bertflow.errors import InputError, require

if TYPE_CHECKING:
    from bertflow.arrays import Matrix
    from bertflow.demo import DemoResult

ModelFolder = Annotated[str, typer.Option("--model", "-m", help="A folder that `bertflow fit` wrote, or a hub id.")]
Column = Annotated[
    str | None, typer.Option(help="Column with the text, in a .jsonl, .csv, .tsv or .parquet file.", show_default=False)
]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model is saved.")] = Path("bertflow-demo"),
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit the mini encoder on the sentences that ship inside and show what it changes: under a minute, no network."""
    progress = start(quiet)
    from bertflow.demo import run_demo

    result = run_demo(output, random_state=seed, show_progress_bar=progress)
    if as_json:
        print_json(result.to_dict())
    else:
        _show_demo(result)


def _show_demo(result: DemoResult) -> None:
    say(f"\nA flow was fitted on {result.sentences} unlabelled sentences; the encoder stayed frozen.\n")
    table(
        "Spearman ×100 with the grades of the shipped pairs",
        ("pairs", "n", "before", "after", "change"),
        [
            (c.name, str(c.pairs), f"{c.before:.1f}", f"{c.after:.1f}", f"{c.after - c.before:+.1f}")
            for c in result.spearman
        ],
    )
    cosine = result.random_cosine
    say(f"\n[bold]Mean cosine of two random sentences[/]: before {cosine.before:.2f}, after {cosine.after:.2f}\n")
    for search in result.searches:
        rows = [
            (when, f"{value:.2f}", escape(text))
            for when, found in (("before", search.before), ("after", search.after))
            for text, value in found
        ]
        table(f"Nearest to “{escape(search.query)}”", ("", "cosine", "sentence"), rows, text_last=True)
        say()
    say(escape(result.verdict()))
    say(f"\nSee the space before and after, in a browser: [bold]{escape(result.report)}[/]")
    program = "bertflow" if shutil.which("bertflow") else sys.argv[0]  # in a venv that is not activated
    say(f"\nSaved to [bold]{escape(result.saved)}[/]. Next:")
    say(f'  {program} similarity -m {escape(result.saved)} "A man is eating." "Someone has lunch."')
    say(f"  {program} fit your-sentences.txt --output your-model")
    say(f"  {program} compare --pairs your-pairs.tsv")


def fit(
    sentences: Annotated[
        str, typer.Argument(help="Unlabelled text: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")],
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    preset: Annotated[str, typer.Option(help="`default` (fast) or `paper` (the paper's schedule).")] = "default",
    column: Column = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens read of each text; default: what the model allows.")
    ] = None,
    bundle_encoder: Annotated[
        bool, typer.Option("--bundle-encoder", help="Put the encoder's weights into the folder.")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a flow on your sentences, without labels, and save the model.

    A few thousand sentences like those to be compared later are enough:

        bertflow fit corpus.txt --encoder bert-base-uncased --output my-model
    """
    progress = start(quiet)
    from bertflow.model import BertFlow
    from bertflow.textfiles import read_sentences

    texts = read_sentences(sentences, column)
    model = BertFlow.fit(
        texts,
        encoder,
        pooling,
        preset,
        random_state=seed,
        show_progress_bar=progress,
        max_length=max_length,
        device=device,
    )
    saved = model.save_pretrained(output, bundle_encoder=bundle_encoder)
    if as_json:
        print_json({"saved": str(saved), "encoder": model.encoder.describe(), "training": model.training})
    else:
        training = model.training
        say(f"Read {len(texts)} sentences, {training['sentences']} of them different; fitted {model.dim} dimensions.")
        say(
            f"{training['bits_per_dim']:.3f} bits/dim after {training['steps']} steps (below zero is normal: it is a density)."
        )
        say(f"Saved to [bold]{escape(str(saved))}[/]. Next:")
        say(f"  bertflow embed {escape(sentences)} -m {escape(str(saved))} -o vectors.npy")


def embed(
    sentences: Annotated[
        str, typer.Argument(help="Text to embed: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or `-`.")
    ],
    model: ModelFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to: .npy, .parquet or .jsonl.")],
    column: Column = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length one.")] = False,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the calibrated vectors of your sentences: row i belongs to line i (a blank line has a vector too)."""
    progress = start(quiet)
    write = _writer(output)
    from bertflow.atomic import atomic_file
    from bertflow.model import BertFlow
    from bertflow.textfiles import read_sentences

    texts = read_sentences(sentences, column, keep_blank=True)
    loaded = BertFlow.from_pretrained(model, device=device)
    vectors = loaded.encode(texts, normalize_embeddings=normalize, show_progress_bar=progress)
    with atomic_file(output) as temporary:
        write(temporary, texts, vectors)
    if as_json:
        print_json({"output": str(output), "rows": len(vectors), "dim": vectors.shape[1], "normalized": normalize})
    else:
        say(f"Wrote {len(vectors)} vectors of {vectors.shape[1]} dimensions to [bold]{escape(str(output))}[/].")


def _writer(output: Path) -> Any:
    writers = {".npy": _write_npy, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if output.suffix not in writers:
        raise InputError(
            f"{output} ends in {output.suffix or 'nothing'!r}; vectors are written to {', '.join(writers)}."
        )
    if output.suffix == ".parquet":
        require("pyarrow.parquet", "parquet")
    return writers[output.suffix]


def _write_npy(path: Path, texts: list[str], vectors: Matrix) -> None:
    import numpy as np

    np.save(path, vectors)


def _write_jsonl(path: Path, texts: list[str], vectors: Matrix) -> None:
    with path.open("w", encoding="utf-8") as file:
        for text, vector in zip(texts, vectors, strict=True):
            file.write(json.dumps({"text": text, "embedding": vector.tolist()}, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, texts: list[str], vectors: Matrix) -> None:
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1])
    parquet.write_table(arrow.table({"text": texts, "embedding": column}), path)


def similarity(
    sentences: Annotated[list[str] | None, typer.Argument(help="Two sentences.", show_default=False)] = None,
    model: ModelFolder = "bertflow-demo",
    pairs: Annotated[
        Path | None, typer.Option(help="A .tsv, .csv, .jsonl or .parquet with sentence1 and sentence2.")
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show how alike two sentences are, or each pair of a file: the cosine of their calibrated vectors.

    bertflow similarity -m my-model "A man is eating." "Someone has lunch."
    """
    progress = start(quiet)
    rows = _pairs(sentences or [], pairs)
    from bertflow.arrays import cosine_of_pairs
    from bertflow.model import BertFlow

    loaded = BertFlow.from_pretrained(model, device=device)
    vectors = loaded.encode([text for row in rows for text in row], show_progress_bar=progress)
    cosines = cosine_of_pairs(vectors[::2], vectors[1::2])
    if as_json:
        print_json(
            [{"sentence1": a, "sentence2": b, "cosine": float(c)} for (a, b), c in zip(rows, cosines, strict=True)]
        )
    elif pairs is None:
        say(f"{cosines[0]:.4f}")
    else:
        table(
            None,
            ("sentence 1", "sentence 2", "cosine"),
            [(escape(a), escape(b), f"{c:.4f}") for (a, b), c in zip(rows, cosines, strict=True)],
        )


def _pairs(sentences: list[str], file: Path | None) -> list[tuple[str, str]]:
    if file is None:
        if len(sentences) != 2:
            raise InputError(
                f"Two sentences were wanted, in quotes, or --pairs FILE; got {len(sentences)} sentence(s)."
            )
        return [(sentences[0], sentences[1])]
    if sentences:
        raise InputError("Give two sentences or --pairs FILE, not both.")
    from bertflow.textfiles import listed, place, read_table

    rows = []
    for number, row in read_table(file):
        a, b = row.get("sentence1"), row.get("sentence2")
        if not isinstance(a, str) or not isinstance(b, str):
            raise InputError(
                f"{place(file, number)} has no text in the columns sentence1 and sentence2; it has: {listed(row)}."
            )
        rows.append((a, b))
    return rows


def info(
    model: Annotated[str, typer.Argument(help="A folder that `bertflow fit` wrote, or a hub id.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tell what a saved model is: encoder, pooling, calibrator, what it was fitted on."""
    start(quiet)
    from bertflow import persistence

    folder = persistence.locate(model)
    config, arrays = persistence.load(folder)
    numbers = sum(array.size for array in arrays.values())
    if as_json:
        print_json(config | {"folder": str(folder), "parameters": numbers})
        return
    rows = [("folder", str(folder)), ("written by", f"bertflow {config['bertflow_version']}")]
    for part in ("encoder", "calibrator", "training"):
        for key, value in config.get(part, {}).items():
            items = value.items() if isinstance(value, dict) else [(key, value)]
            rows += [(f"{part} {name}", str(item)) for name, item in items if item is not None]
    rows += [(f"measured on {r['dataset']}", f"{r['metric']} {r['value']:.2f}") for r in config.get("results", [])]
    rows.append(("numbers in the calibrator", f"{numbers:,}"))
    table(None, ("what", "value"), [(escape(a), escape(b)) for a, b in rows])
