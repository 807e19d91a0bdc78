"""Log-probs of completions with every distinct prompt computed once, in one packed row.

Lays prompts and completions out as trees, runs the layers with a `TreePlan`, and reads log-probs
and entropies at completion positions only. Gradients flow; nothing is sampled.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.data.episode import continues
from assay.errors import InputError
from assay.models.attention import TreePlan
from assay.models.head import Reads, head_logps
from assay.models.layers import multipliers, run_layers, times
from assay.models.numeric import moved
from assay.models.supported import FAMILIES, refuse_length_dependent
from assay.models.tree_attention import Tree


@dataclass(frozen=True)
class TreeRow:
    """A packed row of T tokens and where its S actions are predicted."""

    tokens_T: Tensor
    positions_T: Tensor
    plan: TreePlan
    keep_K: Tensor
    """Positions in T whose next token is an action of some completion."""
    kept_S: Tensor
    """For each action, the index into `keep_K` of the position that predicts it."""
    order_S: Tensor
    """For each action in the row's own order, its index among the caller's actions."""


def distinct(contexts: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """Indices of the turns that share each context, contexts in order of first appearance."""
    members: dict[tuple[int, ...], list[int]] = {}
    for n, context in enumerate(contexts):
        members.setdefault(context, []).append(n)
    return members


def build_tree(start: int, prompt: int, fed: Sequence[int]) -> Tree:
    """The tree whose prompt starts at `start` and whose completions feed `fed` tokens each.

    A single completion simply continues its prompt.
    """
    if len(fed) == 1 or not any(fed):
        return Tree(start, prompt + sum(fed), ())
    return Tree(start, prompt, tuple(fed))


@dataclass(frozen=True)
class Chain:
    """Turns that extend each other, so that one sequence covers them all."""

    turns: tuple[int, ...]
    tokens: tuple[int, ...]
    """The last turn's context and its actions, but for the last one, which is never fed."""


def find_chains(
    contexts: Sequence[tuple[int, ...]], actions: Sequence[tuple[int, ...]]
) -> list[Chain]:
    """Join each turn whose context begins with the previous turn and its actions to that turn."""
    chains: list[list[int]] = []
    for n, context in enumerate(contexts):
        if n and continues(context, contexts[n - 1], actions[n - 1]):
            chains[-1].append(n)
        else:
            chains.append([n])
    return [Chain(tuple(c), contexts[c[-1]] + actions[c[-1]][:-1]) for c in chains]


def lay_out(contexts: Sequence[tuple[int, ...]], actions_S: Tensor, offsets_N1: Tensor) -> TreeRow:
    """Lay N turns out as trees: a shared first context, then what each chain adds to it."""
    spans = list(pairwise(offsets_N1.tolist()))
    whole = actions_S.tolist()
    chains = find_chains(contexts, [tuple(whole[first:stop]) for first, stop in spans])
    tokens: list[int] = []
    positions: list[int] = []
    trees: list[Tree] = []
    keep: list[int] = []
    kept: list[int] = []
    order: list[int] = []
    for root, members in distinct([contexts[chain.turns[0]] for chain in chains]).items():
        start, prompt = len(tokens), len(root)
        together = [chains[m] for m in members]
        trees.append(build_tree(start, prompt, [len(c.tokens) - prompt for c in together]))
        tokens += root
        positions += range(prompt)
        last = len(keep)
        keep.append(start + prompt - 1)
        for chain in together:
            # Position p >= prompt of this chain lies at base + p in T.
            base = len(tokens) - prompt
            tokens += chain.tokens[prompt:]
            positions += range(prompt, len(chain.tokens))
            for n in chain.turns:
                first, stop = spans[n]
                order += range(first, stop)
                # The token before an action predicts it: for first actions the prompt's last one.
                before = range(len(contexts[n]) - 1, len(contexts[n]) - 1 + stop - first)
                for place in before:
                    kept.append(last if place < prompt else len(keep))
                    if place >= prompt:
                        keep.append(base + place)
    return TreeRow(
        tokens_T=torch.tensor(tokens),
        positions_T=torch.tensor(positions),
        plan=TreePlan(tuple(trees)),
        keep_K=torch.tensor(keep),
        kept_S=torch.tensor(kept, dtype=torch.long),
        order_S=torch.tensor(order, dtype=torch.long),
    )


def to_device(row: TreeRow, device: torch.device) -> TreeRow:
    """The same row on the model's device."""
    if device.type == "cpu":
        return row
    others = (row.keep_K, row.kept_S, row.order_S)
    return TreeRow(
        moved(row.tokens_T, device),
        moved(row.positions_T, device),
        row.plan,
        *(moved(indices, device) for indices in others),
    )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Inside, no dropout; afterwards every part is in the mode that it had."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def score_actions(
    model: PreTrainedModel,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs (S) of the actions after their contexts, and entropies (S) if asked.

    Both are of softmax(logits / temperature) over the whole vocabulary, in at least float32, on
    the model's device, in the order of `actions_S`. Contexts must not be empty; the model's weights
    are float32 or wider. Raises InputError for a model whose scores are more than a
    projection, and InputError for attention that plans do not compute.
    """
    row = to_device(lay_out(contexts, actions_S, offsets_N1), model.device)
    causal: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    head = plain_head(causal)
    factors = multipliers(causal.config)
    hidden_TD = times(embed(causal, head, row.tokens_T), factors.embedding)
    hidden_KD = run_layers(causal.base_model, hidden_TD, row.positions_T, row.plan, row.keep_K)
    # Scaled logits are those of another temperature.
    warmth = temperature / factors.logits
    reads = Reads(row.kept_S, moved(actions_S, model.device)[row.order_S], warmth, entropy)
    logps_S, entropy_S = head_logps(hidden_KD, head.weight, head.bias, reads)
    # The inverse permutation, back to the caller's order.
    back_S = torch.empty_like(row.order_S)
    back_S[row.order_S] = torch.arange(len(back_S), device=back_S.device)
    return logps_S[back_S], None if entropy_S is None else entropy_S[back_S]


def plain_head(causal: PreTrainedModel) -> nn.Linear:
    """The output projection, where the vocabulary scores are just that.

    Raises InputError elsewhere.
    """
    head = causal.get_output_embeddings()
    if causal.config.model_type not in FAMILIES or type(head) is not nn.Linear:
        raise InputError(
            f"the packed path does not compute the vocabulary scores of {type(causal).__name__}",
            fix=f"use a model of type {', '.join(FAMILIES)}, its head without an adapter",
        )
    refuse_length_dependent(causal.config)
    return head


def embed(causal: PreTrainedModel, head: nn.Linear, tokens_T: Tensor) -> Tensor:
    """Embeddings (T, D) of the tokens.

    Where they share their weight with the head, their gradient is sparse: it is added to the
    head's, row by row, in place of another dense matrix of the size of the vocabulary.
    """
    layer: Any = causal.get_input_embeddings()
    if type(layer) is nn.Embedding and layer.weight is head.weight:
        return F.embedding(tokens_T, layer.weight, layer.padding_idx, sparse=True)
    return layer(tokens_T)
