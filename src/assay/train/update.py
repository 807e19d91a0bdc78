"""One optimizer update from a packed batch: micro-batches, exact accumulation, clipping.

Micro-batches stay within a token budget and never split an atom. Weights already carry the
denominators of the whole batch, so the gradients of any split add up to the whole gradient. Works
for any policy, weights and objective; methods are not known here. Also lays conversations into
packs, and makes the optimizer.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from assay.data.episode import Context
from assay.errors import InputError
from assay.models.lora import next_masks
from assay.models.memory import OptimizerName
from assay.models.precision import repeatable_sums
from assay.rl.objectives import Objective, ObjectiveOutput
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.rollout.episodes import turn_finished


@dataclass(frozen=True, slots=True)
class Schedule:
    """From `start` at the first step to `end` at the last of `steps`; it stays there."""

    start: float
    end: float
    steps: int
    shape: Literal["linear", "cosine"] = "linear"

    def at(self, step: int) -> float:
        """The value at `step`, counted from 0."""
        last = max(self.steps - 1, 1)
        if self.shape == "cosine":
            share = 0.5 * (1 - math.cos(math.pi * min(step, last) / last))
            return self.start + (self.end - self.start) * share
        return self.start + (self.end - self.start) * min(step, last) / last

    @property
    def most(self) -> float:
        """The greatest value of all."""
        return max(self.start, self.end)


def constant(value: float) -> Schedule:
    """A number that stays as it is."""
    return Schedule(value, value, 1)


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Warm-up from 0 to `lr`, then one of three shapes down to `min_lr`."""

    lr: float
    steps: int
    shape: Literal["constant", "cosine", "linear"] = "constant"
    warmup: float = 0.0
    """Share of the steps over which the rate rises linearly, reaching `lr` at their end."""
    min_lr: float = 0.0

    def at(self, step: int) -> float:
        """The rate of update `step`, counted from 0; the first is never at 0.

        The step after the last would be at `min_lr`, as in Transformers' schedulers.
        """
        rising = round(self.steps * self.warmup)
        if step < rising:
            return self.lr * ((step + 1) / rising)
        share = (step - rising) / max(self.steps - rising, 1)
        if self.shape == "cosine":
            return self.min_lr + (self.lr - self.min_lr) * (0.5 * (1 + math.cos(math.pi * share)))
        if self.shape == "linear":
            return self.min_lr + (self.lr - self.min_lr) * (1 - share)
        return self.lr


def atoms(packed: Packed, atom: str) -> list[list[int]]:
    """Turn indices that must stay together: each turn, or the turns of an episode, a group or a
    pair, which is packed as a group."""
    if atom in ("token", "turn"):
        return [[n] for n in range(len(packed.contexts))]
    owner_N = packed.episode_N if atom == "episode" else packed.group_N
    members: dict[int, list[int]] = {}
    for n, owner in enumerate(owner_N.tolist()):
        members.setdefault(owner, []).append(n)
    return list(members.values())


def micro_batches(policy: Policy, packed: Packed, atom: str, budget: int) -> Iterator[Packed]:
    """Micro-batches in order; an atom larger than the budget gets one of its own.

    An atom stays with the context that it shares, beyond the budget, as long as that context is
    half of all or more: a prompt that fills the budget is not computed for each completion alone.
    So a micro-batch has at most `budget` tokens, or twice the longest context.
    """
    return map(packed.take, micro_turns(policy, packed, atom, budget))


def micro_turns(policy: Policy, packed: Packed, atom: str, budget: int) -> Iterator[list[int]]:
    """The turns of each of `micro_batches`."""
    bill = Bill(policy, packed)
    for members in atoms(packed, atom):
        added = bill.price(members)
        if bill.turns and bill.spent + added > budget:
            alone = Bill(policy, packed).price(members)
            shared = alone - added
            if bill.spent + added > 2 * shared:
                yield bill.turns
                bill, added = Bill(policy, packed), alone
        bill.add(members, added)
    if bill.turns:
        yield bill.turns


