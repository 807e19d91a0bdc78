"""Spreads the work on one policy over processes: sampling, scoring without gradient, updates.

Rank 0 leads: it has the run, and calls the others (`RankedPolicy.call`), each of which has the same
policy and optimizer (`Member`). Weights of a batch carry its denominators, so gradients of any
split are summed and never averaged; torch's DistributedDataParallel would average them and wants a
forward of its own. After every update all ranks show that they hold the same weights (`marks`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate as running_sum
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from assay.data.episode import Context, Turn
from assay.errors import RunFailure
from assay.models.lora import place_of_masks, put_masks
from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores, Policy, SampleKey, Sampling
from assay.rollout.episodes import TURN
from assay.train.grpo import score_each
from assay.train.update import (
    Bill,
    Totals,
    UpdateResult,
    add_gradients,
    atoms,
    micro_batches,
    micro_turns,
    side_by_side,
    trainable,
)


def silent(patience: float) -> str:
    """What is said of a rank that says nothing for so many seconds."""
    return f"another rank said nothing for {patience / 60:g} minutes (engine.patience)"


@dataclass
class Team:
    """This process among those that train one model."""

    rank: int
    size: int
    threads: int
    """Of each, while they work together."""
    objects: Any = None
    """The group of calls and replies; None is the group that sums gradients."""
    patience: float = inf
    """Seconds for which another process may say nothing."""
    ended: Callable[[], str] = lambda: ""
    """Returns which process ended and how, "" where that is not known."""

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Inside, this process has its share of threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Inside nothing but a collective, raise RunFailure where another process is gone."""
        try:
            yield
        except RuntimeError as error:
            how = str(error).splitlines()[0]
            raise RunFailure(self.lost(error) or f"another process is gone: {how}") from error

    def lost(self, error: RuntimeError) -> str:
        """Which process ended, stopped or said nothing where a collective failed, "" where that is
        not known."""
        late = "timed out" in str(error).lower()
        return self.ended() or (silent(self.patience) if late else "")

    def tell(self, calls: Sequence[Any]) -> None:
        """Give every rank its call; for rank 0. Raises RunFailure, as all of these do."""
        with self._together():
            dist.scatter_object_list([None], list(calls), src=0, group=self.objects)

    def told(self) -> Any:
        """This rank's call; for the others."""
        box: list[Any] = [None]
        with self._together():
            dist.scatter_object_list(box, None, src=0, group=self.objects)
        return box[0]

    def replies(self, own: Any) -> list[Any]:
        """What every rank answered, on rank 0."""
        replies: list[Any] = [None] * self.size
        with self._together():
            to = replies if self.rank == 0 else None
            dist.gather_object(own, to, dst=0, group=self.objects)
        return replies

    def sum(self, tensor: Tensor) -> None:
        """Add the tensors of all ranks, in place."""
        with self._together():
            # A process that is gone is noticed here, and not where a GPU would wait for it.
            dist.barrier(self.objects)
            dist.all_reduce(tensor)

    def copy(self, tensor: Tensor) -> None:
        """Make the tensor that of rank 0, in place."""
        with self._together():
            dist.broadcast(tensor, src=0)


Marks = dict[str, int]
"""By name, a number that two tensors share only where their bits do, but by a rare accident."""


def marks(module: nn.Module, trained: bool) -> Marks:
    """The marks of all weights and buffers, or of the `trained` weights alone.

    The sum of the bits, four or eight bytes at a time, as integers that may overflow.
    """
    named = dict(module.named_parameters())
    if trained:
        named = {name: p for name, p in named.items() if p.requires_grad}
    else:
        named |= dict(module.named_buffers())
    return {name: mark(tensor.detach()) for name, tensor in named.items()}


WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def mark(tensor: Tensor) -> int:
    """See `marks`."""
    bits = tensor.contiguous().reshape(-1).view(WORDS[tensor.element_size()])
    return int(bits.sum(dtype=torch.int64))


