"""The commands that compare texts with a corpus: outliers, drift."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.corpus_inputs import Corpus, Model, Showing, model_for, read_text_file
from bertflow.cli.models import Column
from bertflow.cli.output import AsJson, Device, EncoderName, PoolingName, Quiet, Seed, print_json, say, start, table
from bertflow.cli.recipes import RecipeName


def outliers(
    texts: Corpus,
    against: Annotated[
        str | None, typer.Option(help="The corpus that they are new to, or not; default: each other.")
    ] = None,
    model: Model = None,
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    recipe: RecipeName = None,
    top: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List the texts that have nothing near them: garbage, other languages, new topics and true oddities come up first.

    bertflow outliers new.txt --against corpus.txt
    """
    progress = start(quiet)
    from bertflow.corpus import find_outliers

    given = read_text_file(texts, column)
    corpus = read_text_file(against, column) if against else given
    fitted = model_for(corpus.texts, model, encoder, pooling, recipe, seed, device, progress)
    others = corpus.texts if against else None
    result = find_outliers(given.texts, fitted, against=others, top=top, random_state=seed, show_progress_bar=progress)
    if as_json:
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
            *((_figure(one.z),) if flow else ()),
            str(given.lines[one.row]),
            escape(one.text),
        )
        for one in result.entries
    ]
    titles = "", "new", "nearest", "10 nearest", *(("density z",) if flow else ()), given.place, "text"
    table(None, titles, rows, text_last=True)
    say(
        f"[dim]{result.unrelated} of {result.texts} different texts are new: nothing among {result.corpus} is nearer to them "
        f"than unrelated texts are, by chance, anyway (cosine {result.threshold:.2f}).[/]"
    )


def drift(
    old: Annotated[str, typer.Argument(help="Earlier texts: .txt, .jsonl, .csv, .tsv, .parquet.")],
    new: Annotated[str, typer.Argument(help="Later texts.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A saved model that was fitted on neither, or on both.", show_default=False),
    ] = None,
    encoder: EncoderName = "mini",
    pooling: PoolingName = None,
    recipe: RecipeName = None,
    refit: Annotated[bool, typer.Option("--refit", help="Tell what a refit would change: two more fits.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many texts and words to list.")] = 10,
    permutations: Annotated[int, typer.Option(min=1, help="Of the test.")] = 999,
    column: Column = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tell whether texts have changed: a two-sample test, how large the change is, and which texts and words tell it.

    bertflow drift last-year.txt this-year.txt
    """
    progress = start(quiet)
    from bertflow.corpus import find_drift

    before, after = read_text_file(old, column), read_text_file(new, column)
    both = [*before.texts, *after.texts]
    fitted = model_for(both, model, encoder, pooling, recipe, seed, device, progress)

    def again(side: list[str]) -> Showing:
        return model_for(side, None, encoder, pooling, recipe, seed, device, progress)

    options = {"top": top, "permutations": permutations, "random_state": seed}
    result = find_drift(before.texts, after.texts, fitted, refit=again if refit else None, **options)
    if as_json:
        found = result.to_dict()
        for side, file in (("old_texts", before), ("new_texts", after)):
            for entry in found[side]:
                entry["line"] = file.lines[entry.pop("row")]
        print_json(found)
        return
    least = " (the least there can be)" if result.p_value <= 1 / (permutations + 1) else ""
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
