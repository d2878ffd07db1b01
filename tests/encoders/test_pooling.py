import pytest
import torch

from bertflow.encoders.pooling import POOLINGS, check_pooling, pool
from bertflow.errors import InputError

# What each name means, written down a second time and token by token: (hidden states, how)
MEANING = {
    "cls": ([-1], "first"),
    "mean": ([-1], "mean"),
    "max": ([-1], "max"),
    "last-token": ([-1], "last"),
    "weighted-mean": ([-1], "weighted"),
    "last2avg": ([-2, -1], "mean"),
    "first-last-avg": ([1, -1], "mean"),
    "embedding-last-avg": ([0, -1], "mean"),
}
every = pytest.mark.parametrize("pooling", POOLINGS)


@pytest.fixture
def states() -> list[torch.Tensor]:
    """Embeddings and four layers of five texts, seven tokens wide."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, 7, 6, generator=generator, dtype=torch.float32) - 3 for _ in range(5)]


@pytest.fixture
def mask() -> torch.Tensor:
    lengths = torch.tensor([7, 1, 4, 2, 6])
    return (torch.arange(7)[None] < lengths[:, None]).long()


def by_hand(states: list[torch.Tensor], mask: torch.Tensor, pooling: str) -> torch.Tensor:
    which, how = MEANING[pooling]
    rows = []
    for text, length in enumerate(mask.sum(1).tolist()):
        tokens = [torch.stack([states[layer][text, token] for layer in which]).mean(0) for token in range(length)]
        weighted = sum(i * token for i, token in enumerate(tokens, 1)) / sum(range(1, length + 1))
        results = {"first": tokens[0], "last": tokens[-1], "mean": sum(tokens) / length, "weighted": weighted}
        rows.append((results | {"max": torch.stack(tokens).max(0).values})[how])
    return torch.stack(rows)


def test_every_pooling_is_covered_here():
    assert set(MEANING) == set(POOLINGS)


@every
def test_equals_direct_computation(pooling, states, mask):
    pooled = pool(states, mask, pooling)
    assert pooled.shape == (5, 6)
    torch.testing.assert_close(pooled, by_hand(states, mask, pooling))


@every
@pytest.mark.parametrize("rubbish", [0.0, 1e9, float("nan"), float("inf")])
def test_padding_never_counts(pooling, states, mask, rubbish):
    before = pool(states, mask, pooling)
    spoiled = [state.masked_fill(mask[..., None] == 0, rubbish) for state in states]
    torch.testing.assert_close(pool(spoiled, mask, pooling), before, rtol=0, atol=0)


@every
def test_width_of_padding_does_not_matter(pooling, states, mask):
    wide = [torch.nn.functional.pad(state, (0, 0, 0, 3)) for state in states]
    pooled = pool(wide, torch.nn.functional.pad(mask, (0, 3)), pooling)
    torch.testing.assert_close(pooled, pool(states, mask, pooling))


def test_the_two_traps_are_told_apart(states, mask):
    """The paper's last2avg is first-last-avg, the port's takes the embeddings: three different results."""
    paper, port, literal = (pool(states, mask, n) for n in ("first-last-avg", "embedding-last-avg", "last2avg"))
    assert not torch.allclose(paper, port)
    assert not torch.allclose(paper, literal)
    assert not torch.allclose(port, literal)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_pooled_in_float32(pooling, states, mask, dtype):
    halves = [state.to(dtype) for state in states]
    pooled = pool(halves, mask, pooling)
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, by_hand([state.float() for state in halves], mask, pooling))


def test_boolean_mask_works(states, mask):
    torch.testing.assert_close(pool(states, mask.bool(), "mean"), pool(states, mask, "mean"))


@pytest.mark.parametrize("name", ["last-2-avg", "", "MEAN", "first_last_avg"])
def test_unknown_pooling_names_the_known_ones(name, states, mask):
    with pytest.raises(InputError, match=r"Unknown pooling .*first-last-avg"):
        check_pooling(name)
    with pytest.raises(InputError, match="Unknown pooling"):
        pool(states, mask, name)
