"""The torch modules that are exported to ONNX."""

import numpy as np
import pytest
import torch

from bertflow import FlowCalibrator
from bertflow.flows import AdditiveCoupling
from bertflow.flows.layers import COUPLINGS
from bertflow.integrations.onnx_graph import calibrator_module


class Halved(AdditiveCoupling):
    def _change(self, second, answer):
        return super()._change(second, answer / 2)


@pytest.mark.parametrize("coupling", ["additive", "affine", "halved"])
def test_a_flow_leaves_its_rows_as_they_are_and_needs_no_folded_form(coupling, monkeypatch):
    monkeypatch.setitem(COUPLINGS, "halved", Halved)
    x = np.random.default_rng(0).normal(3, 2, size=(60, 7)).astype(np.float32)
    calibrator = FlowCalibrator(coupling=coupling, epochs=1, random_state=0, device="cpu").fit(x)
    rows = torch.from_numpy(x.copy())
    latents = calibrator_module(calibrator)(rows)
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_allclose(latents.detach(), calibrator.transform(x), atol=1e-4)
