"""The first sublayer that computes something else is named, and none where all is well."""

import pytest
import torch

from assay.models.first_difference import first_difference
from tests.faults import fault, leak, run_on, scaled_where_planned
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
    with fault(model, change):
        assert first_difference(model, *TURNS) == "model.layers.0.self_attn"


@pytest.mark.parametrize("sublayer", ["layers.1.mlp", "layers.1.input_layernorm"])
def test_the_sublayer_at_fault_is_named_and_not_those_that_follow(sublayer):
    model = tiny_model()
    with scaled_where_planned(model, f"model.{sublayer}", 1.01):
        assert first_difference(model, *TURNS) == f"model.{sublayer}"
    assert not [m for m in model.modules() if m._forward_hooks]
