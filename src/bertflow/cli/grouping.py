"""The commands that group texts: duplicates, cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from bertflow.cli.corpus_inputs import WRITTEN, Corpus, TextFile, model_for, read_text_file, write_rows
from bertflow.cli.embedding import Overwrite
from bertflow.cli.option_groups import ModelOptions, grouped
from bertflow.cli.output import print_json, say, start, table
from bertflow.errors import InputError
from bertflow.storage.outputs import check_output_file

if TYPE_CHECKING:
    from bertflow.corpus import Duplicates, Pair

SHOWN = 10  # groups on the screen
NEARLY_EQUAL = 0.999


@grouped
def duplicates(
    texts: Corpus,
    *,
    against: Annotated[
        str | None,
        typer.Option(help="Look for duplicates of your texts in this other file, such as a training set."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for three files: kept, removed and pairs.", show_default=False),
    ] = None,
    expect_false: Annotated[
        float, typer.Option(help="How many pairs of unrelated texts may be taken for duplicates by mistake.")
    ] = 1.0,
    keep: Annotated[
        Literal["first", "longest", "central"], typer.Option(help="Which text of a group is kept.")
    ] = "first",
    overwrite: Overwrite = False,
    asked: ModelOptions,
) -> None:
    """Find texts that are nearer to each other than unrelated texts are, and keep one of each group.

    The default recipe is `static`, for speed, and because duplicates share words.

    bertflow duplicates corpus.jsonl --column text -o cleaned/

    bertflow duplicates test.txt --against train.txt
    """
    progress = start(asked.quiet)
    from bertflow.corpus import find_duplicates

    given = read_text_file(texts, asked.column)
    other = read_text_file(against, asked.column) if against else None
    files = {} if output is None else {name: output / f"{name}{end}" for name, end in _names(given).items()}
    for file in files.values():
        check_output_file(file, [texts, against], overwrite=overwrite)
    both = [*given.texts, *(other.texts if other else ())]
    if not (asked.model or asked.recipe or asked.pooling):
        asked = replace(asked, recipe="static")
    result = find_duplicates(
        given.texts,
        model_for(both, asked, progress),
        against=other.texts if other else None,
        expect_false=expect_false,
        keep=keep,
        random_state=asked.seed,
        show_progress_bar=progress,
    )
    if files:
        write_rows(
            files["kept"],
            [given.rows[row] | ({"text": given.texts[row]} if given.suffix == ".txt" else {}) for row in result.kept],
        )
        write_rows(files["removed"], [_pair(pair, given, other or given) for pair in result.removed])
        write_rows(files["pairs"], [_pair(pair, given, other or given) for pair in result.pairs])
    if asked.as_json:
        print_json(_plain(result, given, other or given))
        return
    _show_duplicates(result, given, other or given)
    if output is not None:
        say(f"Written to {escape(str(output))}: {', '.join(path.name for path in files.values())}")


@grouped
def cluster(
    texts: Corpus,
    *,
    k: Annotated[
        int | None,
        typer.Option("--groups", "-k", help="How many groups; by default the number is found from the texts."),
    ] = None,
    apart: Annotated[
        float,
        typer.Option(
            help="Without --groups: two groups stay apart where this share of unrelated pairs is as near as they are."
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
    overwrite: Overwrite = False,
    asked: ModelOptions,
) -> None:
    """Put texts into groups, and name each group by its typical words and its most central texts.

    bertflow cluster corpus.txt -o grouped.csv
    """
    progress = start(asked.quiet)
    from bertflow.corpus import find_clusters

    if output is not None:
        if output.suffix.lower() not in WRITTEN:
            raise InputError(f"{output} will hold rows with columns, so its name must end in {' or '.join(WRITTEN)}.")
        check_output_file(output, [texts], overwrite=overwrite)
    given = read_text_file(texts, asked.column)
    fitted = model_for(given.texts, asked, progress)
    result = find_clusters(given.texts, fitted, k=k, apart=apart, random_state=asked.seed)
    if output is not None:
        names = [group.name for group in result.groups]
        columns = [{"cluster": label, "cluster_name": names[label]} for label in result.labels]
        write_rows(output, [row | added for row, added in zip(given.rows, columns, strict=True)])
    if asked.as_json:
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
    say(
        f"[dim]{len(given.texts)} texts in {len(rows)} groups{', a number found from the texts' if result.found else ''}.[/]"
    )


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
    if result.threshold > NEARLY_EQUAL:
        say(
            "Unrelated texts of this corpus come so near each other that hardly more than equal vectors count: allow more with "
            "--expect-false, or try another recipe."
        )
    what = "have a duplicate there" if other is not given else "are duplicates of a kept one"
    say(
        f"{len(result.removed)} of {result.texts} texts {what}: a cosine of {result.threshold:.3f} or more, which "
        f"{result.expect_false:g} pair(s) of unrelated texts are expected to reach."
    )
