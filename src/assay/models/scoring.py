"""Log-probs of completions with every distinct prompt computed once, in one packed row.

Lays prompts and completions out as trees, runs the model's own forward with a `TreePlan`, and
reads log-probs and entropies at completion positions only. Gradients flow; nothing is sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from transformers import PreTrainedModel

from assay.models.attention import Tree, TreePlan, widened

LOGIT_ROWS = 1024
"""Rows of vocabulary-wide scores turned into log-probs at a time."""


@dataclass(frozen=True)
class TreeRow:
    """A packed row of T tokens and where its S actions are predicted."""

    tokens_1T: Tensor
    positions_1T: Tensor
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
    """The tree whose prompt starts at `start` and whose completions feed `fed` tokens each."""
    lengths_G = torch.tensor(list(fed), dtype=torch.long)
    longest = max(fed, default=0)
    column_C = torch.arange(longest)
    real_GC = column_C[None] < lengths_G[:, None]
    first_G = start + prompt + lengths_G.cumsum(0) - lengths_G
    gather_GC = torch.where(real_GC, first_G[:, None] + column_C[None], start)
    hidden_CC = column_C[None] > column_C[:, None]
    return Tree(start, prompt, gather_GC, real_GC.flatten().nonzero()[:, 0], hidden_CC)


def lay_out(contexts: Sequence[tuple[int, ...]], actions_S: Tensor, offsets_N1: Tensor) -> TreeRow:
    """Lay N turns out as trees. A completion's last action is predicted but never fed."""
    spans = list(pairwise(offsets_N1.tolist()))
    actions = actions_S.tolist()
    tokens: list[int] = []
    positions: list[int] = []
    trees: list[Tree] = []
    keep: list[int] = []
    kept: list[int] = []
    order: list[int] = []
    for context, turns in distinct(contexts).items():
        start, prompt = len(tokens), len(context)
        fed = [max(spans[n][1] - spans[n][0] - 1, 0) for n in turns]
        trees.append(build_tree(start, prompt, fed))
        tokens += context
        positions += range(prompt)
        last = len(keep)
        keep.append(start + prompt - 1)
        for n, length in zip(turns, fed, strict=True):
            first, stop = spans[n]
            order += range(first, stop)
            kept += [last, *range(len(keep), len(keep) + length)][: stop - first]
            keep += range(len(tokens), len(tokens) + length)
            tokens += actions[first : first + length]
            positions += range(prompt, prompt + length)
    return TreeRow(
        tokens_1T=torch.tensor([tokens]),
        positions_1T=torch.tensor([positions]),
        plan=TreePlan(tuple(trees)),
        keep_K=torch.tensor(keep),
        kept_S=torch.tensor(kept, dtype=torch.long),
        order_S=torch.tensor(order, dtype=torch.long),
    )


def to_device(row: TreeRow, device: torch.device) -> TreeRow:
    """The same row on the model's device."""
    if device.type == "cpu":
        return row
    trees = tuple(
        Tree(t.start, t.prompt, *(x.to(device) for x in (t.gather_GC, t.index_K, t.hidden_CC)))
        for t in row.plan.trees
    )
    moved = (row.keep_K.to(device), row.kept_S.to(device), row.order_S.to(device))
    return TreeRow(row.tokens_1T.to(device), row.positions_1T.to(device), TreePlan(trees), *moved)


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
    the model's device, in the order of `actions_S`. Contexts must not be empty.
    """
    row = to_device(lay_out(contexts, actions_S, offsets_N1), model.device)
    logits_KV = model(
        input_ids=row.tokens_1T,
        position_ids=row.positions_1T,
        use_cache=False,
        logits_to_keep=row.keep_K,
        plan=row.plan,
    ).logits[0]
    targets_S = actions_S.to(model.device)[row.order_S]
    logps_S, entropy_S = read_logits(logits_KV, row.kept_S, targets_S, temperature, entropy)
    back_S = torch.empty_like(row.order_S)
    back_S[row.order_S] = torch.arange(len(back_S), device=back_S.device)
    return logps_S[back_S], None if entropy_S is None else entropy_S[back_S]


def read_logits(
    logits_KV: Tensor, kept_S: Tensor, targets_S: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probs (S) of `targets_S`, each read at row `kept_S` of the logits, and entropies (S)."""
    normalisers, entropies = [], []
    for rows_RV in logits_KV.split(LOGIT_ROWS):
        scaled_RV = widened(rows_RV) / temperature
        normaliser_R = scaled_RV.logsumexp(dim=-1)
        normalisers.append(normaliser_R)
        if entropy:
            shifted_RV = scaled_RV - normaliser_R[:, None]
            entropies.append(-(shifted_RV.exp() * shifted_RV).sum(dim=-1))
    chosen_S = widened(logits_KV[kept_S, targets_S]) / temperature
    logps_S = chosen_S - torch.cat(normalisers)[kept_S]
    return logps_S, torch.cat(entropies)[kept_S] if entropy else None
