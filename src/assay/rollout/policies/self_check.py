"""Compares the policy's forward with one sequence at a time, before real turns are trained on.

The policy's is the packed path, or for other families the plain one, whose batches are padded. The
reference is Transformers' forward of each turn alone. A few turns of a long and a short group go
through both: log-probs, loss and gradient must agree, and so must the log-probs that the rollout
recorded. In fp32 the tolerances are constants, but that of a gradient is a multiple of the
reference's own rounding where that is more: how far it moves in fp64. In bf16 rounding alone makes
correct results differ, so all are multiples of how far the reference moves between bf16 and fp32 on
the same turns. The check leaves no gradient, draws no random number and changes no weight.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from assay.data.episode import tokens_of
from assay.errors import RunFailure
from assay.models.plain_forward import score_plainly
from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores, Policy
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.engines.plain_sampler import PlainSampler
from assay.rollout.policies.language import LanguagePolicy

LOGP = 1e-4
"""Largest difference of a log-prob in fp32. SmolLM2-135M (30 layers) shows 2.7e-5."""
ROLLOUT_LOGP = 3e-4
"""The same of what the rollout recorded, a token at a time. SmolLM2-135M shows 6.1e-5."""
GRADIENT = 1e-3
"""Largest relative difference of a parameter's gradient in fp32, on top of rounding. SmolLM2-135M
shows 2e-4, and once 1.03e-3 in a norm whose gradient is a tenth of its family's."""
LOSS = 1e-5
"""Difference of the loss on top of what the log-probs' allowance amounts to."""
ROUNDINGS = 4.0
"""bf16: times the plain path's own rounding. Errors of equal size and any direction give 1 to 2;
SmolLM2-135M shows up to 1.5 for log-probs and up to 3 for the gradient of a single parameter."""
ROLLOUT_ROUNDINGS = 6.0
"""bf16: the same for the rollout, a third way of computing. SmolLM2-135M shows up to 1.9."""
UNSTEADY, UNSTEADY_GRADIENT = 0.1, 0.5
"""bf16: over the root of the tokens, on top, because the rounding of a few tokens scatters."""
NOTICEABLE = 0.1
"""A parameter's gradient counts as at least this share of its family's: what is far smaller is what
cancellation left, as in a bias on keys, which moves all scores of a query alike."""

FAMILIES = (("norm",), ("attn", "attention"), ("mlp", "feed_forward", "ffn"))
FAMILIES += (("embed", "lm_head", "wte", "wpe"),)
"""Layer families by parts of parameter names, the first that fits."""


@dataclass(frozen=True)
class Gradients:
    """Norms by parameter: of the gradient, of the paths' difference, of the plain path's rounding
    (0 where it was not needed)."""

    norms: Mapping[str, float]
    errors: Mapping[str, float]
    roundings: Mapping[str, float]


@dataclass(frozen=True)
class Differences:
    """What the check measured on S tokens; absolute differences."""

    logp_S: Tensor
    rollout_S: Tensor
    rounding_S: Tensor | None
    """Of log-probs between bf16 and fp32 on the plain path; None in fp32."""
    loss: float
    slope: float
    """By how much the loss moves at most when every log-prob moves by 1 at most."""
    gradients: Gradients


def family_of(parameter: str) -> int:
    """The number of a parameter's layer family, adapters with the layer they adapt."""
    fits = (n for n, parts in enumerate(FAMILIES) if any(p in parameter for p in parts))
    return next(fits, len(FAMILIES))


def spread(differences: Differences, values_S: Tensor) -> float:
    """The largest value in fp32; the mean in bf16, where single tokens scatter widely."""
    return float(values_S.max() if differences.rounding_S is None else values_S.mean())


def rounding_of(differences: Differences) -> tuple[float, float]:
    """The plain path's own rounding, mean over S tokens, and 1 / sqrt(S); both 0 in fp32."""
    if differences.rounding_S is None:
        return 0.0, 0.0
    return float(differences.rounding_S.mean()), len(differences.rounding_S) ** -0.5


