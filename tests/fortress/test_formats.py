"""Damaged files of every format: an equal result or a clean error. FORTRESS_CASES sets how many cases each format gets."""

import os
from collections import Counter

import pytest

from .arena import attack, is_good
from .formats import FORMATS

CASES = int(os.environ.get("FORTRESS_CASES", "12"))
FIRST = int(os.environ.get("FORTRESS_FIRST", "0"))  # seed, to look at one case alone


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_damaged_files_are_refused_or_give_an_equal_result(tmp_path, tiny_bert, form, record_property):
    if not form.there():
        pytest.skip(f"needs {', '.join(form.needs)}")
    (tmp_path / "template").mkdir()
    form.make(tmp_path / "template", tiny_bert)
    cases = list(attack(form, tmp_path / "template", tmp_path / "room", range(FIRST, FIRST + CASES)))
    record_property("fortress", dict(Counter(verdict.kind for *_, verdict in cases)))  # xdist sends plain values alone
    bad = [
        f"seed {seed}: {done}\n  {verdict.kind}: {verdict.detail}"
        for seed, done, verdict in cases
        if not is_good(form, verdict)
    ]
    assert not bad, f"{len(bad)} of {CASES} cases of {form.name} fell:\n" + "\n".join(bad)
