"""Fitting by several processes gives what one process gives."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from bertflow import Calibrator, FlowCalibrator, InputError, RemoveTopComponents, Standardize, Whitening
from bertflow.moments import Moments
from bertflow.scale import torchrun as distributed


class Threads:
    """A group of threads as a ``Reducer``: what torch.distributed does, quick enough for many cases."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.barrier, self.sent = threading.Barrier(world_size, timeout=60), [None] * world_size

    def run(self, function):
        """Call ``function(reducer)`` in each thread; return what each returned."""

        def call(rank):
            try:
                return function(Member(rank, self))
            except BaseException:
                self.barrier.abort()  # or the others would wait
                raise

        with ThreadPoolExecutor(self.world_size) as pool:
            done = [pool.submit(call, rank) for rank in range(self.world_size)]
        errors = [future.exception() for future in done if future.exception()]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in done]


class Member:
    def __init__(self, rank, group):
        self.rank, self.group, self.world_size = rank, group, group.world_size

    def sum(self, tensor):
        self.group.sent[self.rank] = tensor.clone()
        self.group.barrier.wait()
        total = sum(self.group.sent[1:], self.group.sent[0].clone())
        self.group.barrier.wait()
        return total


@pytest.fixture
def vectors():
    """In float64, where rounding does not hide a row that was left out."""
    rng = np.random.default_rng(0)
    return rng.standard_t(5, size=(700, 12)) @ rng.normal(size=(12, 12)) + 3


def states(calibrator):
    return calibrator.get_state()[1]