@dataclass(frozen=True, slots=True)
class MicroBatchSize:
    """The most that a micro-batch holds."""

    tokens: int
    """Tokens that go through the layers."""
    scored: int
    """Positions at which words are scored."""
    longest: int
    """Tokens of the longest turn with its context, which no budget cuts."""


def largest_micro_batch(
    turns: Sequence[tuple[Context, int]],
    size: Callable[[Any], int],
    *,
    together: int,
    budget: int,
    group: int = 1,
) -> MicroBatchSize:
    """An upper bound of what `micro_batches` makes, whichever rows meet in an update.

    `turns` are contexts and how many actions follow each in every one of `group` completions; an
    update has `together` of them. It counts the longest rows, not the mean.
    """
    if not turns:
        return MicroBatchSize(0, 0, 0)
    sizes = [(size(context), actions) for context, actions in turns]
    longest = max(context + actions for context, actions in sizes)
    wholes = sorted((context + group * actions for context, actions in sizes), reverse=True)
    whole = sum(wholes[:together])
    tokens = max(min(budget, whole), longest)
    wide = [context for context, _ in turns if 2 * size(context) > tokens]
    shared = [context for context, count in Counter(wide).items() if count * group > 1]
    # Completions stay with the context that they share, up to as many tokens as it has.
    tokens = max([tokens, *(min(2 * size(context), whole) for context in shared)])
    share = max(group * actions / max(context + group * actions, 1) for context, actions in sizes)
    return MicroBatchSize(tokens, math.ceil(share * tokens), longest)


class Bill:
    """The turns of a micro-batch so far and the tokens they cost."""

    def __init__(self, policy: Policy, packed: Packed):
        """An empty micro-batch of this batch."""
        self.policy, self.packed = policy, packed
        self.lengths = packed.offsets_N1.diff().tolist()
        self.turns: list[int] = []
        self.seen: set[Context] = set()
        self.spent = 0

    def price(self, members: list[int]) -> int:
        """Tokens that these turns would add: a context that is in the micro-batch costs nothing,
        one that extends the previous turn costs its new tokens."""
        seen, total = set(self.seen), 0
        before = self.turns[-1] if self.turns else None
        for n in members:
            total += self.lengths[n] + self._context(n, before, seen)
            seen.add(self.packed.contexts[n])
            before = n
        return total

    def _context(self, turn: int, before: int | None, seen: set[Context]) -> int:
        context = self.packed.contexts[turn]
        if context in seen:
            return 0
        cost = self.policy.context_cost(context)
        if before is not None and self.packed.goes_on(before, turn):
            known = self.policy.context_cost(self.packed.contexts[before])
            return cost - known - self.lengths[before]
        return cost

    def add(self, members: list[int], cost: int) -> None:
        """Take these turns in."""
        self.turns += members
        self.seen |= {self.packed.contexts[n] for n in members}
        self.spent += cost


ROUNDING = 1e-5
"""Share of sum(weight * |loss|) by which a sum in single precision may be off."""


