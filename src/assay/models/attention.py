"""Attention that Transformers models call and that Assay plans: prompts computed once per group.

A plan is handed to the model's forward as the keyword `plan`; every layer's attention goes to
`plan.attend`. Plans here cover packed training rows (`TreePlan`). Model code is not patched: the
function is registered through Transformers' public attention interface under the name "assay".
Sliding windows, soft-capped scores and attention sinks are not covered; a model that asks for
them is refused.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from assay.errors import InputError

NAME = "assay"


class AttentionUnsupported(InputError):
    """The model needs a kind of attention that the plans do not compute."""


class AttentionPlan(Protocol):
    """How the tokens of one forward pass see each other."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention of one layer: query (B, Hq, T, D), key and value (B, Hkv, T, D) -> like query.

        `layer` counts from 0; Hq is a multiple of Hkv (grouped queries).
        """
        ...


def planned_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    plan: AttentionPlan | None = None,
    **unsupported: Any,
) -> tuple[Tensor, None]:
    """The attention function that Transformers calls; returns (B, T, Hq, D)."""
    if plan is None:
        raise AttentionUnsupported(
            "this model was loaded for planned attention and called without a plan",
            fix='call model.set_attn_implementation("sdpa") before using it on its own',
        )
    for name in ("sliding_window", "softcap", "s_aux"):
        if unsupported.get(name) is not None:
            raise AttentionUnsupported(f"{type(module).__name__} uses {name}")
    if dropout:
        raise AttentionUnsupported("attention dropout", fix="set attention_dropout to 0")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    return plan.attend(layer, query, key, value, scaling).transpose(1, 2), None


AttentionInterface.register(NAME, planned_attention)


def widened(tensor: Tensor) -> Tensor:
    """The tensor in at least float32, where sums over many keys or words are taken."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@dataclass(frozen=True)
class Tree:
    """One prompt and its completions inside a packed row of T tokens."""

    start: int
    """Index in T of the prompt's first token; the completions follow it end to end."""
    prompt: int
    """P, the number of prompt tokens."""
    gather_GC: Tensor
    """Index in T of completion token c of completion g, 0-padded on the right."""
    index_K: Tensor
    """Positions in the flattened (G, C) grid that hold real tokens, in packed order."""
    hidden_CC: Tensor
    """Bool (C, C): a later token of the same completion, which a query must not see."""

    @property
    def stop(self) -> int:
        """Index in T just after the tree's last token."""
        return self.start + self.prompt + len(self.index_K)


@dataclass(frozen=True)
class TreePlan:
    """A packed row: each prompt sees itself causally, each completion its prompt and itself."""

    trees: tuple[Tree, ...]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See `AttentionPlan.attend`; B is 1 and T covers all trees in order."""
        return torch.cat(
            [attend_tree(tree, query[0], key[0], value[0], scale) for tree in self.trees], dim=1
        )[None]


def attend_tree(
    tree: Tree, query_HTD: Tensor, key_JTD: Tensor, value_JTD: Tensor, scale: float
) -> Tensor:
    """Attention inside one tree (H query heads, J key heads): output (H, tokens of the tree, D)."""
    prompt = slice(tree.start, tree.start + tree.prompt)
    outputs = [
        attend_causally(query_HTD[:, prompt], key_JTD[:, prompt], value_JTD[:, prompt], scale)
    ]
    if len(tree.index_K):
        outputs.append(attend_completions(tree, query_HTD, key_JTD, value_JTD, scale))
    return torch.cat(outputs, dim=1)


def attend_causally(query_HPD: Tensor, key_JPD: Tensor, value_JPD: Tensor, scale: float) -> Tensor:
    """Plain causal attention of one sequence (H, P, D), key heads repeated for grouped queries."""
    repeat = len(query_HPD) // len(key_JPD)
    key_HPD = key_JPD.repeat_interleave(repeat, dim=0)
    value_HPD = value_JPD.repeat_interleave(repeat, dim=0)
    return F.scaled_dot_product_attention(
        query_HPD[None], key_HPD[None], value_HPD[None], is_causal=True, scale=scale
    )[0]


def attend_completions(
    tree: Tree, query_HTD: Tensor, key_JTD: Tensor, value_JTD: Tensor, scale: float
) -> Tensor:
    """Completions attend to their shared prompt and to themselves: (H, completion tokens, D).

    One softmax runs over both score blocks, so the prompt's keys are read once for all G.
    """
    heads, key_heads, size = len(query_HTD), len(key_JTD), query_HTD.shape[-1]
    count, longest = tree.gather_GC.shape
    repeat = heads // key_heads
    prompt = slice(tree.start, tree.start + tree.prompt)
    key_JPD, value_JPD = key_JTD[:, prompt], value_JTD[:, prompt]
    key_JGCD, value_JGCD = key_JTD[:, tree.gather_GC], value_JTD[:, tree.gather_GC]
    # (J, G, repeat * C, D): the query heads that share a key head lie side by side.
    query = query_HTD[:, tree.gather_GC] * scale
    query = query.view(key_heads, repeat, count, longest, size).transpose(1, 2)
    query = query.reshape(key_heads, count, repeat * longest, size)
    to_prompt = query.reshape(key_heads, -1, size) @ key_JPD.transpose(1, 2)
    to_prompt = to_prompt.view(key_heads, count, repeat * longest, tree.prompt)
    to_own = query @ key_JGCD.transpose(2, 3)
    hidden = tree.hidden_CC.repeat(repeat, 1)
    to_own = to_own.masked_fill(hidden, float("-inf"))
    weights = widened(torch.cat([to_prompt, to_own], dim=-1)).softmax(dim=-1).to(value_JPD.dtype)
    on_prompt = weights[..., : tree.prompt].reshape(key_heads, -1, tree.prompt)
    output = (on_prompt @ value_JPD).view(query.shape) + weights[..., tree.prompt :] @ value_JGCD
    output = output.view(key_heads, count, repeat, longest, size).transpose(1, 2)
    return output.reshape(heads, count * longest, size)[:, tree.index_K]
