"""The first sublayer that computes something else is named, and none where all is well."""

import pytest
import torch

from assay.models.first_difference import first_difference
from tests.faults import fault, leak, run_on, scaled_activation, scaled_norm
from tests.tiny import FAMILIES, tiny_model

CONTEXTS = [(5, 6, 7, 8), (5, 6, 7, 8), (9, 10)]
ACTIONS_S = torch.tensor([1, 2, 3, 40, 50, 60, 70, 80])
OFFSETS_N1 = torch.tensor([0, 3, 6, 8])
TURNS = (CONTEXTS, ACTIONS_S, OFFSETS_N1)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_sound_model_has_no_difference(family):
    assert first_difference(tiny_model(family), *TURNS) is None


@pytest.mark.parametrize("change", [leak, run_on])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_wrong_mask_or_position_shows_in_the_first_attention(family, change):
    model = tiny_model(family)
    with fault(change):
        assert first_difference(model, *TURNS) == "model.layers.0.self_attn"


@pytest.mark.parametrize("sublayer", ["input_layernorm", "post_attention_layernorm"])
def test_the_norm_at_fault_is_named_and_not_what_follows(sublayer):
    model = tiny_model()
    with scaled_norm(model.get_submodule(f"model.layers.1.{sublayer}"), 1.01):
        assert first_difference(model, *TURNS) == f"model.layers.1.{sublayer}"
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_an_activation_at_fault_is_the_mlps():
    model = tiny_model()
    with scaled_activation(1.01):
        assert first_difference(model, *TURNS) == "model.layers.0.mlp"


def test_a_projection_at_fault_is_named(monkeypatch):
    model = tiny_model()
    projection = model.get_submodule("model.layers.1.self_attn.v_proj")
    right = type(projection).forward

    def wrong(self, rows):
        packed = self is projection and rows.dim() == 2
        return right(self, rows) * (1.01 if packed else 1.0)

    monkeypatch.setattr(type(projection), "forward", wrong)
    assert first_difference(model, *TURNS) == "model.layers.1.self_attn.v_proj"