@pytest.mark.parametrize(
    ("settings", "world_size"),
    [
        ({}, 2),  # the default: held-out rows, several batches
        ({"preset": "paper", "epochs": 0.5}, 3),  # batches of 32 on three, nothing held out
        ({"batch_size": 2, "epochs": 0.2}, 3),  # batches smaller than the group
        ({"coupling": "affine", "permutation": "random"}, 2),  # gradients by autograd
    ],
)
def test_a_flow_of_many_is_that_of_one(vectors, settings, world_size):
    def make():
        return FlowCalibrator(levels=2, depth=2, random_state=1, device="cpu", **settings)

    alone = make().fit(vectors)
    group = Threads(world_size).run(lambda reducer: distributed.fit(vectors, make(), reducer))
    for fitted in group:
        np.testing.assert_allclose(fitted.history_.losses, alone.history_.losses, atol=1e-8)
        assert fitted.history_.best_step == alone.history_.best_step
        for name, value in states(alone).items():
            np.testing.assert_allclose(states(fitted)[name], value, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(group[0].transform(vectors), alone.transform(vectors), atol=1e-6)
    for name, value in states(group[0]).items():
        assert all(np.array_equal(states(fitted)[name], value) for fitted in group), name


def test_a_dimension_that_does_not_vary_keeps_all_in_step(vectors):
    """It is trained with noise, of which every process must draw the same."""
    vectors[:, 4] = 2.5
    settings = {"levels": 2, "depth": 1, "random_state": 0, "device": "cpu"}
    alone = FlowCalibrator(**settings).fit(vectors)
    for fitted in Threads(3).run(lambda reducer: distributed.fit(vectors, FlowCalibrator(**settings), reducer)):
        assert fitted.history_.flat_dimensions == [4]
        for name, value in states(alone).items():
            np.testing.assert_allclose(states(fitted)[name], value, atol=1e-8, err_msg=name)


def test_actnorm_statistics_are_those_of_all_rows(vectors):
    from bertflow.flows import Glow, GlowConfig

    x = torch.from_numpy(vectors)
    alone = Glow(GlowConfig(12)).double()
    alone.initialize(x)
    parts = (x[:5], x[5:5], x[5:])  # uneven, and one has no row

    def initialize(reducer):
        flow = Glow(GlowConfig(12)).double()
        flow.initialize(parts[reducer.rank], reducer)
        return flow

    for flow in Threads(3).run(initialize):
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(flow.state_dict()[name], value, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_in_float32_the_number_of_processes_makes_no_difference(vectors, preset):
    rng = np.random.default_rng(1)
    x = (vectors @ rng.normal(size=(12, 64)) + rng.normal(size=(len(vectors), 64))).astype(np.float32)

    def make():
        return FlowCalibrator(preset=preset, epochs=10, random_state=1, device="cpu")

    exact = make().fit(x.astype(np.float64)).transform(x)
    for world_size in (1, 2, 3):
        for fitted in Threads(world_size).run(lambda reducer: distributed.fit(x, make(), reducer)):
            assert fitted.flow_.levels[0][0].actnorm.loc.dtype == torch.float32
            np.testing.assert_allclose(fitted.transform(x), exact, atol=2e-5)


@pytest.mark.parametrize("calibrator", [Whitening(), Whitening(5), Standardize(), RemoveTopComponents(2)], ids=repr)
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_affine_calibrators_are_exact(vectors, calibrator, world_size):
    from sklearn.base import clone

    alone = clone(calibrator).fit(vectors)
    for fitted in Threads(world_size).run(lambda reducer: distributed.fit(vectors, clone(calibrator), reducer)):
        for name, value in states(alone).items():
            np.testing.assert_allclose(states(fitted)[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


def test_moments_far_from_zero_and_processes_without_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal((1e8, 0, -1e8), 1, size=(301, 3))
    alone = Moments().add(rows)
    parts = (rows[:1], rows[:0], rows[1:200], rows[200:])
    for total in Threads(4).run(
        lambda reducer: distributed.sum_moments(Moments().add(parts[reducer.rank]), 3, reducer)
    ):
        assert total.count == 301
        np.testing.assert_allclose(total.mean, alone.mean, rtol=1e-13)
        np.testing.assert_allclose(total.covariance(), alone.covariance(), rtol=1e-6, atol=1e-6)
    assert Threads(2).run(lambda reducer: distributed.sum_moments(Moments(), 3, reducer))[0].count == 0


def test_processes_that_see_different_vectors_are_told(vectors):
    with pytest.raises(InputError, match=r"do not see the same vectors: process . has (700|699) rows of 12"):
        Threads(2).run(lambda reducer: distributed.fit(vectors[: 700 - reducer.rank], Whitening(), reducer))


def torchrun(*args):
    """Start two real processes, as a user does; gloo joins them."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "bertflow.scale.torchrun"]
    done = subprocess.run(
        [sys.executable, *launch, *map(str, args)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_torchrun_fits_on_a_file(vectors, tmp_path):
    np.save(tmp_path / "x.npy", vectors)
    shown = torchrun(tmp_path / "x.npy", "--output", tmp_path / "flow", "--device", "cpu", "--seed", 3).stderr
    assert shown.count("2 processes fitted flow on 700 vectors") == 1  # said, and saved, by the first
    alone = FlowCalibrator(random_state=3, device="cpu").fit(vectors)
    together = states(Calibrator.from_pretrained(tmp_path / "flow"))
    for name, value in states(alone).items():
        np.testing.assert_allclose(together[name], value, atol=1e-6, err_msg=name)


def test_a_model_from_shards(sentences, tmp_path, tiny_bert):
    """And without torchrun: a group of one."""
    from bertflow import BertFlow, Encoder
    from bertflow.scale import write_shards
    from bertflow.storage.shards import Shards

    encoder = Encoder(tiny_bert, device="cpu")
    write_shards(sentences, encoder, tmp_path / "shards", shard_rows=100)
    distributed.main(tmp_path / "shards", tmp_path / "model", "whitening", device="cpu", quiet=True)
    shards = Shards(tmp_path / "shards")
    alone = Whitening().fit(shards.rows(0, len(shards)))
    model = BertFlow.from_pretrained(tmp_path / "model", device="cpu")
    assert model.encoder.fingerprint == encoder.fingerprint
    assert model.training["fitted_vectors"] == len(sentences)
    np.testing.assert_allclose(states(model.calibrator)["kernel"], states(alone)["kernel"], rtol=1e-8, atol=1e-8)


def test_a_recipe_of_several_parts_by_several_processes(sentences, tmp_path, tiny_bert, two_parts):
    from bertflow import Encoder
    from bertflow.scale import fit_shards, write_shards
    from bertflow.storage.shards import Shards

    write_shards(sentences, Encoder(tiny_bert, device="cpu"), tmp_path / "v", recipe=two_parts, shard_rows=100)
    shards = Shards(tmp_path / "v")
    alone = fit_shards(shards, two_parts)
    for model in Threads(2).run(lambda reducer: distributed.fit_recipe(shards, two_parts, reducer)):
        assert (model.recipe, model.training) == (two_parts, alone.training)
        for part, other in zip(model.parts, alone.parts, strict=True):
            assert part.scale == pytest.approx(other.scale, rel=1e-6)
            for name, value in states(other.calibrator).items():
                np.testing.assert_allclose(states(part.calibrator)[name], value, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "neither a folder of shards nor"), (np.zeros(3), "have two axes")]
)
def test_what_holds_no_vectors(content, sentence, tmp_path):
    if content is not None:
        np.save(tmp_path / "x.npy", content)
    with pytest.raises(InputError, match=sentence):
        distributed.main(tmp_path / "x.npy", tmp_path / "out")
