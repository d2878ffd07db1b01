"""The `bertflow` command: what all its subcommands share, and where they are gathered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertflow.cli import analysis, corpus, evaluation, grouping, models
from bertflow.cli.advice import advise
from bertflow.cli.configuring import take_config
from bertflow.cli.doctor import doctor
from bertflow.cli.embedding import embed, transform
from bertflow.cli.export import export
from bertflow.cli.failures import Group, run
from bertflow.cli.finetuning import finetune_nli
from bertflow.cli.fitting import fit
from bertflow.cli.hub import push
from bertflow.cli.index import index
from bertflow.cli.mteb import mteb
from bertflow.cli.ray import ray
from bertflow.cli.recipes import show_recipes
from bertflow.cli.report import report
from bertflow.cli.reproduce import reproduce
from bertflow.cli.serve import serve
from bertflow.version import __version__

app = typer.Typer(
    name="bertflow",
    cls=Group,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `bertflow demo`. Every command takes `--json` for machines and `--quiet` for scripts.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bertflow {__version__}")
        raise typer.Exit


@app.callback()
def bertflow(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(callback=take_config, is_eager=True, help="YAML with options of any verb: `fit: {recipe: flow}`."),
    ] = None,
) -> None:
    """Turn any pretrained language model into a better sentence encoder, without labels.

    Sentence vectors of a **frozen** model are *calibrated*: a map that is fitted on unlabelled sentences evens out their space,
    so that cosine tells similar from dissimilar sentences better. `bertflow recipes` lists the maps; `flow` is the paper's.
    """


for command in (models.demo, fit, embed, transform, models.similarity, models.info):
    app.command()(command)
app.command("recipes")(show_recipes)
app.command()(doctor)
for judge in (advise, evaluation.evaluate, evaluation.compare):
    app.command(rich_help_panel="Does it help?")(judge)
app.command(rich_help_panel="Does it help?")(reproduce)
app.command(rich_help_panel="Does it help?")(finetune_nli)
app.add_typer(evaluation.data, name="data", rich_help_panel="Does it help?")
for look in (analysis.analyze, report):
    app.command(rich_help_panel="See the space")(look)
for verb in (grouping.duplicates, grouping.cluster, corpus.outliers, corpus.drift):
    app.command(rich_help_panel="What many texts tell")(verb)
app.command(rich_help_panel="Use it elsewhere")(mteb)
app.add_typer(index, name="index", rich_help_panel="Use it elsewhere")
app.command(rich_help_panel="Use it elsewhere")(serve)
app.command(rich_help_panel="Use it elsewhere")(push)
app.add_typer(export, name="export", rich_help_panel="Use it elsewhere")
app.add_typer(ray, name="ray", rich_help_panel="Use it elsewhere")


def main() -> None:
    """Run the command line; whatever goes wrong becomes one sentence and an exit code."""
    run(app)


if __name__ == "__main__":
    main()
