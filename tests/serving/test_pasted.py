"""Two texts compared, and duplicates of a pasted list."""

import numpy as np
import pytest
from starlette.testclient import TestClient

from bertflow.arrays import unit_rows
from bertflow.serving import create_app
from tests.serving.conftest import Words


def compared(client, text, other):
    answer = client.post("/v1/compare", json={"text": text, "other": other})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_two_texts_share_is_what_makes_them_alike(client):
    text, other = "the red cat sleeps", "my cat runs"
    answer = compared(client, text, other)
    words = {text[word["start"] : word["end"]]: word["effect"] for word in answer["text"]}
    assert list(words) == text.split()
    assert max(words, key=words.get) == "cat"
    vectors = unit_rows(Words().encode([text, "the red sleeps", other]))
    assert answer["cosine"] == pytest.approx(vectors[0] @ vectors[2], abs=1e-6)
    assert words["cat"] == pytest.approx(vectors[0] @ vectors[2] - vectors[1] @ vectors[2], abs=1e-6)
    assert answer["unrelated"] is None


@pytest.mark.parametrize("text", ["cat", "!!!", "我爱猫", " a\n\tb ", "word " * 200])
def test_any_two_texts_can_be_compared(client, text):
    answer = compared(client, text, text)
    assert answer["cosine"] == pytest.approx(1, abs=1e-6)
    assert all(text[word["start"] : word["end"]].strip() for word in answer["text"])
    assert len(answer["text"]) <= 64
    assert [word["effect"] for word in answer["text"]] == pytest.approx(
        [w["effect"] for w in answer["other"]], abs=1e-6
    )


def test_texts_of_the_kind_say_how_rare_a_cosine_is():
    texts = [f"{a} {b}" for a in "abcdefghij" for b in "klmnopqrst"]
    client = TestClient(create_app({"words": Words(dim=32)}, texts=texts))
    near, far = (compared(client, "some words", other)["unrelated"] for other in ("some words here", "something else"))
    assert near["one_in"] > far["one_in"] >= 1
    assert near["percentile"] > far["percentile"]


def duplicates(client, texts, **fields):
    answer = client.post("/v1/duplicates", json={"texts": texts, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_equal_texts_are_duplicates_at_any_threshold(client):
    texts = ["one text", "another", "one text", "a third", "another", "one text"]
    for fields in ({"threshold": 1}, {"threshold": 0.99}, {"threshold": 0.9}, {}):
        answer = duplicates(client, texts, **fields)
        assert [group["rows"] for group in answer["groups"]] == [[0, 2, 5], [1, 4]]
        assert answer["kept"] == [0, 1, 3]
    assert answer["threshold_from"] == "default"


def test_a_long_list_tells_its_own_threshold():
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(0, 1000, size=8))) for _ in range(200)]
    again = [f"{text} more" for text in texts[:20]]
    client = TestClient(create_app({"words": Words(dim=64)}))
    answer = duplicates(client, texts + again)
    assert answer["threshold_from"] == "these texts"
    found = {tuple(group["rows"]) for group in answer["groups"]}
    assert {(i, 200 + i) for i in range(20)} <= found
    assert len(found) < 25
    assert all(pair["cosine"] < 1 for pair in answer["borderline"])
    looser = duplicates(client, texts + again, expect_false=50)
    assert looser["threshold"] < answer["threshold"]


def test_equal_texts_alone_are_no_reason_to_fail():
    client = TestClient(create_app({"words": Words()}))
    answer = duplicates(client, ["same"] * 150)
    assert answer["kept"] == [0]
    assert duplicates(client, ["alone"])["groups"] == []


@pytest.mark.parametrize(
    "fields", [{"threshold": 0}, {"threshold": 1.1}, {"expect_false": 0}, {"texts": []}, {"texts": [""]}]
)
def test_bad_input_is_refused(client, fields):
    answer = client.post("/v1/duplicates", json={"texts": ["a"]} | fields)
    assert answer.status_code == 400
    assert "must be" in answer.json()["error"]["message"]