def expect_alike(when: str, marks: Sequence[Marks]) -> None:
    """Raise RunFailure, naming the first rank and tensor that are not rank 0's."""
    for rank, theirs in enumerate(marks):
        for name, own in marks[0].items():
            if theirs.get(name) != own:
                raise RunFailure(
                    f"{when}: rank {rank} does not hold the weights of rank 0, first in {name}; "
                    "the ranks' machines, packages or threads are not the same"
                )


@dataclass(frozen=True)
class SampleCall:
    """Contexts that a rank samples a turn for."""

    contexts: Sequence[Context]
    keys: Sequence[SampleKey]
    sampling: Sampling


@dataclass(frozen=True)
class ScoreCall:
    """Micro-batches that a rank scores, without gradient."""

    micros: Sequence[Packed]
    entropy: bool
    place: tuple[int, int, int] | None
    """Of dropout's masks, see `lora.place_of_masks`."""
    reference: bool
    """Whether the frozen reference scores."""
    idle: Sequence[Packed] = ()
    """Micro-batches that say nothing, so that all ranks have equally many."""


@dataclass(frozen=True)
class GradientCall:
    """Micro-batches of an update."""

    micros: Sequence[Packed]
    objective: Objective
    place: tuple[int, int, int] | None
    """Of the first micro-batch's masks."""
    idle: Sequence[Packed] = ()
    """See `ScoreCall`."""


@dataclass(frozen=True)
class StepCall:
    """The optimizer's step with a gradient of this norm; none where the norm is not finite."""

    norm: Tensor
    clip_norm: float
    rates: Sequence[float]


@dataclass
class Member:
    """What a rank has of the model that all train, and what it does with it when rank 0 calls."""

    policy: Policy
    optimizer: torch.optim.Optimizer
    team: Team
    _conversation: AbstractContextManager[int | None] = field(default_factory=nullcontext)
    sharded: ClassVar[bool] = False
    """Whether every rank holds a part of the weights (`train.sharded`)."""

    def begin(self, state: Mapping[str, Any]) -> Marks:
        """Take over rank 0's trained weights and optimizer state; `state` is its layout. Returns
        the marks of all weights."""
        module = self.policy.module
        with torch.no_grad():
            for weight in trainable(module):
                self.team.copy(weight.data)
        if self.team.rank:
            self.optimizer.load_state_dict(filled(state))
        for tensor in [
            v
            for _, slot in sorted(self.optimizer.state_dict()["state"].items())
            for v in slot.values()
            if torch.is_tensor(v)
        ]:
            self.team.copy(tensor)
        self.policy.updated()
        frozen = getattr(self.policy, "frozen", None)
        reference = {} if frozen is None else marks(frozen, trained=False)
        return marks(module, trained=False) | {f"reference {n}": m for n, m in reference.items()}

    def sample(self, call: SampleCall) -> list[Turn]:
        """A turn for each context, which is left out of the reply."""
        if not call.contexts:
            return []
        turns = self.policy.sample(call.contexts, call.keys, call.sampling)
        return [replace(turn, context=()) for turn in turns]

    def open_conversations(self, _: None) -> int | None:
        """Later contexts may extend earlier turns, of which so many tokens are kept."""
        self._conversation = self.policy.conversations()
        return self._conversation.__enter__()

    def close_conversations(self, _: None) -> None:
        """They do no longer."""
        self._conversation.__exit__(None, None, None)

    def score(self, call: ScoreCall) -> tuple[Tensor, Tensor | None]:
        """Log-probs and entropies of the micro-batches."""
        put_masks(self.policy.module, call.place)
        with self.policy.reference() if call.reference else nullcontext():
            scores = score_each(self.policy, call.micros, call.entropy)
            score_each(self.policy, call.idle, call.entropy)
        return scores

    def gradients(self, call: GradientCall) -> tuple[Totals, Tensor]:
        """Add up the gradient of all ranks; returns the objective's sums of this one, and the
        gradient's norm."""
        module = self.policy.module
        put_masks(module, call.place)
        with side_by_side(module) as block:
            totals = add_gradients(self.policy, call.micros, call.objective)
            for memory in block.memory:
                self.team.sum(memory)
            reached_W = torch.tensor([float(weight in block.reached) for weight in block.weights])
            self.team.sum(reached_W)
            counts = zip(block.weights, reached_W.tolist(), strict=True)
            block.reached.update(weight for weight, count in counts if count)
        return totals, norm_of(self.grads())

    def grads(self) -> list[Tensor]:
        """The gradients that this rank holds."""
        return [p.grad for p in trainable(self.policy.module) if p.grad is not None]

    def whole_norm(self, norms: Sequence[Tensor]) -> Tensor:
        """The gradient's norm by those that the ranks found."""
        return norms[0]

    def step(self, call: StepCall) -> Marks:
        """Clip and step; returns the marks of the weights that it changed."""
        if torch.isfinite(call.norm):
            # As `torch.nn.utils.clip_grad_norm_`.
            kept = (call.clip_norm / (call.norm + 1e-6)).clamp(max=1.0)
            for grad in self.grads():
                grad.mul_(kept.to(grad.device))
            for group, rate in zip(self.optimizer.param_groups, call.rates, strict=True):
                group["lr"] = rate
            self.optimizer.step()
            self.policy.updated()
        self.optimizer.zero_grad(set_to_none=True)
        return self.marks()

    def marks(self) -> Marks:
        """Of the trained weights that every rank holds."""
        return marks(self.policy.module, trained=True)

    def save(self, folder: Path | None) -> None:
        """Write the weights into a folder; None on other ranks, which help where they must."""
        if folder is not None:
            self.policy.save(folder)


