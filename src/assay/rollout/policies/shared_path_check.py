"""Does the shared path compute what the model means? Asked on real turns before they train.

A few turns of a long and a short group go through the shared forward and through the plain one:
log-probs, loss and gradient must agree, and so must the log-probs that the rollout recorded. What
is allowed is in `tolerances`. The check leaves no trace: no gradient, no random number drawn, no
weight changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import torch
from torch import Tensor, nn

from assay.models.first_difference import first_difference, score_plainly
from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy, Scores
from assay.rollout.policies.language import LanguagePolicy, LocalSampler
from assay.rollout.policies.tolerances import Differences, Gradients, judge

TURNS = 4
"""Turns looked at, half of each group: they share a prompt and their lengths differ."""


def check_language_policy(
    policy: Policy, packed: Packed, objective: Objective, *, tokens: int
) -> dict[str, float]:
    """Compare the paths on a long and a short group of `packed`, of those that carry signal.

    `tokens` is the budget of the plain path, the prompt counted for every turn; two turns of each
    group always go. Costs two updates of so many tokens, in bf16 four. Returns metrics; raises
    SelfCheckFailed.
    """
    assert isinstance(policy, LanguagePolicy)
    sample = packed.take(chosen_turns(packed, tokens))
    turns = (sample.contexts, sample.actions_S, sample.offsets_N1)
    with without_dropout(policy.module):
        try:
            found = measure(policy, sample, objective)
        finally:
            policy.module.zero_grad(set_to_none=True)
        return judge(found, lambda: first_difference(policy.module, *turns))


def chosen_turns(packed: Packed, tokens: int) -> list[int]:
    """Turns of a long and of a short group, those that share the group's first context before
    others: what depends on the longest sequence of a row shows in the short one.
    """
    lengths_N = sequence_lengths(packed)
    groups = long_and_short(packed, lengths_N)
    chosen: list[int] = []
    spent = 0
    for group in groups:
        members = (packed.group_N == group).nonzero()[:, 0].tolist()
        first = members[0]
        members.sort(key=lambda n: packed.contexts[n] != packed.contexts[first])
        for place, n in enumerate(members[: TURNS // len(groups)]):
            spent += int(lengths_N[n])
            if place >= 2 and spent > tokens:
                break
            chosen.append(n)
    return chosen


def sequence_lengths(packed: Packed) -> Tensor:
    """Tokens of each turn, its context included (N)."""
    contexts_N = torch.tensor([len(context) for context in packed.contexts])
    return contexts_N + packed.offsets_N1.diff()


def long_and_short(packed: Packed, lengths_N: Tensor) -> list[int]:
    """The group with the longest sequence and the one with the shortest of those with signal; where
    only one has signal, that one and the other that differs most from it in length.
    """
    signal_S = (packed.weight_S * packed.advantage_S).abs()
    signal_N = torch.zeros(len(packed.contexts)).index_add(0, packed.turn_S, signal_S.float())
    heard = packed.group_N[signal_N > 0].unique().tolist()
    longest = {
        group: int(lengths_N[packed.group_N == group].max())
        for group in packed.group_N.unique().tolist()
    }
    first = max(heard or longest, key=lambda group: longest[group])
    others = [group for group in (heard if len(heard) > 1 else longest) if group != first]
    if not others:
        return [first]
    return [first, max(others, key=lambda group: abs(longest[group] - longest[first]))]


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Inside, dropout lets everything through and draws nothing; all else stays as in training."""
    active = [m for m in module.modules() if isinstance(m, nn.Dropout) and m.training]
    for dropout in active:
        dropout.eval()
    try:
        yield
    finally:
        for dropout in active:
            dropout.train()


