"""The commands that group texts: duplicates, cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from bertflow.cli.corpus_inputs import WRITTEN, Corpus, Model, TextFile, model_for, read_text_file, write_rows
from bertflow.cli.embedding import Overwrite
from bertflow.cli.models import Column
from bertflow.cli.output import AsJson, Device, EncoderName, PoolingName, Quiet, Seed, print_json, say, start, table
from bertflow.cli.recipes import RecipeName
from bertflow.errors import InputError
from bertflow.storage.outputs import check_output_file

if TYPE_CHECKING:
    from bertflow.corpus import Duplicates, Pair

SHOWN = 10  # groups on the screen


def duplicates(
    texts: Corpus,
    against: Annotated[
        str | None,
        typer.Option(help="Other texts: which of yours have a duplicate among these, such as a training set?"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder for kept, removed and pairs, a file each.", show_default=False),
    ] = None,
    expect_false: Annotated[
        float, typer.Option(help="So many pairs of unrelated texts may be taken for duplicates.")
    ] = 1.0,
    keep: Annotated[
        Literal["first", "longest", "central"], typer.Option(help="Which text of a group stays.")
    ] = "first",
    model: Model = None,
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    recipe: RecipeName = None,
    column: Column = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find texts that are nearer to each other than unrelated texts get, and keep one of each group.

    bertflow duplicates corpus.jsonl --column text -o cleaned/

    bertflow duplicates test.txt --against train.txt
    """
    progress = start(quiet)
    from bertflow.corpus import find_duplicates

    given = read_text_file(texts, column)
    other = read_text_file(against, column) if against else None
    files = {} if output is None else {name: output / f"{name}{end}" for name, end in _names(given).items()}
    for file in files.values():
        check_output_file(file, [texts, against], overwrite=overwrite)
    both = [*given.texts, *(other.texts if other else ())]
    result = find_duplicates(
        given.texts,
        model_for(both, model, encoder, pooling, recipe, seed, device, progress),
        against=other.texts if other else None,
        expect_false=expect_false,
        keep=keep,
        random_state=seed,
        show_progress_bar=progress,
    )
    if files:
        write_rows(
            files["kept"],
            [given.rows[row] | ({"text": given.texts[row]} if given.suffix == ".txt" else {}) for row in result.kept],
        )
        write_rows(files["removed"], [_pair(pair, given, other or given) for pair in result.removed])
        write_rows(files["pairs"], [_pair(pair, given, other or given) for pair in result.pairs])
    if as_json:
        print_json(_plain(result, given, other or given))
        return
    _show_duplicates(result, given, other or given)
    if output is not None:
        say(f"Written to {escape(str(output))}: {', '.join(path.name for path in files.values())}")


def cluster(
    texts: Corpus,
    k: Annotated[
        int | None, typer.Option("--groups", "-k", help="How many groups; default: as many as are found.")
    ] = None,
    apart: Annotated[
        float,
        typer.Option(
            help="Where the number is found: groups stay apart that are as near as this share of unrelated pairs."
        ),
    ] = 0.1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Your rows with columns cluster and cluster_name: .jsonl or .csv.",
            show_default=False,
        ),
    ] = None,
    model: Model = None,
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    recipe: RecipeName = None,
    column: Column = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Put texts into groups, named by words that tell them apart and by their most central texts.

    bertflow cluster corpus.txt -o grouped.csv
    """
    progress = start(quiet)
    from bertflow.corpus import find_clusters

    if output is not None:
        if output.suffix.lower() not in WRITTEN:
            raise InputError(f"{output} is to hold rows with columns, so it ends in {' or '.join(WRITTEN)}.")
        check_output_file(output, [texts], overwrite=overwrite)
    given = read_text_file(texts, column)
    fitted = model_for(given.texts, model, encoder, pooling, recipe, seed, device, progress)
    result = find_clusters(given.texts, fitted, k=k, apart=apart, random_state=seed)
    if output is not None:
        names = [group.name for group in result.groups]
        columns = [{"cluster": label, "cluster_name": names[label]} for label in result.labels]
        write_rows(output, [row | added for row, added in zip(given.rows, columns, strict=True)])
    if as_json:
        found = result.to_dict()
        for group in found["groups"]:
            group["central"] = [{"line": given.lines[row], "text": given.texts[row]} for row in group["central"]]
        print_json(found)
        return
    rows = [
        (
            str(one.number),
            str(one.size),
            escape(", ".join(one.words)),
            escape("\n".join(given.texts[row] for row in one.central)),
        )
        for one in result.groups
    ]
    table(None, ("", "texts", "telling words", "central texts"), rows, text_last=True)
    say(f"[dim]{len(given.texts)} texts in {len(rows)} groups{', their number found' if result.found else ''}.[/]")


def _names(given: TextFile) -> dict[str, str]:
    return {"kept": given.suffix, "removed": ".jsonl", "pairs": ".jsonl"}


def _pair(pair: Pair, given: TextFile, other: TextFile) -> dict[str, Any]:
    return {
        "line": given.lines[pair.first],
        "of_line": other.lines[pair.second],
        "cosine": round(pair.cosine, 4),
        "expected_false": float(f"{pair.expected_false:.3g}"),
        "text": given.texts[pair.first],
        "of_text": other.texts[pair.second],
    }


def _plain(result: Duplicates, given: TextFile, other: TextFile) -> dict[str, Any]:
    pairs = {
        name: [_pair(pair, given, other) for pair in getattr(result, name)]
        for name in ("removed", "pairs", "borderline")
    }
    return {
        "texts": result.texts,
        "threshold": result.threshold,
        "expect_false": result.expect_false,
        "kept": [given.lines[row] for row in result.kept],
        "groups": [[given.lines[row] for row in group] for group in result.groups],
        **pairs,
    }


def _show_duplicates(result: Duplicates, given: TextFile, other: TextFile) -> None:
    for group in sorted(result.groups, key=len, reverse=True)[:SHOWN]:
        say(f"[bold]{len(group)} texts[/]  {escape(given.texts[group[0]])}")
        for row in group[1:4]:
            say(f"          {escape(given.texts[row])}")
    if result.borderline:
        rows = [
            (
                f"{pair.cosine:.3f}",
                f"{pair.expected_false:.2g}",
                escape(f"{given.texts[pair.first]}\n{other.texts[pair.second]}"),
            )
            for pair in result.borderline
        ]
        table("\nOn the border", ("cosine", "false as near", "pair"), rows, text_last=True)
    what = "have a duplicate there" if other is not given else "are duplicates of a kept one"
    say(
        f"{len(result.removed)} of {result.texts} texts {what}: a cosine of {result.threshold:.3f} or more, which "
        f"{result.expect_false:g} pair(s) of unrelated texts are expected to reach."
    )
