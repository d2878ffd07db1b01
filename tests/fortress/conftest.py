"""The sum of all cases, at the end of a run."""

from collections import Counter
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def imports(mini: Any) -> None:
    """Import what commands and readers need, so that their forked processes find it there."""
    import scipy.stats  # noqa: F401
    import sklearn.covariance  # noqa: F401
    import transformers.models.bert.modeling_bert  # noqa: F401

    import bertflow.cli.app  # noqa: F401
    from bertflow import BertFlow

    BertFlow.from_pretrained("mini-flow", device="cpu").encode(["One sentence."])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many cases there were, and what came of them."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    counts = [Counter(value) for report in reports for name, value in report.user_properties if name == "fortress"]
    if counts:
        total = sum(counts, Counter())
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(total.items()))
        terminalreporter.write_line(f"Fortress: {sum(total.values())} cases of {len(counts)} formats: {kinds}.")
    kills = [value for report in reports for name, value in report.user_properties if name == "kills"]
    if kills:
        terminalreporter.write_line(f"Fortress: {sum(kills)} kills of {len(kills)} verbs.")
