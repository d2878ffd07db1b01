import math

import pytest

from bertflow import errors


def test_require_returns_the_module():
    assert errors.require("math", extra="nothing") is math
    assert errors.require("xml.dom", extra="nothing").__name__ == "xml.dom"


@pytest.mark.parametrize(("module", "package"), [("no_such_package", "no_such_package"), ("no_such.part", "no_such")])
def test_require_names_the_pip_line(module, package):
    with pytest.raises(errors.MissingExtraError) as caught:
        errors.require(module, extra="parquet")
    assert f"needs the package '{package}'" in str(caught.value)
    assert "pip install 'bertflow[parquet]'" in str(caught.value)


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [(errors.InputError, ValueError), (errors.ModelFolderError, OSError), (errors.MissingExtraError, ImportError)],
)
def test_errors_are_caught_as_ours_and_as_the_builtin_kind(ours, builtin):
    assert issubclass(ours, errors.BertflowError)
    assert issubclass(ours, builtin)
    assert str(ours("A full sentence.")) == "A full sentence."


def test_truncation_can_be_silenced_by_its_category():
    assert issubclass(errors.TruncationWarning, UserWarning)