def measure(policy: LanguagePolicy, sample: Packed, objective: Objective) -> Differences:
    """Run both paths. Gradients are added with opposite signs, so only one set is ever held.

    The log-probs are pulled by the size of the loss's derivatives: with their signs, completions
    that pull in opposite directions may cancel and leave nothing but rounding to be compared.
    """
    entropy = objective.needs.entropy
    rough = policy.precision.compute != policy.precision.master
    shared = policy.score(sample, entropy)
    loss, slopes = slopes_of(objective, shared, sample)
    push(shared, slopes)
    norms = gradient_norms(policy.module)
    plain = push_plainly(policy, sample, slopes, sign=-1.0)
    errors = gradient_norms(policy.module)
    rounding_S, roundings = torch.zeros(()), dict.fromkeys(norms, 0.0)
    if rough:
        policy.module.zero_grad(set_to_none=True)
        push_plainly(policy, sample, slopes, sign=1.0)
        full = push_plainly(policy, sample, slopes, sign=-1.0, autocast=False)
        roundings = gradient_norms(policy.module)
        rounding_S = (plain.logps_S - full.logps_S).abs()
    return Differences(
        logp_S=(shared.logps_S.detach() - plain.logps_S).abs(),
        rollout_S=rollout_gap(policy, shared, sample),
        rounding_S=rounding_S if rough else None,
        loss=abs(loss - slopes_of(objective, plain, sample)[0]),
        slope=float(slopes.logps_S.sum()),
        gradients=Gradients(norms, errors, roundings),
    )


def rollout_gap(policy: LanguagePolicy, shared: Scores, sample: Packed) -> Tensor:
    """Absolute differences (S) from what the rollout recorded; 0 for an engine of someone else's,
    whose numerics are its own and which the loop's limit on the gap watches."""
    if not isinstance(policy.sampler, LocalSampler) or sample.behaviour_S is None:
        return torch.zeros(1)
    return (shared.logps_S.detach() - sample.behaviour_S).abs()


def slopes_of(objective: Objective, scores: Scores, sample: Packed) -> tuple[float, Scores]:
    """The loss, and the sizes of its derivatives by log-probs (S) and by entropies (S)."""
    logps_S = scores.logps_S.detach().requires_grad_()
    entropy_S = None
    if scores.entropy_S is not None:
        entropy_S = scores.entropy_S.detach().requires_grad_()
    loss = objective(Scores(logps_S, entropy_S), sample).loss
    loss.backward()
    assert logps_S.grad is not None
    by_entropy_S = None if entropy_S is None or entropy_S.grad is None else entropy_S.grad.abs()
    return float(loss.detach()), Scores(logps_S.grad.abs(), by_entropy_S)


def push(scores: Scores, slopes: Scores, sign: float = 1.0) -> None:
    """Add the gradient that the slopes give, times `sign`, to the weights' gradients."""
    outputs, upstream = [scores.logps_S], [sign * slopes.logps_S]
    if scores.entropy_S is not None and slopes.entropy_S is not None:
        outputs.append(scores.entropy_S)
        upstream.append(sign * slopes.entropy_S)
    torch.autograd.backward(outputs, upstream)


def push_plainly(
    policy: LanguagePolicy, sample: Packed, slopes: Scores, *, sign: float, autocast: bool = True
) -> Scores:
    """The plain path's scores, its gradient added turn by turn at the shared path's slopes."""
    logps, entropies = [], []
    for n, (first, stop) in enumerate(pairwise(sample.offsets_N1.tolist())):
        scores = score_turn(policy, sample, n, slopes.entropy_S is not None, autocast)
        push(scores, part(slopes, first, stop), sign)
        logps.append(scores.logps_S.detach())
        if scores.entropy_S is not None:
            entropies.append(scores.entropy_S.detach())
    return Scores(torch.cat(logps), torch.cat(entropies) if entropies else None)


def score_turn(
    policy: LanguagePolicy, sample: Packed, turn: int, entropy: bool, autocast: bool
) -> Scores:
    """One turn's scores by the plain path, on the CPU; without autocast in the masters' type."""
    alone = sample.take([turn])
    with policy.precision.autocast() if autocast else nullcontext():
        logps_C, entropy_C = score_plainly(
            policy.module,
            alone.contexts,
            alone.actions_S,
            alone.offsets_N1,
            temperature=sample.temperature,
            entropy=entropy,
        )
    return Scores(logps_C.cpu(), None if entropy_C is None else entropy_C.cpu())


def part(slopes: Scores, first: int, stop: int) -> Scores:
    """The slopes of one turn."""
    entropy_S = slopes.entropy_S
    return Scores(slopes.logps_S[first:stop], None if entropy_S is None else entropy_S[first:stop])


def gradient_norms(module: nn.Module) -> dict[str, float]:
    """The norm of each trained parameter's gradient, by name."""
    return {
        name: float(parameter.grad.norm())
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
