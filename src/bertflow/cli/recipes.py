"""The option `--recipe`, its help from the one table, and the command that prints the table."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from bertflow.cli.output import AsJson, print_json, start, table
from bertflow.errors import InputError
from bertflow.recipes import DEFAULT, PRESETS, TABLE, check_recipe, recipes


def completed(incomplete: str) -> list[tuple[str, str]]:
    """Return the recipes whose names begin so, with their help."""
    return [(name, text) for name, text in recipes().items() if name.startswith(incomplete)]


RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        "-r",
        help=f"What to fit: {', '.join(f'`{name}`' for name in TABLE)} (K is a number); `bertflow recipes` explains each. "
        f"Default: `{DEFAULT}`. A recipe with one view can name its pooling: `whitening@cls`.",
        autocompletion=completed,
    ),
]
RemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code that comes with the encoder. Only if you have read that code; never saved.",
    ),
]


def recipe_of(recipe: str | None, calibrator: str | None = None, preset: str | None = None) -> str | None:
    """Return the recipe that the options name, checked; ``--calibrator`` and ``--preset`` are deprecated."""
    given = {"--recipe": recipe, "--calibrator": calibrator, "--preset": preset}
    said = [name for name, value in given.items() if value is not None]
    if calibrator == "flow" and preset in ("default", "paper"):  # the one pair that had a meaning
        said, calibrator = ["--preset"], None
    if len(said) > 1:
        raise InputError(f"{' and '.join(said)} say the same thing; give --recipe alone.")
    if preset is not None and preset not in PRESETS:
        raise InputError(f"Unknown preset {preset!r}; use --recipe instead: see `bertflow recipes`.")
    name = recipe or calibrator or (PRESETS[preset] if preset else None)
    if name and not recipe:
        warnings.warn(f"{said[0]} is deprecated; write  --recipe {name}", FutureWarning, stacklevel=2)
    return check_recipe(name) if name else None


def show_recipes(as_json: AsJson = False) -> None:
    """List every recipe that `--recipe` takes, with one line about each.

    bertflow recipes
    """
    start(True)
    if as_json:
        print_json(recipes())
    else:
        table(None, ("recipe", "what it is"), list(recipes().items()))
