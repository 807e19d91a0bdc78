"""The cosine between two gradients, whole and by block: closed forms and properties."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.rl.directions import block_of, directions

NAMES = ("model.embed_tokens.weight", "model.layers.0.mlp.weight", "model.layers.0.norm.weight")
NAMES += ("model.layers.11.mlp.weight", "model.norm.weight")


def gradient(seed: int, names: tuple[str, ...] = NAMES) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(4, 3, generator=generator) for name in names}


def test_a_layers_parameters_make_one_block_and_others_stand_by_their_module():
    blocks = [part.block for part in directions(gradient(0), gradient(1)).blocks]
    assert blocks == ["model.embed_tokens", "model.layers.0", "model.layers.11", "model.norm"]
    adapter = "base_model.model.model.layers.3.self_attn.q_proj.lora_A.default.weight"
    assert block_of(adapter) == "base_model.model.model.layers.3"
    assert block_of("weight") == "weight"


@given(st.integers(0, 99), st.floats(1e-3, 1e3), st.sampled_from([1.0, -1.0]))
def test_scaling_keeps_the_direction_and_negation_turns_it_round(seed, size, sign):
    before = gradient(seed)
    after = {name: sign * size * tensor for name, tensor in before.items()}
    found = directions(before, after)
    for part in (found.whole, *found.blocks):
        assert part.cosine == pytest.approx(sign, abs=1e-6)
        assert part.after == pytest.approx(size * part.before, rel=1e-5)


@given(st.integers(0, 99), st.integers(0, 99))
def test_the_whole_is_the_concatenation_of_the_blocks(one, other):
    before, after = gradient(one), gradient(other)
    found = directions(before, after)
    flat = [torch.cat([t.flatten() for t in side.values()]).double() for side in (before, after)]
    expected = float(flat[0] @ flat[1] / flat[0].norm() / flat[1].norm())
    assert found.whole.cosine == pytest.approx(expected, abs=1e-9)
    assert found.whole.before == pytest.approx(math.hypot(*(b.before for b in found.blocks)))


def test_orthogonal_gradients_have_cosine_0():
    before = {"a.weight": torch.tensor([1.0, 0.0])}
    found = directions(before, {"a.weight": torch.tensor([0.0, 5.0])})
    assert found.whole.cosine == 0.0


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_gradient_of_zero_or_not_finite_has_no_direction(value):
    found = directions({"a.weight": torch.ones(2)}, {"a.weight": torch.full((2,), value)})
    assert found.whole.cosine is None and found.blocks[0].cosine is None


def test_a_parameter_without_gradient_counts_as_zero():
    found = directions(gradient(0), {})
    assert found.whole.cosine is None and found.whole.after == 0.0
    half = directions(
        {"a.w": torch.tensor([3.0]), "b.w": torch.tensor([4.0])}, {"a.w": torch.ones(1)}
    )
    assert half.whole.cosine == pytest.approx(0.6)
