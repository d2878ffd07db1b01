"""Who may ask, what a browser is told, and what is said when something breaks."""

import logging
import threading

import pytest
from starlette.testclient import TestClient

from bertflow.serving import Keys, Limits, create_app
from bertflow.serving.running import bind, hosts_for, is_local
from tests.serving.conftest import LINES, Lines, Words, running

ASKED = {"model": "words", "input": "a"}


@pytest.fixture
def guarded(words):
    return TestClient(create_app({"words": words}, {"lines": Lines(words, LINES)}, keys=Keys(["a-secret-key"])))


@pytest.mark.parametrize("shown", [None, "Bearer wrong-key-here", "a-secret-key", "Basic a-secret-key", "Bearer ä"])
def test_without_the_key_nothing_is_told(guarded, shown, words):
    headers = {} if shown is None else {"Authorization": shown.encode("latin-1")}
    for method, path in (("POST", "/v1/embeddings"), ("POST", "/embed"), ("GET", "/v1/models"), ("GET", "/metrics"),
                         ("GET", "/v1/indexes"), ("GET", "/openapi.json"), ("GET", "/nothing")):  # fmt: skip
        answer = guarded.request(method, path, json=ASKED if method == "POST" else None, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "A key is needed" in answer.text
    assert words.batches == []


def test_with_the_key_all_is_answered(guarded):
    assert guarded.post("/v1/embeddings", json=ASKED, headers={"Authorization": "Bearer a-secret-key"}).is_success
    for path in ("/health", "/", "/page.css", "/page.js"):
        assert guarded.get(path).is_success


def test_a_page_under_another_name_cannot_reach_an_open_service(words):
    client = TestClient(create_app({"words": words}, hosts=hosts_for("127.0.0.1", has_keys=False)))
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", ""):
        assert client.post("/v1/embeddings", json=ASKED, headers={"Host": host}).status_code == 403
    for host in ("localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000"):
        assert client.post("/v1/embeddings", json=ASKED, headers={"Host": host}).is_success


def test_only_this_machine_counts_as_local():
    assert all(map(is_local, ("127.0.0.1", "localhost", "::1", "127.0.0.2")))
    assert not any(map(is_local, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
    assert hosts_for("0.0.0.0", has_keys=False) is None
    assert hosts_for("127.0.0.1", has_keys=True) is None


def test_every_answer_keeps_browsers_strict(client):
    for path in ("/", "/v1/models", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


def test_what_breaks_is_logged_and_not_shown(caplog):
    client = TestClient(create_app({"words": Words(broken="boom")}))
    with caplog.at_level(logging.ERROR):
        answer = client.post("/v1/embeddings", json={"model": "words", "input": "boom"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "a secret of the machine" in caplog.text
    assert client.post("/embed", json={"inputs": "boom"}).json()["error_type"] == "Backend"
    assert client.post("/v1/embeddings", json=ASKED).is_success


def test_a_full_queue_is_429_with_a_time(words):
    import httpx

    slow = Words(seconds=0.3)
    codes, waits = [], []
    with running(create_app({"words": slow}, limits=Limits(texts=2, queue=2))) as address:

        def ask():
            answer = httpx.post(f"{address}/v1/embeddings", json=ASKED, timeout=20)
            codes.append(answer.status_code)
            waits.append(int(answer.headers.get("Retry-After", 0)))

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(codes) == {200, 429}
    assert all(1 <= wait <= 60 for code, wait in zip(codes, waits, strict=True) if code == 429)


def test_a_port_that_is_taken_is_refused_before_any_work():
    from bertflow.errors import InputError

    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="cannot be served"):
            bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InputError, match="from 0"):
        bind("127.0.0.1", 70_000)
    with pytest.raises(InputError, match="is not known"):
        bind("no.such.host.invalid", 0)
