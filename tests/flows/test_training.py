import copy
import json
import logging
import math
import random
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from scipy import stats

from bertflow.errors import InputError
from bertflow.flows import PRESETS, Glow, GlowConfig, TrainingConfig, train, training
from bertflow.flows.training import SMALL_BATCH

SMALL = TrainingConfig(epochs=3, batch_size=32, learning_rate=5e-3, bias_correction=True, validation_fraction=0.3)


def bent(n=400, d=6, seed=0):
    """Rows that no Gaussian fits: every second dimension is bent by the one before."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x[:, 1::2] = 0.4 * x[:, 1::2] + x[:, 0 : d - d % 2 : 2] ** 2
    return torch.from_numpy(x)


def new_flow(d=6, dtype=torch.float64, **settings):
    return Glow(GlowConfig(d, levels=2, depth=2, width=16, **settings)).to(dtype)


@torch.no_grad()
def bits(flow, x):
    return float(flow.bits_per_dim(x.to(next(flow.parameters()))))


@torch.no_grad()
def assert_finite(flow, x):
    x = x.to(next(flow.parameters()))
    assert all(value.isfinite().all() for value in flow.state_dict().values())
    z, log_det = flow(x)
    for value in (z, log_det, flow.log_prob(x), flow.inverse(z), flow.sample(5)):
        assert value.isfinite().all()


# what is learned


@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_likelihood_beats_a_gaussian_where_none_fits(coupling):
    x, unseen = bent(2000), bent(1000, seed=1)
    flow = new_flow(coupling=coupling)
    train(flow, x, replace(PRESETS["default"], epochs=30))
    with torch.no_grad():
        ours = float(flow.log_prob(unseen).mean())
    gaussian = stats.multivariate_normal(x.mean(0), np.cov(x.T)).logpdf(unseen).mean()
    assert ours > gaussian + 0.5


@pytest.mark.parametrize("name", PRESETS)
def test_likelihood_improves_over_the_start(name):
    x, flow = bent(1500), new_flow(dtype=torch.float32)
    flow.initialize(x.float())
    start = bits(flow, bent(seed=1))
    history = train(flow, x, name, initialize=False)
    assert bits(flow, bent(seed=1)) < start - 0.02
    assert history.setbacks == 0
    assert_finite(flow, x)


def test_continues_from_the_present_state():
    x, flow = bent(), new_flow()
    train(flow, x, SMALL)
    before = bits(flow, x)
    history = train(flow, x, SMALL, initialize=False)
    assert history.losses[0] < before + 0.5
    assert bits(flow, x) < before


# the paper's optimiser


def test_the_paper_preset_is_the_papers():
    assert asdict(PRESETS["paper"]) == {
        "epochs": 1.0,
        "min_steps": 1,
        "batch_size": 32,
        "learning_rate": 1e-3,
        "schedule": "constant",
        "weight_decay": 0.01,
        "beta2": 0.999,
        "bias_correction": False,
        "clip_norm": 1.0,
        "initial_rows": 0,
        "shuffle": True,
        "validation_fraction": 0.0,
        "patience": 3,
        "checks_per_epoch": 2,
    }


def shaken_flow():
    """A flow whose every parameter, the exempt biases too, has something to decay."""
    flow = new_flow()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    flow.initialize(bent(50))
    return flow


def gradients(flow, x):
    """Gradients clipped to norm one over all parameters, by name."""
    flow.zero_grad()
    flow.bits_per_dim(x).backward()
    found = {name: parameter.grad.clone() for name, parameter in flow.named_parameters()}
    norm = torch.cat([gradient.flatten() for gradient in found.values()]).norm()
    assert norm > 1  # or the clipping would not be seen
    return {name: gradient / (norm + 1e-6) for name, gradient in found.items()}


def test_two_steps_of_the_papers_optimiser_by_hand():
    x, flow = bent(20), shaken_flow()
    by_hand, mean, square = copy.deepcopy(flow), {}, {}
    for _ in range(2):
        clipped = gradients(by_hand, x)
        with torch.no_grad():
            for name, p in by_hand.named_parameters():
                g = clipped[name]
                mean[name] = 0.9 * mean.get(name, 0) + 0.1 * g
                square[name] = 0.999 * square.get(name, 0) + 0.001 * g**2
                decay = 0.0 if name.endswith("linear3.bias") else 0.01
                p -= 1e-3 * (mean[name] / (square[name].sqrt() + 1e-6) + decay * p)
    train(flow, x, replace(PRESETS["paper"], epochs=3.2), initialize=False)  # 64 rows: two steps
    for (name, p), expected in zip(flow.named_parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(p, expected, rtol=1e-9, atol=1e-12, msg=name)


def test_with_bias_correction_it_is_torchs_adamw():
    x, flow = bent(20), shaken_flow()
    theirs = copy.deepcopy(flow)
    exempt = [p for name, p in theirs.named_parameters() if name.endswith("linear3.bias")]
    decayed = [p for name, p in theirs.named_parameters() if not name.endswith("linear3.bias")]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": exempt, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6)
    for _ in range(5):
        theirs.zero_grad()
        theirs.bits_per_dim(x).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
    train(flow, x, TrainingConfig(min_steps=5, bias_correction=True), initialize=False)
    for (name, p), expected in zip(flow.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(p, expected[1], rtol=1e-8, atol=1e-10, msg=name)


def test_parameters_keep_their_own_memory_and_lose_their_gradients():
    flow = new_flow()
    identities = [id(parameter) for parameter in flow.parameters()]
    train(flow, bent(), SMALL)
    assert [id(parameter) for parameter in flow.parameters()] == identities
    assert all(parameter.grad is None and parameter.requires_grad for parameter in flow.parameters())
    assert len({parameter.untyped_storage().data_ptr() for parameter in flow.parameters()}) == len(identities)


# repeatability


def test_a_seed_fixes_everything_and_no_global_generator_is_touched():
    state = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    flows = [new_flow(), new_flow(), new_flow()]
    x = bent()
    x[:, 2] = 1.0  # flat: noise is drawn too
    first, again, other = (train(flow, x, SMALL, seed=s) for flow, s in zip(flows, (3, 3, 4), strict=True))
    assert first == again
    assert first.losses != other.losses
    assert all(torch.equal(a, b) for a, b in zip(flows[0].parameters(), flows[1].parameters(), strict=True))
    assert torch.equal(state[0], torch.get_rng_state())
    assert (state[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert state[2] == random.getstate()


def test_data_stay_as_they_were():
    x = bent()
    before = x.clone()
    train(new_flow(), x, SMALL)
    assert torch.equal(x, before)
    assert not x.requires_grad


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_training_works_where_gradients_are_off(context):
    x, flow = bent(), new_flow()
    expected = train(copy.deepcopy(flow), x, SMALL).losses
    with context():
        assert train(flow, x, SMALL).losses == expected
        assert torch.is_grad_enabled() is False


# callbacks and history


def test_callbacks_get_the_documented_keys():
    logs, x = [], bent()
    config = replace(SMALL, patience=1000)
    history = train(new_flow(), x, config, callbacks=[logs.append])
    always = {"step", "steps", "epoch", "bits_per_dim", "learning_rate"}
    assert all(set(log) - {"validation_bits_per_dim"} == always for log in logs)
    assert [log["step"] for log in logs] == list(range(1, logs[0]["steps"] + 1))
    assert [log["bits_per_dim"] for log in logs] == history.losses
    checks = [(log["step"], log["validation_bits_per_dim"]) for log in logs if "validation_bits_per_dim" in log]
    assert checks == history.validation
    assert [step for step, _ in checks] == [10, 20, 27]  # every tenth step, and the last


@pytest.mark.parametrize(("n", "batch_size", "expected"), [(64, 32, [0.5, 1, 1.5, 2]), (10, 32, [1, 2, 3, 4])])
def test_epochs_are_passes_over_the_rows(n, batch_size, expected):
    epochs = []
    config = TrainingConfig(min_steps=4, epochs=0.1, batch_size=batch_size)
    train(new_flow(), bent(n), config, callbacks=[lambda log: epochs.append(log["epoch"])])
    assert epochs == expected


def test_cosine_schedule_warms_up_and_ends_at_zero():
    rates = []
    config = TrainingConfig(min_steps=40, schedule="cosine", learning_rate=0.01)
    train(new_flow(), bent(40), config, callbacks=[lambda log: rates.append(log["learning_rate"])])
    assert len(rates) == 40
    assert rates[:4] == pytest.approx([0.0025, 0.005, 0.0075, 0.01])
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-12)


def test_batches_without_shuffling_come_in_order():
    x, flow = bent(64), new_flow()
    flow.initialize(x)
    first = [bits(flow, x[:32]), bits(flow, x[32:])]
    config = TrainingConfig(shuffle=False, learning_rate=1e-12)
    assert train(flow, x, config, initialize=False).losses == pytest.approx(first, abs=1e-6)


def test_progress_bar_is_shown_on_request(capsys):
    train(new_flow(), bent(), SMALL)
    assert not capsys.readouterr().err
    train(new_flow(), bent(), SMALL, show_progress_bar=True)
    assert "bits/dim" in capsys.readouterr().err


def test_summary_is_json_even_after_a_divergence():
    history = train(new_flow(), bent(), replace(SMALL, learning_rate=1e6))
    assert not all(map(math.isfinite, history.losses))
    summary = json.loads(json.dumps(history.summary(), allow_nan=False))
    assert summary["steps"] == len(history.losses)
    assert summary["setbacks"] == 3
    assert training.History().summary()["bits_per_dim"] is None


def test_early_stop_keeps_the_best_state():
    x, flow, states = bent(120), new_flow(), {}
    config = replace(SMALL, epochs=300, learning_rate=0.01, validation_fraction=0.6, patience=2)

    def remember(log):
        states[log["step"]] = copy.deepcopy(flow.state_dict())

    history = train(flow, x, config, callbacks=[remember])
    assert history.stopped_early
    assert len(history.losses) < 400
    assert history.best_step == min(history.validation, key=lambda check: check[1])[0]
    assert history.best_step < len(history.losses)
    assert all(torch.equal(value, states[history.best_step][name]) for name, value in flow.state_dict().items())


def test_patience_does_not_end_in_the_warm_up():
    """1500 rows make an epoch of six steps: three checks in it would say little."""
    mix = np.random.default_rng(5).normal(size=(16, 16))
    x, unseen = (torch.from_numpy(np.random.default_rng(seed).normal(size=(1500, 16)) @ mix) for seed in (100, 101))
    flow = Glow(GlowConfig(16))
    flow.initialize(x.float())
    start = bits(flow, unseen)
    history = train(flow, x)
    assert len(history.losses) == 60
    assert bits(flow, unseen) < start - 0.6


@pytest.mark.parametrize("place", [0, 1])  # the second step's actnorm is trained mirrored
def test_patience_waits_while_the_fit_recovers_from_a_bad_beginning(place):
    x, flow = bent(), new_flow()
    flow.initialize(x)
    start = bits(flow, x)

    def disturb(log):
        if log["step"] == 1:
            flow.levels[0][place].actnorm.logscale.data += 0.3

    config = replace(SMALL, learning_rate=2e-3, epochs=20, patience=2)
    history = train(flow, x, config, initialize=False, callbacks=[disturb])
    assert all(value > start for _, value in history.validation[:3])
    assert history.best_step > 30
    assert bits(flow, x) < start


def test_a_run_that_never_gets_better_keeps_the_first_state():
    x, flow = bent(), new_flow()
    train(flow, x, replace(SMALL, epochs=20, patience=100))
    before = copy.deepcopy(flow.state_dict())
    history = train(flow, x, replace(SMALL, learning_rate=0.1), initialize=False)
    assert history.best_step == 0
    assert all(torch.equal(value, before[name]) for name, value in flow.state_dict().items())


def test_small_corpora_are_not_split():
    history = train(new_flow(), bent(100), replace(SMALL, validation_fraction=0.6))  # 60 rows: below 64
    assert not history.validation
    assert history.best_step == len(history.losses)


def test_the_note_on_negative_values_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(training, "_announced", False)
    caplog.set_level(logging.INFO, "bertflow.flows.training")
    for _ in range(2):
        assert train(new_flow(), bent() * 0.01, SMALL).losses[0] < 0
    notes = [record for record in caplog.records if "below zero, which is normal" in record.getMessage()]
    assert len(notes) == 1
    assert notes[0].levelno == logging.INFO


# divergence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fraction", [0.0, 0.3])
@pytest.mark.parametrize("rate", [1.0, 1e3, 1e30])
@pytest.mark.parametrize("n", [20, 400])
def test_a_huge_learning_rate_leaves_a_flow_no_worse_than_at_the_start(rate, fraction, n, dtype, caplog):
    x, flow = bent(n), new_flow(dtype=dtype)
    flow.initialize(x.to(dtype))
    config = TrainingConfig(learning_rate=rate, validation_fraction=fraction)
    held_out = training.Rows.divide(x, config, torch.Generator().manual_seed(0), training.MIN_HELD_OUT)[1]
    watched = x if held_out is None else held_out
    start = bits(flow, watched)
    history = train(flow, x, config, initialize=False)
    assert history.setbacks > 0
    assert "diverged" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert bits(flow, watched) <= start + 1e-6
    assert_finite(flow, x)


def grow(flow):
    flow.levels[0][0].actnorm.logscale.data += 5


def poison(flow):
    flow.levels[1][0].coupling.net.linear2.weight.data.fill_(math.nan)


@pytest.mark.parametrize("harm", [grow, poison])
@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_one_divergence_is_set_back_and_the_fit_goes_on(harm, fraction, caplog, monkeypatch):
    x, flow, rates, counts = bent(), new_flow(), [], []
    flow.initialize(x)
    start, step = bits(flow, x), training.Adam.step

    def counted(optimizer, rate):
        step(optimizer, rate)
        counts.append(optimizer.count)

    def hurt(log):
        rates.append(log["learning_rate"])
        if log["step"] == 15:
            harm(flow)

    monkeypatch.setattr(training.Adam, "step", counted)
    config = replace(SMALL, learning_rate=2e-3, epochs=5, validation_fraction=fraction, patience=100)
    history = train(flow, x, config, initialize=False, callbacks=[hurt])
    assert history.setbacks == 1
    assert counts[:15] == list(range(1, 16))
    assert counts[-20:] == list(range(counts[-1] - 19, counts[-1] + 1))
    assert counts[-1] < len(counts)  # the moments were forgotten
    assert "continuing at half the learning rate" in caplog.text
    assert rates[:15] == [2e-3] * 15
    assert set(rates[16:]) == {1e-3}
    assert bits(flow, x) < start
    assert_finite(flow, x)


@pytest.mark.parametrize("harm", [grow, poison])
@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_a_divergence_in_the_last_loss_leaves_the_best_state(harm, fraction):
    x, flow, states = bent(), new_flow(), {}

    def hurt(log):
        states[log["step"]] = copy.deepcopy(flow.state_dict())
        if log["step"] == log["steps"] - 1:
            harm(flow)

    history = train(flow, x, replace(SMALL, validation_fraction=fraction), callbacks=[hurt])
    assert history.setbacks == 1
    assert 0 < history.best_step < len(history.losses) - 1
    assert all(torch.equal(value, states[history.best_step][name]) for name, value in flow.state_dict().items())


@pytest.mark.parametrize("harm", [grow, poison])
@pytest.mark.parametrize("steps", [1, 5])
def test_harm_in_the_last_step_is_seen(harm, steps):
    """A last update may be the one that ruins the flow: no loss is computed after it."""
    x, flow = bent(20), new_flow()
    flow.initialize(x)
    start, step = bits(flow, x), training.Adam.step

    def harmful(optimizer, rate):
        step(optimizer, rate)
        if optimizer.count == steps:
            harm(flow)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Adam, "step", harmful)
        history = train(flow, x, TrainingConfig(min_steps=steps), initialize=False)
    assert history.setbacks == 1
    assert history.best_step == 0
    assert bits(flow, x) <= start
    assert_finite(flow, x)


def test_a_few_odd_rows_do_not_end_the_fit():
    x, flow = bent(2100), new_flow(dtype=torch.float32)
    flow.initialize(x.float())
    start = bits(flow, x)
    odd = x.clone()
    odd[[100, 400, 700, 1000, 1300]] *= 1e3  # none of which is a third row: those are watched
    config = replace(SMALL, epochs=1, validation_fraction=0.0, shuffle=False)
    history = train(flow, odd, config, initialize=False)
    assert sum(loss > start + 100 for loss in history.losses) == 5
    assert history.setbacks == 0
    assert len(history.losses) == 66
    assert bits(flow, x) < start


# awkward data


def awkward():
    x = bent(90, 5).float()
    constant, nearly, sparse, twice = (x.clone() for _ in range(4))
    constant[:, [1, 3]] = 4.0
    nearly[:, 2] = 1e3 + 1e-4 * nearly[:, 2]
    sparse[:, 4] = 0
    sparse[::30, 4] = 1
    twice[1::2] = twice[::2]
    cases = {
        "constant dimensions": constant,
        "nearly constant dimension": nearly,
        "sparse dimension": sparse,
        "duplicate rows": twice,
        "one row again and again": x[:1].repeat(90, 1),
        "equal dimensions": x[:, :1].repeat(1, 5),
        "all zero": torch.zeros(90, 5),
        "all 1e30": torch.full((90, 5), 1e30),
        "all 1e-30": torch.full((90, 5), 1e-30),
        "fewer rows than dimensions": x[:4],
        "two rows": x[:2],
        "two equal rows": x[:1].repeat(2, 1),
        "one row": x[:1],
        "far from zero": x + 1e5,
        "scales apart": x * torch.logspace(-30, 30, 5),
        "integers": (x * 2).round(),
    }
    for power in (-30, -20, -10, -5, 5, 10, 20, 30):
        cases[f"scale 1e{power}"] = x * 10.0**power
    return cases


AWKWARD = awkward()


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_data_leave_everything_finite(case, name):
    x = AWKWARD[case]
    flow = Glow(GlowConfig(5, permutation="reverse" if name == "paper" else "linear"))
    train(flow, x, replace(PRESETS[name], min_steps=6, batch_size=32))
    assert_finite(flow, x)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1.0, 1e10, 1e30])
@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_no_scale_ends_worse_than_it_began(scale, fraction):
    x, flow = (bent(160, 5) * scale).float(), Glow(GlowConfig(5))
    flow.initialize(x)
    config = replace(PRESETS["default"], min_steps=12, batch_size=32, validation_fraction=fraction)
    held_out = training.Rows.divide(x, config, torch.Generator().manual_seed(0), training.MIN_HELD_OUT)[1]
    watched = x if held_out is None else held_out
    start = bits(flow, watched)
    train(flow, x, config, initialize=False)
    assert bits(flow, watched) <= start + 1e-4


def test_flat_dimensions_are_told_and_stay_bounded(caplog):
    caplog.set_level(logging.INFO, "bertflow.flows.training")
    x = bent(300, 5)
    x[:, [1, 3]] = torch.tensor([7.0, -2.0], dtype=torch.float64)
    flow = new_flow(5)
    history = train(flow, x, replace(SMALL, epochs=20))
    assert history.flat_dimensions == [1, 3]
    assert "2 of 5 dimensions do not vary" in caplog.text
    unseen = bent(100, 5, seed=1)
    unseen[:, [1, 3]] = x[0, [1, 3]] + 0.01
    with torch.no_grad():
        assert flow(unseen)[0].abs().max() < 50


def test_flat_dimensions_weigh_the_same_in_training_and_in_checks():
    x = bent(600)
    x[:, 2:] = 3.0
    history = train(new_flow(), x, replace(SMALL, epochs=10, patience=100))
    assert np.mean([value for _, value in history.validation[-3:]]) == pytest.approx(
        np.mean(history.losses[-30:]), abs=0.25
    )


# what is refused


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(4),
        torch.zeros(0, 6),
        torch.zeros(4, 5),
        torch.zeros(2, 2, 6),
        torch.full((4, 6), math.nan),
        torch.full((4, 6), -math.inf),
    ],
    ids=["one axis", "no rows", "too narrow", "three axes", "nan", "infinity"],
)
def test_unusable_data_are_refused_and_change_nothing(x):
    flow = new_flow()
    before = copy.deepcopy(flow.state_dict())
    with pytest.raises(InputError, match=r"6 dimensions|NaN or infinity"):
        train(flow, x)
    assert all(torch.equal(value, before[name]) for name, value in flow.state_dict().items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "linear"}, "Unknown schedule 'linear'; choose 'constant' or 'cosine'"),
        ({"validation_fraction": 1.0}, r"must lie in \[0, 1\)"),
        ({"epochs": 0}, "epochs must be positive"),
        ({"learning_rate": math.nan}, "learning_rate must be positive"),
        ({"batch_size": -1}, "batch_size must be positive"),
        ({"patience": 0}, "patience must be positive"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        TrainingConfig(**settings)


def test_unknown_presets_are_refused():
    with pytest.raises(InputError, match="Unknown preset 'fast'; choose from paper, default"):
        train(new_flow(), bent(), "fast")


@pytest.mark.parametrize(("batch_size", "expected"), [(32, 1), (SMALL_BATCH // 64, 3)])
def test_small_batches_are_one_threads_work(batch_size, expected):
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        config = TrainingConfig(epochs=1, batch_size=batch_size)
        callback = lambda log: seen.append(torch.get_num_threads())  # noqa: E731
        train(Glow(GlowConfig(64, levels=1, depth=1)), torch.randn(64, 64), config, callbacks=[callback])
        assert set(seen) == {expected}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