def norm_of(grads: Sequence[Tensor]) -> Tensor:
    """The norm of gradients together, on the CPU."""
    return get_total_norm(grads).cpu()


def serve(member: Member) -> None:
    """Answer rank 0's calls until it says that there are no more."""
    with member.team.sharing():
        while (call := member.team.told()) is not None:
            name, arguments = call
            member.team.replies(getattr(member, name)(arguments))


@dataclass
class RankedPolicy:
    """See `rl.policy.Policy` and `update.Spread`: rank 0's policy, whose work all ranks share."""

    own: Policy
    member: Member
    team: Team
    spreads_sampling: bool = True
    """False: an engine of somebody else's samples for rank 0."""
    _referring: bool = field(default=False, init=False)
    _homes: dict[str, int] | None = field(default=None, init=False)
    """Inside conversations, the rank of each row, which has what was said so far."""

    def __post_init__(self) -> None:
        """All ranks take over rank 0's weights. Raises RunFailure."""
        state = laid_out(self.member.optimizer.state_dict())
        expect_alike("at the stage's start", self.call("begin", [state] * self.team.size))

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """What every rank answers to its part of a call."""
        with self.team.sharing():
            self.team.tell([(name, part) for part in arguments])
            try:
                own = getattr(self.member, name)(arguments[0])
            except RuntimeError as error:
                # Of a collective of FSDP's own, within the layers, which a lost rank ends.
                if self.member.sharded and (lost := self.team.lost(error)):
                    raise RunFailure(lost) from error
                raise
            return self.team.replies(own)

    def end(self) -> None:
        """There are no more calls."""
        self.team.tell([None] * self.team.size)

    @property
    def whole(self) -> bool:
        """Whether this process holds all weights."""
        return not self.member.sharded

    @property
    def module(self) -> nn.Module:
        """The trained module of this process."""
        return self.own.module

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context; equal contexts, and those of a row's conversations, are one rank's.

        Keys decide what is drawn, so that only rounding depends on which contexts a rank has.
        """
        if not self.spreads_sampling:
            return self.own.sample(contexts, keys, sampling)
        parts = self._dealt(contexts, keys, sampling.max_tokens)
        calls = [
            SampleCall([contexts[n] for n in part], [keys[n] for n in part], sampling)
            for part in parts
        ]
        turns: dict[int, Turn] = {}
        for part, answers in zip(parts, self.call("sample", calls), strict=True):
            turns |= zip(part, answers, strict=True)
        return [replace(turns[n], context=context) for n, context in enumerate(contexts)]

    def _dealt(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], length: int
    ) -> list[list[int]]:
        """The places of the contexts by rank, the most costly first, each to who has least; a turn
        may have `length` tokens."""
        together: dict[Any, list[int]] = {}
        for n, (context, key) in enumerate(zip(contexts, keys, strict=True)):
            row = key.row.partition(TURN)[0]
            together.setdefault(context if self._homes is None else row, []).append(n)
        costs = {
            name: len(places) * length + max(self.own.context_cost(contexts[n]) for n in places)
            for name, places in together.items()
        }
        parts: list[list[int]] = [[] for _ in range(self.team.size)]
        spent = [0] * self.team.size
        homes = {} if self._homes is None else self._homes
        for name in sorted(together, key=lambda each: -costs[each]):
            rank = homes.setdefault(name, min(range(len(spent)), key=lambda r: spent[r]))
            spent[rank] += costs[name]
            parts[rank] += together[name]
        return [sorted(part) for part in parts]

    @contextmanager
    def conversations(self) -> Iterator[int | None]:
        """See `Policy`; each rank keeps what its own rows' turns said."""
        if not self.spreads_sampling:
            with self.own.conversations() as kept:
                yield kept
            return
        self._homes = {}
        nothing = [None] * self.team.size
        try:
            yield self.call("open_conversations", nothing)[0]
        finally:
            self._homes = None
        self.call("close_conversations", nothing)

    def score(self, packed: Packed, entropy: bool = False) -> ActionScores:
        """This process's own answer; where it lacks weights, all ranks compute the same, without
        gradient."""
        if self.whole:
            with self.own.reference() if self._referring else nullcontext():
                return self.own.score(packed, entropy)
        place = place_of_masks(self.module)
        call = ScoreCall([packed], entropy, place, self._referring)
        return ActionScores(*self.call("score", [call] * self.team.size)[0])

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the frozen references score."""
        self._referring = True
        try:
            yield
        finally:
            self._referring = False

    def updated(self) -> None:
        """The trained weights of this process changed."""
        self.own.updated()

    def save(self, folder: Path) -> None:
        """See `Policy`."""
        self.call("save", [folder, *[None] * (self.team.size - 1)])

    def load(self, folder: Path) -> None:
        """See `Policy`."""
        self.own.load(folder)

    def context_cost(self, context: Context) -> int:
        """See `Policy`."""
        return self.own.context_cost(context)

    def score_all(
        self, packed: Packed, budget: int, entropy: bool, atom: str
    ) -> tuple[Tensor, Tensor | None]:
        """See `grpo.score_all`."""
        place = place_of_masks(self.module)
        parts = self.parts(packed, atom, budget)
        calls = [
            ScoreCall(part, entropy, place, self._referring, self.idle(packed, part, parts))
            for part in parts
        ]
        scores = self.call("score", calls)
        logps_S = torch.cat([logps for logps, _ in scores])
        return logps_S, torch.cat([each for _, each in scores]) if entropy else None

    def update(
        self,
        packed: Packed,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        micro_tokens: int,
        clip_norm: float,
    ) -> UpdateResult:
        """See `update.update`. Raises RunFailure."""
        totals, norm = self.accumulate(packed, objective, micro_tokens)
        step = StepCall(norm, clip_norm, [group["lr"] for group in optimizer.param_groups])
        expect_alike("after an update", self.call("step", [step] * self.team.size))
        return UpdateResult(float(norm), bool(torch.isfinite(norm)), totals)

    def accumulate(
        self, packed: Packed, objective: Objective, micro_tokens: int
    ) -> tuple[Totals, Tensor]:
        """See `update.accumulate`; with the gradient's norm."""
        place = place_of_masks(self.module)
        parts = self.parts(packed, objective.atom, micro_tokens)
        firsts = [0, *running_sum(map(len, parts))]
        calls = [
            GradientCall(part, objective, moved(place, first), self.idle(packed, part, parts))
            for part, first in zip(parts, firsts[:-1], strict=True)
        ]
        totals, shares = Totals(), self.call("gradients", calls)
        for part, _ in shares:
            totals.join(part)
        put_masks(self.module, moved(place, firsts[-1]))
        return totals, self.member.whole_norm([norm for _, norm in shares])

    def idle(
        self, packed: Packed, part: Sequence[Packed], parts: Sequence[Sequence[Packed]]
    ) -> list[Packed]:
        """What makes a rank's micro-batches as many as the others', where weights are sharded."""
        if not self.member.sharded:
            return []
        shortest = int(packed.offsets_N1.diff().argmin())
        return [packed.take([shortest])] * (max(map(len, parts)) - len(part))

    def parts(self, packed: Packed, atom: str, budget: int) -> list[list[Packed]]:
        """The micro-batches of each rank, in the order of the batch.

        Atoms are shared out, and with dropout whole micro-batches as one process makes them,
        because masks belong to these.
        """
        whole = place_of_masks(self.module) is not None
        units = micro_turns(self.own, packed, atom, budget) if whole else atoms(packed, atom)
        shares = cut(self.own, packed, list(units), self.team.size)
        if whole:
            return [[packed.take(unit) for unit in share] for share in shares]
        return [
            list(micro_batches(self.own, packed.take(list(chain(*share))), atom, budget))
            for share in shares
        ]


