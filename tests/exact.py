"""Tiny models in true float64, and random groups, for measuring how exact a computation is."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from assay.data.episode import Episode, Reward, Turn
from assay.models.adapt import train_lora
from assay.models.lora import LoraOptions
from tests.tiny import VOCABULARY, tiny_model


class DoubleNorm(nn.Module):
    """RMSNorm in the type of its input; Transformers' own always computes in float32."""

    def __init__(self, norm: Any):
        super().__init__()
        self.weight = norm.weight
        self.epsilon = norm.variance_epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        scale = (hidden.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return self.weight * (hidden * scale)


def in_float64(module: nn.Module) -> nn.Module:
    """A copy that computes in float64 throughout; parameters keep their names."""
    copied = copy.deepcopy(module).double()
    norms = [n for n, m in copied.named_modules() if type(m).__name__.endswith("RMSNorm")]
    assert norms
    for name in norms:
        owner, _, last = name.rpartition(".")
        setattr(copied.get_submodule(owner), last, DoubleNorm(copied.get_submodule(name)))
    return copied


def exact_model(family: str, adapter: bool) -> nn.Module:
    """A tiny model, or one with a LoRA adapter that has left its start."""
    model = tiny_model(family)
    if not adapter:
        return model
    module, _ = train_lora(model, LoraOptions(rank=4))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return module


def random_groups(seed: int, sizes: tuple[int, ...]) -> list[list[Episode]]:
    """Groups of the given sizes: a prompt of 1 to 20 tokens, completions of 1 to 12, rewards of
    which the first two of a group differ."""
    generator = torch.Generator().manual_seed(seed)

    def draw(most: int) -> tuple[int, ...]:
        length = int(torch.randint(1, most + 1, (1,), generator=generator))
        return tuple(torch.randint(0, VOCABULARY, (length,), generator=generator).tolist())

    groups = []
    for g, size in enumerate(sizes):
        prompt = draw(20)
        rewards = torch.rand(size, generator=generator).round(decimals=1)
        rewards[:2] = torch.tensor([0.0, 1.0])[:size]
        groups.append(
            [
                Episode(f"{g}#{i}", str(g), (turn(prompt, draw(12)),), Reward(float(rewards[i])))
                for i in range(size)
            ]
        )
    return groups


def turn(prompt: tuple[int, ...], actions: tuple[int, ...]) -> Turn:
    """A turn whose tokens are all trained on."""
    return Turn(prompt, actions, (True,) * len(actions))
