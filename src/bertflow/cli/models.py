"""The commands around one model: demo, similarity, info."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Device, Quiet, Seed, print_json, say, start, table
from bertflow.errors import InputError

if TYPE_CHECKING:
    from bertflow.report.demo import DemoResult

ModelFolder = Annotated[
    str,
    typer.Option("--model", "-m", help="A folder that `bertflow fit` wrote, `mini-flow` (ships inside), or a hub id."),
]
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
    from bertflow.report.demo import run_demo

    result = run_demo(output, random_state=seed, show_progress_bar=progress)
    if as_json:
        print_json(result.to_dict())
    else:
        _show_demo(result)


def _show_demo(result: DemoResult) -> None:
    say(f"\nTwo recipes were fitted on {result.sentences} unlabelled sentences; the encoder stayed frozen.\n")
    kinds = {"raw": "raw", "flow": "flow", "best": "best"}
    scores = result.search
    table(
        f"Search: {scores['raw'].queries} sentences, each to find another that says nearly the same among "
        f"{scores['raw'].documents}",
        ("vectors", "found first", "in the first ten", "mean 1 / rank"),
        [
            (title, *(f"{v:.1f} %" for v in (scores[k].first, scores[k].ten, scores[k].mrr)))
            for k, title in kinds.items()
        ],
    )
    say()
    table(
        "Grades: Spearman ×100 with those of the shipped pairs",
        ("pairs", "n", *kinds.values()),
        [(c.name, str(c.pairs), f"{c.raw:.1f}", f"{c.flow:.1f}", f"{c.best:.1f}") for c in result.spearman],
    )
    cosine = result.random_cosine
    say(f"\n[bold]Mean cosine of two random sentences[/]: raw {cosine.raw:.2f}, flow {cosine.flow:.2f}\n")
    for found in result.nearest:
        rows = [(kind, f"{value:.2f}", escape(text)) for kind in kinds for text, value in getattr(found, kind)]
        table(f"Nearest to “{escape(found.query)}”", ("", "cosine", "sentence"), rows, text_last=True)
        say()
    for name, judged in result.judgements.items():
        say(f"[bold]By {name}[/]: {escape(judged.headline)} {escape(judged.paragraph)}")
    say(f"\nSee the space before and after, in a browser: [bold]{escape(result.report)}[/]")
    program = "bertflow" if shutil.which("bertflow") else sys.argv[0]  # in a venv that is not activated
    say(f"\nSaved to [bold]{escape(result.saved)}[/]. Next:")
    say(f'  {program} similarity -m {escape(result.saved)} "A man is eating." "Someone has lunch."')
    say(f"  {program} fit your-sentences.txt --output your-model")
    say(f"  {program} advise your-sentences.txt    # is it worth it on your text?")
    say(f"  {program} compare --pairs your-pairs.tsv")


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
    from bertflow.storage.text_files import listed, place, read_table

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
    model: Annotated[
        str, typer.Argument(help="A folder that `bertflow fit` wrote, `mini-flow`, a hub id, or a folder of shards.")
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Compare all checksums of a folder of shards.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tell what a saved model is: encoder, pooling, calibrator, what it was fitted on; or what shards hold."""
    start(quiet)
    if (Path(model) / "manifest.json").is_file():
        _show_shards(model, verify, as_json)
        return
    from bertflow.runtime.light import choose_runtime
    from bertflow.storage import model_folder

    folder = model_folder.locate(model)
    config, arrays = model_folder.load(folder)
    light = choose_runtime(folder, config, arrays, device=None, runtime=None)
    runtime = light.runtime if light else "torch"
    numbers = sum(array.size for array in arrays.values())
    if as_json:
        print_json(config | {"folder": str(folder), "parameters": numbers, "runtime": runtime})
        return
    rows = [("folder", str(folder)), ("written by", f"bertflow {config['bertflow_version']}")]
    rows += [("recipe", config.get("recipe") or "of its own"), ("runs in", runtime)]
    parts = {f"part {i} {what}": part[what] for i, part in enumerate(config.get("parts", ()), 1) for what in part}
    known = (
        {name: config.get(name) for name in ("encoder", "calibrator")} | parts | {"training": config.get("training")}
    )
    for name, content in known.items():
        rows += _described(name, content) if isinstance(content, dict) else [(name, str(content))] if content else []
    rows += [(f"measured on {r['dataset']}", f"{r['metric']} {r['value']}") for r in config.get("results", [])]
    rows.append(("numbers in the calibrators", f"{numbers:,}"))
    table(None, ("what", "value"), [(escape(a), escape(b)) for a, b in rows])


def _show_shards(folder: str, verify: bool, as_json: bool) -> None:
    from bertflow.storage.shards import Shards

    shards = Shards(folder)
    if verify:
        shards.verify()
    content = asdict(shards.manifest) | {"folder": folder, "shards": len(shards.records), "verified": verify}
    if as_json:
        print_json(content)
        return
    rows: list[tuple[str, str]] = []
    for key, value in content.items():
        rows += _described(key, value) if isinstance(value, dict) else [(key, str(value))]
    table(None, ("what", "value"), [(escape(a), escape(b)) for a, b in rows])


def _described(part: str, content: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of a table for a part of a config, whose values may be dictionaries themselves."""
    rows: list[tuple[str, str]] = []
    for key, value in content.items():
        if isinstance(value, dict):
            rows += _described(part if key == "params" else f"{part} {key}", value)
        elif value is not None:
            rows.append((f"{part} {key}", str(value)))
    return rows
