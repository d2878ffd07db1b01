"""The three commands: ``python -m pretraining prepare | train | export``."""

import typer

from pretraining.export import export
from pretraining.prepare import prepare
from pretraining.train import train

app = typer.Typer(add_completion=False, no_args_is_help=True)
for command in (prepare, train, export):
    app.command()(command)

if __name__ == "__main__":
    app()
