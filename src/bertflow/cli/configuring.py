"""`bertflow --config run.yaml VERB …`: options of any verb from a file; what is typed counts more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from bertflow.errors import InputError


def take_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the options of a YAML file the defaults of the verbs, or say what in it is not an option.

    The file has a section for each verb, such as ``fit: {encoder: mini, recipe: flow}``; a verb of two words has a section
    in a section, ``index: {build: {…}}``.
    """
    if path is None:
        return None
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not YAML: {str(error).splitlines()[0]}.") from None
    context.default_map = _checked(path, context.command, content)
    return path


def _checked(path: Path, command: Any, content: Any) -> dict[str, Any]:
    """Return the content with parameters under their Python names; refuse what no verb or option is called."""
    name = command.name or "bertflow"
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: {name} wants a section of names and values, such as `fit:` and below it `encoder: mini`."
        )
    if hasattr(command, "commands"):  # a group of verbs
        unknown = [str(verb) for verb in content if verb not in command.commands]
        if unknown:
            raise InputError(
                f"{path}: there is no verb {unknown[0]!r}; there are {', '.join(sorted(command.commands))}."
            )
        return {verb: _checked(path, command.commands[verb], below) for verb, below in content.items()}
    known = {option.lstrip("-"): param.name for param in command.params for option in (*param.opts, param.name or "")}
    unknown = [str(option) for option in content if option not in known]
    if unknown:
        raise InputError(f"{path}: {name} has no option {unknown[0]!r}; see  bertflow {name} --help")
    return {str(known[option]): value for option, value in content.items()}
