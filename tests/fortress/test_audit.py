"""The audit of the pinned packages does not take silence for a clean bill."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("audit", Path(__file__).parents[2] / "results" / "audit.py")
audit = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(audit)

SOUND = {"name": "numpy", "version": "2.4.1", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited"}
FAULTY = {"name": "yaml", "version": "1", "vulns": [{"id": "CVE-2020-1747"}]}


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ([SOUND], 0, "1 packages were looked up; none has a known fault"),
        ([SOUND, SKIPPED], audit.FAILED, "skipped, so nothing is known of them: torch"),
        ([SOUND, FAULTY], audit.FAILED, "CVE-2020-1747"),
        ([SKIPPED], audit.OUT_OF_REACH, "nothing was recorded"),
        ([], audit.OUT_OF_REACH, "nothing was recorded"),
    ],
)
def test_a_skipped_package_is_a_failure(rows, code, said):
    found, sentence = audit.judge({"dependencies": rows})
    assert found == code
    assert said in sentence


def test_no_answer_is_no_clean_bill(monkeypatch):
    monkeypatch.setattr(audit.sys, "executable", "/bin/false")
    assert audit.look_up([]) is None
    assert audit.judge(None)[0] == audit.OUT_OF_REACH


def test_every_pinned_package_has_a_licence_line():
    packages = audit.pinned()
    assert len(packages) > 50
    assert set(audit.licences(packages)) == {one.name for one in packages}
