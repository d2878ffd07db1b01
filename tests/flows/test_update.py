import contextlib
import copy
import logging
import math

import pytest
import torch

from bertflow.flows import Glow, GlowConfig
from bertflow.flows.gradients import objective
from bertflow.flows.optimizer import Adam, FlatParameters
from bertflow.flows.update import CapturedUpdate, Update, make_update

BATCHES = torch.randn(100, 6, generator=torch.Generator().manual_seed(1)).split(32)  # the last one is smaller


def new_flow(device="cpu", **settings):
    flow = Glow(GlowConfig(6, **settings))
    flow.initialize(BATCHES[0])
    return flow.to(device)


def run(flow, kind, **settings):
    """Train on all batches; return the objective of each and the optimizer."""
    chosen = objective(flow, no_decay=("linear3.bias",))
    with chosen.parameters as parameters:
        optimizer = Adam(parameters, 0.99, 0.01, **({"bias_correction": True, "clip_norm": 1.0} | settings))
        update = kind(chosen, optimizer)
        bits = [float(update(rows.to(parameters.values), 0.01)) for rows in BATCHES]
    return bits, optimizer


class Recorded:
    """Stands in for a CUDA graph: replays by doing the step again, into the same tensor."""

    def __init__(self):
        self.replays = 0

    def replay(self):
        self.replays += 1
        self.update.bits.copy_(self.update._step())


@pytest.fixture
def graphs(monkeypatch):
    """Graph capture on a machine without CUDA: the bookkeeping is ours, the capture torch's."""
    made = []

    class Bound(CapturedUpdate):
        def __init__(self, *args):
            super().__init__(*args)
            Recorded.update = self

    def new_graph():
        made.append(Recorded())
        return made[-1]

    class Stream:
        def wait_stream(self, other):
            assert isinstance(other, Stream)

    @contextlib.contextmanager
    def within(_):
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", new_graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    for name in ("device", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, within)
    return Bound, made


@pytest.mark.parametrize("settings", [{}, {"coupling": "affine", "permutation": "linear"}], ids=["by hand", "autograd"])
def test_a_captured_run_is_the_plain_run(graphs, settings):
    kind, made = graphs
    flow = new_flow(**settings)
    captured = copy.deepcopy(flow)
    expected, _ = run(flow, Update)
    found, optimizer = run(captured, kind)
    assert found == expected
    assert optimizer.count == 4  # the warm-up is forgotten
    assert [graph.replays for graph in made] == [3]  # and the smaller batch goes the plain way
    assert all(torch.equal(a, b) for a, b in zip(captured.parameters(), flow.parameters(), strict=True))


def test_a_failed_capture_falls_back(graphs, monkeypatch, caplog):
    @contextlib.contextmanager
    def failing(_):
        raise RuntimeError("operation not permitted when stream is capturing")
        yield

    monkeypatch.setattr(torch.cuda, "graph", failing)
    caplog.set_level(logging.INFO, "bertflow.flows.update")
    flow = new_flow()
    expected, _ = run(copy.deepcopy(flow), Update)
    assert run(flow, graphs[0])[0] == expected
    assert "not permitted" in caplog.text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("settings", [{}, {"coupling": "affine", "permutation": "linear"}], ids=["by hand", "autograd"])
def test_a_run_captured_on_a_gpu_is_the_plain_run(settings):
    flow = new_flow("cuda", **settings)
    captured = copy.deepcopy(flow)
    expected, _ = run(flow, Update)
    found, _ = run(captured, make_update)
    assert found == pytest.approx(expected, abs=1e-5)
    for a, b in zip(captured.parameters(), flow.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_device_chooses():
    parameters = FlatParameters(new_flow())
    assert type(make_update(None, Adam(parameters, 0.99, 0.01, bias_correction=True, clip_norm=1.0))) is Update


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_a_batch_that_overflows_changes_nothing(bad):
    flow = new_flow()
    with FlatParameters(flow) as parameters:
        optimizer = Adam(parameters, 0.99, 0.0, bias_correction=False, clip_norm=1.0)
        before = parameters.values.clone()
        parameters.gradients.fill_(1.0)[3] = bad
        optimizer.step(0.1)
        assert torch.equal(parameters.values, before)