@dataclass
class Totals:
    """What an objective said of a batch, added over its micro-batches."""

    sums: dict[str, float] = field(default_factory=dict)
    """The objective's additive metrics."""
    parts: dict[str, float] = field(default_factory=dict)
    """Parts of the loss."""
    coefficients: dict[str, float] = field(default_factory=dict)
    """By part."""
    loss: float = 0.0
    """As it was differentiated."""
    size: float = 0.0
    """See `ObjectiveOutput.size`."""

    def add(self, output: ObjectiveOutput) -> None:
        """Take in one micro-batch."""
        sums, parts = ({n: float(v) for n, v in m.items()} for m in (output.sums, output.parts))
        coefficients, loss = dict(output.coefficients), float(output.loss.detach())
        self.join(Totals(sums, parts, coefficients, loss, float(output.size)))

    def join(self, other: "Totals") -> None:
        """Take in what was said of other micro-batches."""
        for mine, theirs in ((self.sums, other.sums), (self.parts, other.parts)):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0.0) + value
        self.coefficients.update(other.coefficients)
        self.loss += other.loss
        self.size += other.size

    @property
    def sum_of_parts(self) -> float:
        """sum(coefficient * part)."""
        return math.fsum(self.coefficients[name] * value for name, value in self.parts.items())

    @property
    def adds_up(self) -> bool:
        """Whether the parts make the loss, to `ROUNDING` of its size; a loss that is not finite is
        no sum."""
        off = abs(self.loss - self.sum_of_parts)
        return not math.isfinite(self.loss) or off <= ROUNDING * self.size


@dataclass(frozen=True)
class UpdateResult:
    """The result of one update."""

    grad_norm: float
    """Global norm before clipping."""
    stepped: bool
    """False where the update was skipped for a non-finite gradient."""
    totals: Totals
    """Of all its micro-batches."""


