"""Options that several commands share, taken as one argument: a group is a dataclass, and each field is an option."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from bertflow.cli.output import AsJson, Device, EncoderName, PoolingName, Quiet, Seed
from bertflow.cli.recipes import RecipeName

Column = Annotated[
    str | None, typer.Option(help="Column with the text, in a .jsonl, .csv, .tsv or .parquet file.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A saved model instead of encoder and recipe.", show_default=False),
]


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The model of a command that reads texts, a saved one or a recipe fitted on the texts, and how results are shown."""

    model: Model = None
    encoder: EncoderName = "mini"
    pooling: PoolingName = None
    recipe: RecipeName = None
    column: Column = None
    seed: Seed = 0
    device: Device = None
    as_json: AsJson = False
    quiet: Quiet = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer reads it: an argument that is a group is replaced by the group's options."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in parameters if dataclasses.is_dataclass(one.annotation)
    }
    taken: list[inspect.Parameter] = []
    for one in parameters:
        taken += _options(groups[one.name]) if one.name in groups else [one.replace(kind=one.KEYWORD_ONLY)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in taken}
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in dataclasses.fields(group)
    ]
