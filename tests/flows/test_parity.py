"""The flow against figures of the published PyTorch port; their layout is told in the golden folder's README."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertflow.flows import PRESETS, Glow, GlowConfig, train

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BERTFLOW_DATA") or ROOT.parent / "shared" / "data")
FOLDERS = [ROOT / "tests" / "golden", ROOT.parent / "shared" / "golden", DATA.parent / "golden"]


@pytest.fixture(scope="module", params=[24, 256], ids="d{}".format)
def golden(request):
    name = f"glow_d{request.param}.npz"
    for folder in FOLDERS:
        if (folder / name).is_file():
            return dict(np.load(folder / name))
    pytest.skip(f"{name} is in none of {', '.join(map(str, FOLDERS))}; set BERTFLOW_DATA to the data folder beside it")


def weights(golden, state):
    """The stored parameters of that state under our names."""
    found = {}
    for key, value in golden.items():
        if key.startswith(f"{state}.level"):
            level, step, rest = key.removeprefix(f"{state}.level").split(".", 2)
            inside = "coupling." if rest.startswith("net") else ""
            found[f"levels.{level}.{step.removeprefix('step')}.{inside}{rest}"] = torch.tensor(value)
    return found


def load(golden, state):
    flow = Glow(GlowConfig(golden["x"].shape[1]))
    missing, unexpected = flow.load_state_dict(weights(golden, state), strict=False)
    assert not unexpected
    if state != "before":  # which holds only the drawn weights
        assert all(name.endswith("permutation.order") for name in missing)
    return flow


@pytest.mark.parametrize("state", ["initialised", "trained"])
@torch.no_grad()
def test_latents_objective_and_inverse(golden, state):
    flow, x = load(golden, state), torch.tensor(golden["x"])
    x = x[:32] if state == "initialised" else x
    z = flow(x)[0]
    np.testing.assert_allclose(z, golden[f"{state}.z"], rtol=0, atol=1e-4)
    assert float(flow.bits_per_dim(x)) == pytest.approx(float(golden[f"{state}.bits_per_dim"]), abs=1e-5)
    np.testing.assert_allclose(flow.inverse(z), x, rtol=0, atol=1e-4)


def test_initialisation_from_the_first_batch(golden):
    flow = load(golden, "before")
    x = torch.tensor(golden["x"][:32])
    flow.initialize(x)
    state, expected = flow.state_dict(), weights(golden, "initialised")
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=5e-5, msg=name)
    np.testing.assert_allclose(flow(x)[0].detach(), golden["initialised.z"], rtol=0, atol=1e-3)


def test_training_follows_the_port(golden):
    flow, x = load(golden, "initialised"), torch.tensor(golden["x"])
    history = train(flow, x, replace(PRESETS["paper"], shuffle=False), initialize=False)
    assert len(history.losses) == len(golden["losses"])
    assert history.best_step == len(history.losses)
    np.testing.assert_allclose(history.losses, golden["losses"], rtol=0, atol=1e-3)
    state = flow.state_dict()
    for name, value in weights(golden, "trained").items():
        torch.testing.assert_close(state[name], value, rtol=0, atol=1e-3, msg=name)
    with torch.no_grad():
        np.testing.assert_allclose(flow(x)[0], golden["trained.z"], rtol=0, atol=1e-2)
