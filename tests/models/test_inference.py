"""The model laid out for inference computes what Transformers' own forward computes."""

import pytest
import torch

from assay.models.inference import inference_model
from assay.rollout.engines.cpu.kv_cache import CacheShape, PrefillPlan, Segment, empty_cache
from tests.tiny import FAMILIES, tiny_model

TOKENS = torch.tensor([5, 9, 33, 2, 70, 14])


def logits_of(model):
    shape = CacheShape(
        len(model.layers), model.key_heads, model.size, model.dtype, torch.device("cpu")
    )
    cache = empty_cache(shape, 1, 1, len(TOKENS), 0)
    plan = PrefillPlan(cache, [Segment(0, 0, 0, len(TOKENS))])
    with torch.no_grad():
        return model.forward(TOKENS, torch.arange(len(TOKENS)), plan, None)


def expected_of(module):
    with torch.no_grad():
        return module(input_ids=TOKENS[None]).logits[0]


@pytest.mark.parametrize("family", sorted(FAMILIES))
# Transformers takes norms in fp32 whatever the model's type.
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 3e-6), (torch.float32, 2e-5)])
def test_logits_equal_transformers(family, dtype, near):
    module = tiny_model(family).to(dtype)
    found = logits_of(inference_model(module, dtype))
    torch.testing.assert_close(found, expected_of(module), atol=near, rtol=near)


def test_bf16_products_are_as_near_as_bf16_is():
    module = tiny_model()
    expected = expected_of(module)
    found = logits_of(inference_model(module, torch.bfloat16))
    assert found.dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = expected_of(module)
    error, allowed = (found - expected).norm(), (autocast - expected).norm()
    assert 0 < error < 2 * allowed