def judge(differences: Differences) -> dict[str, float]:
    """Metrics of a check that passed; raises RunFailure, for the rollout last."""
    rounding, few = rounding_of(differences)
    logp, rollout = (
        spread(differences, differences.logp_S),
        spread(differences, differences.rollout_S),
    )
    excess, relative = gradient_excess(differences.gradients, GRADIENT + UNSTEADY_GRADIENT * few)
    allowed = LOGP + ROUNDINGS * rounding + UNSTEADY * few
    expect("log-probs of the policy and of one sequence at a time differ", logp, allowed)
    expect("their losses differ", differences.loss, LOSS + differences.slope * allowed)
    expect("their gradients differ, in units of the allowed,", excess, 1.0)
    allowed = ROLLOUT_LOGP + ROLLOUT_ROUNDINGS * rounding + UNSTEADY * few
    expect("log-probs of rollout and training differ", rollout, allowed)
    return {
        "self_check_logp": logp,
        "self_check_loss": differences.loss,
        "self_check_gradient": relative,
        "self_check_rollout": rollout,
    }


def expect(what: str, value: float, allowed: float) -> None:
    """Raise RunFailure where a value is above what is allowed, or not a number."""
    if not value <= allowed:
        raise RunFailure(
            f"self-check: {what} by {value:.3g}, allowed {allowed:.3g}; use the pinned versions of "
            "torch and transformers, or a model of another family (docs/models.md)"
        )


def gradient_excess(gradients: Gradients, allowed: float) -> tuple[float, float]:
    """Over all parameters, the largest error in units of the allowed, and the largest relative.

    Rounding, the parameter's or its family's, is allowed on top of `allowed`.
    """
    norms, roundings = by_family(gradients.norms), by_family(gradients.roundings)
    excess, relative = [0.0], [0.0]
    for name, error in gradients.errors.items():
        family = family_of(name)
        norm = max(gradients.norms[name], NOTICEABLE * norms[family])
        own = ratio(gradients.roundings[name], norm)
        rounding = max(own, ratio(roundings[family], norms[family]))
        relative.append(ratio(error, norm))
        excess.append(relative[-1] / (allowed + ROUNDINGS * rounding))
    return max(excess), max(relative)


def by_family(values: Mapping[str, float]) -> dict[int, float]:
    """The norm of each family from those of its parameters."""
    squares: dict[int, float] = {}
    for name, value in values.items():
        family = family_of(name)
        squares[family] = squares.get(family, 0.0) + value**2
    return {family: square**0.5 for family, square in squares.items()}


def ratio(error: float, norm: float) -> float:
    """error / norm; 0 of no error, infinite where a number is missing."""
    if error == 0:
        return 0.0
    return error / norm if norm and math.isfinite(error) else math.inf


TURNS = 4
"""Turns looked at, half of each group: they share a prompt and their lengths differ."""


def check_language_policy(
    policy: Policy, packed: Packed, objective: Objective, *, tokens: int
) -> dict[str, float]:
    """Compare the paths on a long and a short group of `packed`, of those that carry signal.

    `tokens` is the budget of the plain path, the prompt counted for every turn; two turns of each
    group always go. Costs two updates of so many tokens, in bf16 four. Returns metrics; raises
    RunFailure.
    """
    assert isinstance(policy, LanguagePolicy)
    sample = packed.take(chosen_turns(packed, tokens))
    with without_dropout(policy.module):
        try:
            return judge(measure(policy, sample, objective))
        finally:
            policy.module.zero_grad(set_to_none=True)


def in_tokens(packed: Packed) -> list[tuple[int, ...]]:
    """The context of each turn."""
    return [tokens_of(context) for context in packed.contexts]


def chosen_turns(packed: Packed, tokens: int) -> list[int]:
    """Turns of a long and of a short group, those that share the group's first context before
    others: what depends on the longest sequence of a row shows in the short one.
    """
    contexts_N = torch.tensor([len(context) for context in in_tokens(packed)])
    lengths_N = contexts_N + packed.offsets_N1.diff()
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
    with policy.precision.autocast():
        plain = push_plainly(policy.module, sample, slopes, sign=-1.0)
    errors = gradient_norms(policy.module)
    rounding_S, roundings = torch.zeros(()), dict.fromkeys(norms, 0.0)
    if rough:
        policy.module.zero_grad(set_to_none=True)
        with policy.precision.autocast():
            push_plainly(policy.module, sample, slopes, sign=1.0)
        full = push_plainly(policy.module, sample, slopes, sign=-1.0)
        roundings = gradient_norms(policy.module)
        rounding_S = (plain.logps_S - full.logps_S).abs()
    elif gradient_excess(Gradients(norms, errors, roundings), GRADIENT)[0] > 1:
        roundings = rounding_in_fp32(policy, sample, slopes)
    return Differences(
        logp_S=(shared.logps_S.detach() - plain.logps_S).abs(),
        rollout_S=rollout_gap(policy, shared, sample),
        rounding_S=rounding_S if rough else None,
        loss=abs(loss - slopes_of(objective, plain, sample)[0]),
        slope=float(slopes.logps_S.sum()),
        gradients=Gradients(norms, errors, roundings),
    )


