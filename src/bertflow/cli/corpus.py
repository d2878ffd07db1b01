"""The commands that compare texts with a corpus: outliers, drift."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.markup import escape

from bertflow.cli.corpus_inputs import Corpus, Showing, model_for, read_text_file
from bertflow.cli.option_groups import ModelOptions, grouped
from bertflow.cli.output import print_json, say, start, table


@grouped
def outliers(
    texts: Corpus,
    *,
    against: Annotated[
        str | None, typer.Option(help="The corpus to compare with; default: the texts are compared with each other.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    asked: ModelOptions,
) -> None:
    """List the texts that have nothing near them, such as garbage, other languages, new topics and odd texts.

    bertflow outliers new.txt --against corpus.txt
    """
    progress = start(asked.quiet)
    from bertflow.corpus import find_outliers

    given = read_text_file(texts, asked.column)
    corpus = read_text_file(against, asked.column) if against else given
    fitted = model_for(corpus.texts, asked, progress)
    others = corpus.texts if against else None
    options: dict[str, Any] = {"top": top, "random_state": asked.seed, "show_progress_bar": progress}
    result = find_outliers(given.texts, fitted, against=others, **options)
    if asked.as_json:
        found = result.to_dict()
        for entry in found["entries"]:
            entry["line"], entry["nearest_line"] = given.lines[entry.pop("row")], corpus.lines[entry.pop("nearest")]
        print_json(found)
        return
    flow = any(one.z is not None for one in result.entries)
    rows = [
        (
            str(one.rank),
            "yes" if one.unrelated else "",
            f"{one.nearest_cosine:.2f}",
            f"{one.cosine:.2f}",
            one.why,
            *((_figure(one.z),) if flow else ()),
            str(given.lines[one.row]),
            escape(one.text),
        )
        for one in result.entries
    ]
    titles = "", "new", "nearest", "10 nearest", "far by", *(("density z",) if flow else ()), given.place, "text"
    table(None, titles, rows, text_last=True)
    say(
        f"[dim]{result.unrelated} of {result.texts} different texts are new: no text among {result.corpus} is nearer to them "
        f"than unrelated texts are by chance (cosine {result.threshold:.2f}).[/]"
    )


@grouped
def drift(
    old: Annotated[str, typer.Argument(help="Earlier texts: .txt, .jsonl, .csv, .tsv, .parquet.")],
    new: Annotated[str, typer.Argument(help="Later texts.")],
    *,
    refit: Annotated[
        bool, typer.Option("--refit", help="Show what a refit on the later texts would change; it fits twice more.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="How many texts and words to list.")] = 10,
    permutations: Annotated[int, typer.Option(min=1, help="How many permutations the test makes.")] = 999,
    asked: ModelOptions,
) -> None:
    """Test whether texts have changed, and show how large the change is and which texts and words show it.

        bertflow drift last-year.txt this-year.txt

    A saved model that you give should be fitted on neither file, or on both.
    """
    progress = start(asked.quiet)
    from bertflow.corpus import find_drift

    before, after = read_text_file(old, asked.column), read_text_file(new, asked.column)
    fitted = model_for([*before.texts, *after.texts], asked, progress)

    def again(side: list[str]) -> Showing:
        return model_for(side, replace(asked, model=None), progress)

    options = {"top": top, "permutations": permutations, "random_state": asked.seed}
    result = find_drift(before.texts, after.texts, fitted, refit=again if refit else None, **options)
    if asked.as_json:
        found = result.to_dict()
        for side, file in (("old_texts", before), ("new_texts", after)):
            for entry in found[side]:
                entry["line"] = file.lines[entry.pop("row")]
        print_json(found)
        return
    least = " (the smallest possible)" if result.p_value <= 1 / (permutations + 1) else ""
    say(
        f"p = {result.p_value:.3g}{least}, size of the change {100 * result.effect:.1f} % ({result.old} and {result.new} texts)"
    )
    for title, typical, words in (
        ("Only the old ones", result.old_texts, result.old_words),
        ("Only the new ones", result.new_texts, result.new_words),
    ):
        say(f"\n[bold]{title}[/]: {escape(', '.join(word for word, _ in words)) or 'no word stands out'}")
        table(None, ("lean", "text"), [(f"{one.lean:.3f}", escape(one.text)) for one in typical], text_last=True)
    if result.refit:
        kept, cosines = 100 * result.refit.neighbours_kept, result.refit.cosines
        say(
            f"\nA refit on the new texts would keep {kept:.0f} % of their nearest neighbours (cosines correlate {cosines:.2f})."
        )


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
