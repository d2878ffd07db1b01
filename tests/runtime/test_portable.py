"""numpy alone does what torch does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bertflow
from bertflow import (
    BertFlow,
    Calibrator,
    FlowCalibrator,
    Identity,
    InputError,
    ModelFolderError,
    RemoveTopComponents,
    Standardize,
    Whitening,
)
from bertflow.flows import Glow, GlowConfig
from bertflow.flows.folded import fold_arrays
from bertflow.parts import Part, fit_parts
from bertflow.runtime.portable import PortableCalibrator, load_calibrator

OLD = Path(__file__).parents[1] / "fixtures" / "version-0.1"
AFFINE_ONES = [
    Identity(),
    Standardize(),
    RemoveTopComponents(2),
    RemoveTopComponents(1, center=False),
    RemoveTopComponents(1, standardize=True),
    Whitening(),
    Whitening(4),
    Whitening(method="zca", shrinkage=0.1),
]


def rows(n: int, d: int, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(d)
    return (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3).astype(dtype)


def scattered_flow(config: GlowConfig, x: np.ndarray) -> Glow:
    """A flow whose parameters are all away from their start, as after a fit."""
    flow = Glow(config).to(torch.from_numpy(x).dtype)
    flow.initialize(torch.from_numpy(x))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return flow


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("dim", [2, 7, 16])
@pytest.mark.parametrize("permutation", ["reverse", "random", "linear"])
@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_every_flow_is_that_of_torch(coupling, permutation, dim, split, dtype):
    x = rows(200, dim, dtype)
    flow = scattered_flow(GlowConfig(dim, coupling=coupling, permutation=permutation, split=split, seed=1), x)
    with torch.inference_mode():
        expected = flow(torch.from_numpy(x))[0].numpy()
    latents = fold_arrays({name: value.numpy() for name, value in flow.state_dict().items()}, coupling)(x)
    assert latents.dtype == dtype
    size = max(1, np.abs(expected).max())  # with two or three dimensions such a flow reaches far out
    np.testing.assert_allclose(latents, expected, rtol=0, atol=size * (1e-5 if dtype == np.float32 else 1e-12))


@pytest.mark.parametrize("fitted_on", [np.float32, np.float64])
@pytest.mark.parametrize("given", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("calibrator", [*AFFINE_ONES, FlowCalibrator(epochs=1, random_state=0)], ids=repr)
def test_every_calibrator_is_that_of_torch(calibrator, given, fitted_on):
    calibrator.fit(rows(60, 5, fitted_on))  # few rows and epochs: a flow's latents of others can be large
    portable = PortableCalibrator(*calibrator.get_state())
    x = rows(1100, 5).astype(given)  # more than one block
    expected, got = calibrator.transform(x), portable.transform(x)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, atol=1e-5 * max(1, np.abs(expected).max()))
    assert (portable.n_features_in_, portable.n_features_out_) == (5, expected.shape[1])


def test_no_calibrator_is_forgotten():
    kinds = [kind for kind in Calibrator.registry.values() if kind.__module__.startswith("bertflow.")]
    assert len(kinds) > 4
    for kind in kinds:
        calibrator = kind().fit(rows(300, 5))
        found = PortableCalibrator(*calibrator.get_state()).transform(rows(9, 5))
        np.testing.assert_allclose(found, calibrator.transform(rows(9, 5)), atol=1e-4)


def test_a_model_of_several_parts(small_model, sentences, tmp_path):
    """The views' vectors side by side give what ``encode`` gives."""
    view = small_model.parts[0].view
    parts = [Part(view, Whitening(5), weight=2.0), Part(view, FlowCalibrator(epochs=1, random_state=0, device="cpu"))]
    model = BertFlow(small_model.encoder, parts=_fitted(parts, small_model.encoder, sentences))
    portable = load_calibrator(model.save_pretrained(tmp_path / "model"))
    x = np.hstack([part.view.encode(sentences) for part in parts])
    assert repr(portable) == "PortableCalibrator(Whitening + FlowCalibrator, 32 → 21)"
    np.testing.assert_allclose(portable.transform(x), model.encode(sentences), atol=1e-4)


def _fitted(parts, encoder, sentences):
    fit_parts(parts, encoder, sentences)
    return parts


@pytest.mark.parametrize("name", ["flow", "best", "static"])
def test_folders_of_version_0_1(name, sentences):
    model = BertFlow.from_pretrained(OLD / name, device="cpu")
    x = np.hstack([part.view.encode(sentences) for part in model.parts])
    np.testing.assert_allclose(load_calibrator(OLD / name).transform(x), model.encode(sentences), atol=1e-4)


def test_input_is_left_as_it_was(small_model, sentences):
    x = small_model.encoder.encode(sentences)
    before = x.copy()
    PortableCalibrator(*small_model.calibrator.get_state()).transform(x)
    np.testing.assert_array_equal(x, before)


@pytest.fixture(scope="module")
def folder(small_model, tmp_path_factory):
    return small_model.save_pretrained(tmp_path_factory.mktemp("portable") / "model")


def test_a_saved_model_without_torch(folder, small_model, sentences):
    """Blocks all but numpy and safetensors, as if they were not installed."""
    x = small_model.encoder.encode(sentences[:5])
    code = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        allowed = {{"bertflow", "numpy", "safetensors", *sys.stdlib_module_names}}
        if name.partition(".")[0] not in allowed:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, {str(Path(bertflow.__file__).parents[1])!r})
from bertflow.runtime.portable import load_calibrator
calibrator = load_calibrator({str(folder)!r})
print(calibrator.transform({x.tolist()!r}).tolist())
for package in ("torch", "scipy", "sklearn", "transformers", "yaml", "huggingface_hub", "tqdm", "typer"):
    assert package not in sys.modules, package
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(json.loads(result.stdout), small_model.calibrator.transform(x), atol=1e-5)


def test_repr_tells_what_it_is(folder):
    assert repr(load_calibrator(folder)) == "PortableCalibrator(FlowCalibrator, 16 → 16)"


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.zeros(16), r"shape \(16,\)"),
        (np.zeros((2, 3)), r"takes \(n, 16\)"),
        ([["a"] * 16], "something else"),
        (np.full((1, 16), np.nan), "NaN or infinity"),
        (np.full((1, 16), 1e38, np.float32), "float32 overflows"),
    ],
)
def test_rows_that_cannot_be_used(folder, x, sentence):
    with pytest.raises(InputError, match=sentence):
        load_calibrator(folder).transform(x)


def test_folders_that_cannot_be_loaded(folder, tmp_path):
    with pytest.raises(ModelFolderError, match="does not exist"):
        load_calibrator(tmp_path / "nothing")
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelFolderError, match="damaged"):
        load_calibrator(tmp_path / "damaged")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n_features_in": 15}, "do not make a calibrator"),
        ({"n_features_out": "many"}, "do not make a calibrator"),
    ],
)
def test_settings_that_do_not_fit_the_arrays(folder, tmp_path, change_config, change, sentence):
    shutil.copytree(folder, tmp_path / "m")
    change_config(tmp_path / "m", lambda config: config["parts"][0]["calibrator"].update(change))
    with pytest.raises((ModelFolderError, InputError), match=sentence):
        load_calibrator(tmp_path / "m")


def test_a_calibrator_of_someone_else():
    settings, arrays = Whitening().fit(rows(60, 5)).get_state()
    with pytest.raises(InputError, match="'MyOwn' cannot be applied by numpy alone"):
        PortableCalibrator(settings | {"class": "MyOwn"}, {"mean": arrays["mean"]})