@runtime_checkable
class Spread(Protocol):
    """A policy whose work several processes share (`train.ranks`)."""

    own: Policy
    """This process's copy."""

    @property
    def whole(self) -> bool:
        """Whether this process holds all weights."""
        ...

    def update(
        self,
        packed: Packed,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        micro_tokens: int,
        clip_norm: float,
    ) -> UpdateResult:
        """See `update`."""
        ...

    def score_all(
        self, packed: Packed, budget: int, entropy: bool, atom: str
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `grpo.score_all`."""
        ...


def alone(policy: Policy) -> Policy | None:
    """The policy as this process has it by itself; None where it holds a part of the weights."""
    if not isinstance(policy, Spread):
        return policy
    return policy.own if policy.whole else None


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters an update changes."""
    return [p for p in module.parameters() if p.requires_grad]


def update(
    policy: Policy,
    packed: Packed,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    *,
    micro_tokens: int,
    clip_norm: float,
) -> UpdateResult:
    """Accumulate the gradient of the whole batch, clip it by norm, step the optimizer."""
    if isinstance(policy, Spread):
        return policy.update(
            packed, objective, optimizer, micro_tokens=micro_tokens, clip_norm=clip_norm
        )
    totals = accumulate(policy, packed, objective, micro_tokens)
    norm = torch.nn.utils.clip_grad_norm_(trainable(policy.module), clip_norm)
    stepped = bool(torch.isfinite(norm))
    if stepped:
        optimizer.step()
        policy.updated()
    # Gradients are as large as the weights: they must not lie about during the next rollout.
    optimizer.zero_grad(set_to_none=True)
    return UpdateResult(float(norm), stepped, totals)


def accumulate(policy: Policy, packed: Packed, objective: Objective, micro_tokens: int) -> Totals:
    """Add the gradient of the whole batch to the parameters' own; returns the objective's sums."""
    micros = list(micro_batches(policy, packed, objective.atom, micro_tokens))
    with side_by_side(policy.module) if len(micros) > 1 else nullcontext():
        return add_gradients(policy, micros, objective)


def add_gradients(policy: Policy, micros: Iterable[Packed], objective: Objective) -> Totals:
    """Add the gradients of micro-batches, one after the other; returns the objective's sums."""
    totals = Totals()
    for micro in micros:
        with repeatable_sums(policy.module):
            output = objective(policy.score(micro, entropy=objective.needs.entropy), micro)
            output.loss.backward()
        next_masks(policy.module)
        totals.add(output)
        turn_finished(len(micro.contexts))
    return totals


@dataclass(frozen=True)
class GradientBlock:
    """Gradients in the making, side by side in memory."""

    weights: list[torch.nn.Parameter]
    memory: list[torch.Tensor]
    """One for each type and device of the weights, 0 where nothing was added."""
    reached: set[torch.Tensor]
    """The weights that got a gradient; the others have none afterwards."""


@contextmanager
def side_by_side(module: torch.nn.Module) -> Iterator[GradientBlock]:
    """Inside, accumulate gradients in one block of memory that is allocated beforehand.

    Gradients allocated during a backward pass lie between freed activations, whose holes do not fit
    those of the next micro-batch. A parameter that gets no gradient has none afterwards, as usual.
    """
    weights = [p for p in trainable(module) if p.grad is None]
    reached: set[torch.Tensor] = set()
    memory = []
    hooks = [p.register_post_accumulate_grad_hook(reached.add) for p in weights]
    # In the order of the weights, which is the same in every process.
    for kind in dict.fromkeys((p.dtype, p.device) for p in weights):
        alike = [p for p in weights if (p.dtype, p.device) == kind]
        sizes = [p.numel() for p in alike]
        block = torch.zeros(sum(sizes), dtype=kind[0], device=kind[1])
        memory.append(block)
        for parameter, grad in zip(alike, block.split(sizes), strict=True):
            parameter.grad = grad.view_as(parameter)
    try:
        yield GradientBlock(weights, memory, reached)
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in weights:
            if parameter not in reached:
                parameter.grad = None


def decay_groups(
    parameters: Iterable[nn.Parameter], weight_decay: float
) -> list[dict[str, object]]:
    """The trained parameters in two groups: at least two dimensions decays, fewer does not.

    One dimension or none means norms and biases, whose scale weight decay has no reason to
    shrink. Frozen parameters are left out; a group may be absent.
    """
    trained = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    parameters: Iterable[nn.Parameter],
    *,
    name: OptimizerName = "adamw",
    lr: float = 0.0,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) with `decay_groups`. The training loop sets `lr` of every
    step.

    `adamw8bit` keeps the two moments in blockwise 8 bits (Dettmers et al., 2022) through
    bitsandbytes; raises InputError where that does not run.
    """
    groups = decay_groups(parameters, weight_decay)
    if name == "adamw8bit":
        try:
            from bitsandbytes.optim import AdamW8bit  # type: ignore[import-not-found]
        except ImportError as error:
            problem = "adamw8bit needs bitsandbytes"
            fix = "pip install bitsandbytes, or use adamw"
            raise InputError(problem, field="optimizer.name", fix=fix) from error
        return AdamW8bit(groups, lr=lr, betas=betas)
    # One pass over the weights instead of a dozen.
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


PACKED_TOGETHER = 1000
"""Rows that are laid into packs at a time, as in ms-swift 4.6 (`PackingDataset`)."""


def packs_of(sizes: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    """Places of items in packs whose sizes sum to at most `most`; a larger item is one alone.

    The largest first, each into the emptiest pack, of a thousand items at a time; the last pack of
    each thousand is laid again with the next: what ms-swift 4.6 does with binpacking 2.
    """
    packs: list[tuple[int, ...]] = []
    open_pack: tuple[int, ...] = ()
    for start in range(0, len(sizes), PACKED_TOGETHER):
        end = min(start + PACKED_TOGETHER, len(sizes))
        packs += _emptiest_first((*open_pack, *range(start, end)), sizes, most)
        open_pack = packs.pop() if end < len(sizes) else ()
    return tuple(packs)


def _emptiest_first(
    places: Sequence[int], sizes: Sequence[int], most: int
) -> Iterator[tuple[int, ...]]:
    packs: list[list[int]] = []
    loads: list[tuple[int, int]] = []
    for place in sorted(places, key=lambda place: -sizes[place]):
        if loads and loads[0][0] + sizes[place] <= most:
            load, number = heappop(loads)
        else:
            load, number = 0, len(packs)
            packs.append([])
        packs[number].append(place)
        heappush(loads, (load + sizes[place], number))
    return map(tuple, packs)
