"""bf16 sampling keeps an adapter apart."""

import torch
from peft import PeftModel
from torch import Tensor, nn

from assay.models.inference import inference_model
from assay.models.lora import LoraOptions, merged
from assay.models.prefix_tree import answer_logps
from assay.models.scoring import score_actions
from tests.models.adapters import adapted
from tests.models.folders import tiny_model

CONTEXT, ACTIONS = (5, 6, 7, 8, 9, 4, 3), (8, 9, 10, 11, 12, 250, 13)


def packed_logps(model: PeftModel) -> Tensor:
    offsets = torch.tensor([0, len(ACTIONS)])
    return score_actions(model, [CONTEXT], torch.tensor(ACTIONS), offsets)[0]  # type: ignore[arg-type]


def sampler_logps(model: nn.Module, dtype: torch.dtype) -> Tensor:
    return torch.tensor(answer_logps(inference_model(model, dtype), [CONTEXT], [ACTIONS]).logps[0])


def test_a_small_change_is_sampled_as_it_is_trained_in_bf16():
    """Merged into bf16 weights, a change after one step is as large as what rounding takes of it;
    kept apart, sampling computes what training under autocast does."""
    model = adapted(tiny_model("qwen2"), LoraOptions(rank=8), 1e-4, "lora_B").eval()
    with torch.no_grad():
        for parameter in model.get_base_model().parameters():
            parameter.copy_(parameter.bfloat16())
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        trained = packed_logps(model)
    apart = sampler_logps(model, torch.bfloat16)
    rounded = sampler_logps(merged(model), torch.bfloat16)
    assert (rounded - trained).abs().mean() > 1e-4
    assert (apart - trained).abs().mean() < 0.2 * (rounded - trained).abs().mean()
