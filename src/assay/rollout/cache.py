"""Keys and values of a decoding wave: each distinct prompt once, each completion its own suffix.

A wave has U prompts with n slots each (B = U * n rows). The prompt's keys are stored once and
read by all its slots through one batched product; nothing is concatenated per token. Deciding
which rows live is the engine's business.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.models.attention import TreePlan, widened


@dataclass
class WaveCache:
    """Per layer: prompts (U, J, P, D) and suffixes (U * n, J, C, D); J key heads, P padded."""

    prompt_keys: list[Tensor]
    prompt_values: list[Tensor]
    suffix_keys: list[Tensor]
    suffix_values: list[Tensor]
    hidden_UP: Tensor
    """Bool: prompt positions that are padding."""
    slots: int
    length: int = 0
    """Suffix positions filled so far."""

    def keep(self, prompts: Tensor, rows: Tensor, slots: int) -> None:
        """Keep only these prompts and rows (the rows laid out as prompts x slots)."""
        for layer in range(len(self.prompt_keys)):
            self.prompt_keys[layer] = self.prompt_keys[layer][prompts]
            self.prompt_values[layer] = self.prompt_values[layer][prompts]
            self.suffix_keys[layer] = self.suffix_keys[layer][rows]
            self.suffix_values[layer] = self.suffix_values[layer][rows]
        self.hidden_UP = self.hidden_UP[prompts]
        self.slots = slots


@dataclass
class PrefillPlan:
    """Packed prompts see themselves; their keys and values are collected on the way."""

    packed: TreePlan
    keys: list[Tensor]
    values: list[Tensor]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; stores (J, T, D) of every layer in order."""
        self.keys.append(key[0])
        self.values.append(value[0])
        return self.packed.attend(layer, query, key, value, scale)


@dataclass(frozen=True)
class DecodePlan:
    """One new token per row: sees its prompt and its own suffix, itself included."""

    cache: WaveCache

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B = U * n, T = 1. Writes the token's key and value."""
        cache = self.cache
        rows, heads, _, size = query.shape
        key_heads = key.shape[1]
        prompts, stop = rows // cache.slots, cache.length + 1
        keys, values = cache.suffix_keys[layer], cache.suffix_values[layer]
        keys[:, :, cache.length] = key[:, :, 0]
        values[:, :, cache.length] = value[:, :, 0]
        # Query heads that share a key head lie side by side: (B, J, R, D).
        own = (query * scale).view(rows, key_heads, -1, size)
        # All slots of a prompt meet its keys in one product: (U, J, n * R, D).
        shared = own.view(prompts, cache.slots, key_heads, -1, size).transpose(1, 2)
        shared = shared.reshape(prompts, key_heads, -1, size)
        to_prompt = widened(shared @ cache.prompt_keys[layer].transpose(2, 3))
        to_prompt = to_prompt.masked_fill(cache.hidden_UP[:, None, None], float("-inf"))
        to_prompt = to_prompt.view(prompts, key_heads, cache.slots, -1, to_prompt.shape[-1])
        to_prompt = to_prompt.transpose(1, 2).reshape(rows, key_heads, own.shape[2], -1)
        to_own = widened(own @ keys[:, :, :stop].transpose(2, 3))
        weights = torch.cat([to_prompt, to_own], dim=-1).softmax(dim=-1).to(value.dtype)
        width = to_prompt.shape[-1]
        on_prompt = weights[..., :width].view(prompts, cache.slots, key_heads, -1, width)
        on_prompt = on_prompt.transpose(1, 2).reshape(prompts, key_heads, -1, width)
        output = on_prompt @ cache.prompt_values[layer]
        output = output.view(prompts, key_heads, cache.slots, -1, size).transpose(1, 2)
        output = output.reshape(own.shape) + weights[..., width:] @ values[:, :, :stop]
        return output.reshape(rows, heads, 1, size)
