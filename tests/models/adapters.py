"""Models with an adapter that has left its start."""

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from assay.models.adapt import train_lora
from assay.models.lora import LoraOptions

RANK_4 = LoraOptions(rank=4)


def adapted(
    model: PreTrainedModel, options: LoraOptions = RANK_4, std: float = 0.2, part: str = "lora_"
) -> PeftModel:
    """The model with an adapter, of which the weights named by `part` are drawn."""
    made, _ = train_lora(model, options)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if part in name:
                parameter.normal_(std=std)
    return made
