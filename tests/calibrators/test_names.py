import pytest

from bertflow.calibrators import FlowCalibrator, Identity, RemoveTopComponents, Standardize, Whitening
from bertflow.calibrators.names import CALIBRATOR_NAMES, is_random, make_calibrator
from bertflow.errors import InputError


@pytest.mark.parametrize(
    ("name", "kind", "params"),
    [
        ("none", Identity, {}),
        ("sn", Standardize, {}),
        ("natsv-3", RemoveTopComponents, {"k": 3, "standardize": False}),
        ("sn+natsv-6", RemoveTopComponents, {"k": 6, "standardize": True}),
        ("whitening", Whitening, {"n_components": None}),
        ("whitening-64", Whitening, {"n_components": 64}),
        ("flow", FlowCalibrator, {"preset": "default", "random_state": 7}),
        ("flow-paper", FlowCalibrator, {"preset": "paper", "epochs": None}),
        ("flow-paper-nli", FlowCalibrator, {"preset": "paper", "epochs": 0.15, "learning_rate": 2e-5}),
    ],
)
def test_a_name_makes_its_calibrator(name, kind, params):
    calibrator = make_calibrator(name, seed=7)
    assert type(calibrator) is kind
    assert {key: calibrator.get_params()[key] for key in params} == params
    assert is_random(name) == (kind is FlowCalibrator)


@pytest.mark.parametrize("name", ["", "natsv", "natsv-x", "Flow", "whitening-", "sn+sn"])
def test_an_unknown_name_is_refused_and_all_are_listed(name):
    with pytest.raises(InputError, match="Unknown calibrator") as refusal:
        make_calibrator(name)
    assert all(known in str(refusal.value) for known in CALIBRATOR_NAMES)