def rounding_in_fp32(
    policy: LanguagePolicy, sample: Packed, slopes: ActionScores
) -> dict[str, float]:
    """The norm of what each parameter's gradient of the plain path differs by in fp64."""
    policy.module.zero_grad(set_to_none=True)
    exact = copy.deepcopy(policy.module).double()
    for module in (policy.module, exact):
        push_plainly(module, sample, slopes, sign=1.0)
    precise = {name: parameter.grad for name, parameter in exact.named_parameters()}
    return {
        name: float((parameter.grad - grad).norm())
        for name, parameter in policy.module.named_parameters()
        if parameter.grad is not None and (grad := precise[name]) is not None
    }


def rollout_gap(policy: LanguagePolicy, shared: ActionScores, sample: Packed) -> Tensor:
    """Absolute differences (S) from what the rollout recorded; 0 for an engine of someone else's,
    whose numerics are its own and which the loop's limit on the gap watches."""
    if not isinstance(policy.sampler, LocalSampler | PlainSampler) or sample.behaviour_S is None:
        return torch.zeros(1)
    return (shared.logps_S.detach() - sample.behaviour_S).abs()


def slopes_of(
    objective: Objective, scores: ActionScores, sample: Packed
) -> tuple[float, ActionScores]:
    """The loss, and the sizes of its derivatives by log-probs (S) and by entropies (S)."""
    logps_S = scores.logps_S.detach().requires_grad_()
    entropy_S = None
    if scores.entropy_S is not None:
        entropy_S = scores.entropy_S.detach().requires_grad_()
    loss = objective(ActionScores(logps_S, entropy_S), sample).loss
    loss.backward()
    assert logps_S.grad is not None
    by_entropy_S = None if entropy_S is None or entropy_S.grad is None else entropy_S.grad.abs()
    return float(loss.detach()), ActionScores(logps_S.grad.abs(), by_entropy_S)


def push(scores: ActionScores, slopes: ActionScores, sign: float = 1.0) -> None:
    """Add the gradient that the slopes give, times `sign`, to the weights' gradients."""
    outputs, upstream = [scores.logps_S], [sign * slopes.logps_S.to(scores.logps_S)]
    if scores.entropy_S is not None and slopes.entropy_S is not None:
        outputs.append(scores.entropy_S)
        upstream.append(sign * slopes.entropy_S.to(scores.entropy_S))
    torch.autograd.backward(outputs, upstream)


def push_plainly(
    module: nn.Module, sample: Packed, slopes: ActionScores, *, sign: float
) -> ActionScores:
    """The plain path's scores, its gradient added turn by turn at the shared path's slopes."""
    logps, entropies = [], []
    for n, (first, stop) in enumerate(pairwise(sample.offsets_N1.tolist())):
        entropy = slopes.entropy_S is not None
        alone = sample.take([n])
        logps_C, entropy_C = score_plainly(
            module,
            in_tokens(alone),
            alone.actions_S,
            alone.offsets_N1,
            temperature=sample.temperature,
            entropy=entropy,
        )
        scores = ActionScores(logps_C.cpu(), None if entropy_C is None else entropy_C.cpu())
        by_entropy_S = None if slopes.entropy_S is None else slopes.entropy_S[first:stop]
        push(scores, ActionScores(slopes.logps_S[first:stop], by_entropy_S), sign)
        logps.append(scores.logps_S.detach())
        if scores.entropy_S is not None:
            entropies.append(scores.entropy_S.detach())
    return ActionScores(torch.cat(logps), torch.cat(entropies) if entropies else None)


def gradient_norms(module: nn.Module) -> dict[str, float]:
    """The norm of each trained parameter's gradient, by name."""
    return {
        name: float(parameter.grad.norm())
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
