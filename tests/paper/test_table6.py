import numpy as np
import pytest

from bertflow import Encoder
from bertflow.errors import InputError
from bertflow.evaluation import PairSet, PairTask
from bertflow.paper import table6

pytest.importorskip("rapidfuzz", reason="edit distance needs the extra 'evaluation'")


@pytest.fixture
def task(monkeypatch, tmp_path, sentences):
    """Fifty made-up pairs in place of STS-B dev, gold falling with the difference in length."""
    monkeypatch.setenv("BERTFLOW_CACHE", str(tmp_path / "cache"))
    first, second = sentences[:50], sentences[50:100]
    gold = np.array([-abs(len(a) - len(b)) for a, b in zip(first, second, strict=True)], dtype=float)
    made = PairTask("STS-B", "spearman", {"all": PairSet(first, second, gold)}, sentences)
    monkeypatch.setattr(table6, "load_pairs", lambda name, data, split: made)
    return made


@pytest.fixture
def tiny_encoder(tiny_bert):
    return Encoder(tiny_bert, device="cpu")


def test_the_table_has_its_six_cells(task, tiny_encoder):
    table = table6.run(tiny_encoder)
    assert [row.paper for row in table.rows] == [(-24.61, None), (-50.49, 59.30), (-28.01, 74.09)]
    assert [[value is None for value in row.ours] for row in table.rows] == [[False, True], [False] * 2, [False] * 2]
    assert all(-100 <= value <= 100 for row in table.rows for value in row.ours if value is not None)
    assert table.settings["pooling"] == "first-last-avg"
    assert table.settings["flow fitted on"] == f"{len(task.fit_sentences)} sentences"


def test_seeds_decide_and_vectors_are_cached(task, tiny_encoder, monkeypatch):
    first = table6.measure(tiny_encoder)
    monkeypatch.setattr(Encoder, "encode", None)  # a second run must not need it
    again, other = table6.measure(tiny_encoder), table6.measure(tiny_encoder, seed=1)
    np.testing.assert_array_equal(first.flow, again.flow)
    np.testing.assert_array_equal(first.raw, other.raw)
    assert not np.array_equal(first.flow, other.flow)


def test_units(task, tiny_encoder):
    pairs = task.subsets["all"]
    found = {unit: table6._distances(pairs.sentences1, pairs.sentences2, unit, tiny_encoder) for unit in table6.UNITS}
    np.testing.assert_array_equal(found["words"], found["wordpieces"])  # the tiny model knows these words whole
    assert (found["characters"] >= found["words"]).all()
    with pytest.raises(InputError, match="no unit 'letters'"):
        table6.measure(tiny_encoder, unit="letters")


def test_wordpieces_need_a_tokenizer():
    class Averages:
        name, dim, fingerprint = "averages", 3, "x"

    with pytest.raises(InputError, match="Averages has no tokenizer"):
        table6._distances(["a"], ["b"], "wordpieces", Averages())


def test_the_reading_follows_the_figures():
    assert "nearer to people's" in table6._reading(-24.5, -50.1, -37.3)
    assert "no nearer" in table6._reading(-24.5, -30.0, -50.0)
