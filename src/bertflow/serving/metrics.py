"""What the service counts of itself, as Prometheus reads it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from bertflow.serving.batching import BatchDone

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one service; several in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter("bertflow_requests", "Requests answered.", ("path", "status"), registry=self.registry)
        self._seconds = Histogram(
            "bertflow_request_seconds", "From request to answer.", ("path",), buckets=SECONDS, registry=self.registry
        )
        self._texts = Counter("bertflow_texts", "Texts computed.", ("model",), registry=self.registry)
        self._tokens = Counter("bertflow_tokens", "Their tokens.", ("model",), registry=self.registry)
        self._batch = Histogram(
            "bertflow_batch_texts", "Texts of a batch.", ("model",), buckets=TEXTS, registry=self.registry
        )
        self._compute = Histogram(
            "bertflow_batch_seconds", "To compute a batch.", ("model",), buckets=SECONDS, registry=self.registry
        )
        self._waiting = Gauge("bertflow_waiting_texts", "Texts in the queue.", ("model",), registry=self.registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request; ``path`` is the route, not what the client wrote."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, model: str, done: BatchDone, waiting: int) -> None:
        """Count a computed batch."""
        self._texts.labels(model).inc(done.texts)
        self._tokens.labels(model).inc(done.tokens)
        self._batch.labels(model).observe(done.texts)
        self._compute.labels(model).observe(done.seconds)
        self._waiting.labels(model).set(waiting)

    def text(self) -> bytes:
        """Return all of them in Prometheus's text format."""
        return generate_latest(self.registry)
