"""The command that shares a saved model: push."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bertflow.cli.output import AsJson, Quiet, print_json, say, start


def push(
    model: Annotated[Path, typer.Argument(help="A folder that `bertflow fit` wrote.")],
    repo_id: Annotated[str, typer.Argument(help="Where to on the Hugging Face hub: `you/my-model`.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    message: Annotated[
        str | None, typer.Option("--message", help="Commit message; default: the version of bertflow.")
    ] = None,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Open a pull request instead of committing.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Share a saved model on the Hugging Face hub, with its model card; log in with `hf auth login` first.

    bertflow evaluate --model my-model --pairs my-pairs.tsv --save-results

    bertflow push my-model you/my-model
    """
    start(quiet)
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    from bertflow.storage.model_folder import push as push_folder

    if quiet:
        disable_progress_bars()
    url = push_folder(model, repo_id, private=private or None, commit_message=message, create_pr=create_pr)
    if as_json:
        print_json({"folder": str(model), "repo_id": repo_id, "url": url})
    else:
        say(f"Pushed to [bold]{escape(url)}[/]. Load it:  BertFlow.from_pretrained({escape(repr(repo_id))})")
