"""Our exceptions. Each message is a full sentence: what came, what was wanted, what to do."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class BertflowError(Exception):
    """Base of everything that bertflow raises on purpose."""


class InputError(BertflowError, ValueError):
    """The caller's data or argument cannot be used."""


class ModelFolderError(BertflowError, OSError):
    """A saved model is missing, damaged, foreign or from a newer version."""


class MissingExtraError(BertflowError, ImportError):
    """An optional dependency is not installed."""


class TruncationWarning(UserWarning):
    """Some texts were longer than the encoder reads and were cut."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which pip line brings it.

    Args:
        module: The module to import, such as ``"pyarrow.parquet"``.
        extra: The extra of bertflow that installs it.

    Raises:
        MissingExtraError: When it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"This needs the package {package!r}, which is not installed: run  pip install 'bertflow[{extra}]'"
        ) from error


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'best'?)`` for a name that is nearly one of the known ones, else nothing."""
    near = difflib.get_close_matches(given, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