def moved(place: tuple[int, int, int] | None, micros: int) -> tuple[int, int, int] | None:
    """The place of masks so many micro-batches later."""
    return None if place is None else (place[0], place[1], place[2] + micros)


def cut(
    policy: Policy, packed: Packed, units: Sequence[list[int]], count: int
) -> list[list[list[int]]]:
    """The units, which are turns, in `count` runs of neighbours whose greatest cost is least, to a
    hundredth.

    Neighbours share prompts, which cost a run once. A run may be empty.
    """

    def filled(most: int) -> list[list[list[int]]]:
        """Runs in order, each filled up to a cost."""
        bill, runs = Bill(policy, packed), [[]]
        for unit in units:
            added = bill.price(unit)
            if bill.turns and bill.spent + added > most:
                bill = Bill(policy, packed)
                runs.append([])
                added = bill.price(unit)
            bill.add(unit, added)
            runs[-1].append(unit)
        return runs

    low, high = 0, sum(Bill(policy, packed).price(unit) for unit in units)
    while low < high - high // 100:
        middle = (low + high) // 2
        low, high = (low, middle) if len(filled(middle)) <= count else (middle + 1, high)
    runs = filled(high)
    return runs + [[] for _ in range(count - len(runs))]


@dataclass(frozen=True)
class Laid:
    """What a tensor of the optimizer's state is like."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def laid_out(state: Mapping[str, Any]) -> dict[str, Any]:
    """An optimizer's state without its numbers."""
    slots = {
        n: {k: Laid(tuple(v.shape), v.dtype) if torch.is_tensor(v) else v for k, v in slot.items()}
        for n, slot in state["state"].items()
    }
    return {**state, "state": slots}


def filled(state: Mapping[str, Any]) -> dict[str, Any]:
    """An optimizer's state of this layout, to be overwritten."""
    slots = {
        n: {
            k: torch.zeros(v.shape, dtype=v.dtype) if isinstance(v, Laid) else v
            for k, v in s.items()
        }
        for n, s in state["state"].items()
    }
    return {**state, "state": slots}
