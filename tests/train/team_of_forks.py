"""Ranks of a tiny policy: rank 0 is the test's process, the others are forks that follow it."""

import faulthandler
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from assay.experiment.training_settings import Pairs
from assay.models.adapt import save_activations
from assay.models.lora import LoraOptions
from assay.models.precision import Precision, choose_precision
from assay.rl.objectives import GrpoObjective, NllObjective, Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.rl.preference import Preference
from assay.rollout.policies.language import LanguagePolicy
from assay.train.grpo import Grpo, score_all
from assay.train.likelihood import likelihood_batch, pair_batch, weighted_batch
from assay.train.pair_choice import GroupChoice, choose_pairs
from assay.train.ranks import Member, RankedPolicy, Team, serve
from assay.train.sharded import ShardedMember, put_together
from assay.train.update import make_optimizer
from tests.exact import random_groups
from tests.forked import forked
from tests.models.adapters import adapted
from tests.tiny import tiny_model
from tests.train import toys
from tests.train.toys import CandidatePolicy

SECONDS = timedelta(seconds=60)
EXACT = Precision(torch.float64, torch.float64, "cpu", "a test's")
ENDS = frozenset({7})


def language(kind: str) -> LanguagePolicy:
    """A tiny Llama in float64: `full`, `recomputed` in the backward pass, or with an adapter that
    has left its start, which drops some of its inputs where it is `dropout`."""
    model = tiny_model()
    frozen = tiny_model(seed=2).double()
    module: Any = model
    if kind == "recomputed":
        save_activations(model)
    elif kind != "full":
        torch.manual_seed(1)
        options = LoraOptions(rank=4, dropout=0.2 * (kind == "dropout"))
        module = adapted(model, options, 0.1, "lora_B")
    return LanguagePolicy(module.double().train(), EXACT, ENDS, frozen=frozen)


def single() -> LanguagePolicy:
    """The same in fp32, as models are trained."""
    precision = choose_precision("fp32", "cpu")
    return LanguagePolicy(tiny_model().train(), precision, ENDS, frozen=tiny_model(seed=2))


POLICIES: dict[str, Callable[[], Policy]] = {
    "full": lambda: language("full"),
    "lora": lambda: language("lora"),
    "dropout": lambda: language("dropout"),
    "recomputed": lambda: language("recomputed"),
    "single": single,
    "candidates": CandidatePolicy,
}


class Shown(Member):
    """A rank that shows its gradient and its weights."""

    def show(self, _: None) -> dict[str, torch.Tensor]:
        named = self.policy.module.named_parameters()
        return {n: put_together(p.grad) for n, p in named if p.grad is not None}

    def weights(self, _: None) -> dict[str, torch.Tensor]:
        """Whole, on every rank."""
        named = self.policy.module.named_parameters()
        return {name: put_together(each.detach()) for name, each in named}


class ShownSharded(Shown, ShardedMember):
    """The same of a rank that holds a part of it."""


@dataclass(frozen=True)
class Case:
    """What followers open."""

    policy: str
    fault: str = ""
    """What the last rank does otherwise."""
    sharded: bool = False

    @property
    def kind(self) -> type[Member]:
        """What each rank is."""
        return ShownSharded if self.sharded else Shown


def optimizer_of(policy: Policy) -> torch.optim.Optimizer:
    """AdamW, as a stage has it."""
    return make_optimizer(policy.module.parameters(), lr=1e-2, weight_decay=0.1)


def follow(rank: int, size: int, port: int) -> None:
    """Another rank: opens the cases that rank 0 names."""
    faulthandler.enable()
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=SECONDS)
    team = Team(rank, size, 1)
    while (case := team.told()) is not None:
        policy = POLICIES[case.policy]()
        member = case.kind(policy, optimizer_of(policy), team)
        if rank == size - 1:
            FAULTS[case.fault](member)
        serve(member)


def stray(member: Member) -> None:
    """Its optimizer takes steps of another size."""
    step = member.optimizer.step

    def other(*arguments: Any) -> Any:
        for group in member.optimizer.param_groups:
            group["lr"] *= 1 + 1e-6
        return step(*arguments)

    member.optimizer.step = other  # type: ignore[method-assign]


def other_base(member: Member) -> None:
    """One of its frozen weights is another."""
    frozen = [p for p in member.policy.module.parameters() if not p.requires_grad]
    with torch.no_grad():
        frozen[-1].view(-1)[0] += 1e-9


FAULTS: dict[str, Callable[[Member], None]] = {
    "": lambda member: None,
    "stray": stray,
    "other base": other_base,
}


@dataclass
class Forks:
    """Rank 0's view of a team of forks."""

    team: Team
    processes: list[BaseProcess]

    @contextmanager
    def opened(
        self,
        case: Case,
        policy: Policy | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Iterator[RankedPolicy]:
        """A policy that all ranks share, rank 0's if it is not fresh."""
        self.team.tell([case] * self.team.size)
        own = policy or POLICIES[case.policy]()
        member = case.kind(own, optimizer or optimizer_of(own), self.team)
        try:
            yield RankedPolicy(own, member, self.team)
        finally:
            if all(process.is_alive() for process in self.processes):
                self.team.tell([None] * self.team.size)


@contextmanager
def team_of(size: int, folder: Path) -> Iterator[Forks]:
    """A team of this process and `size` - 1 forks."""
    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    others = [
        forked(follow, rank, size, store.port, log=folder / f"{rank}.log")
        for rank in range(1, size)
    ]
    try:
        dist.init_process_group("gloo", store=store, rank=0, world_size=size, timeout=SECONDS)
        yield Forks(Team(0, size, 1), others)
    finally:
        for other in others:
            other.kill()
            other.join()
        dist.destroy_process_group()


SIZES = (5, 4, 3, 2)


def batches(
    policy: Policy, method: str, aggregation: str, minibatches: int
) -> tuple[Sequence[Packed], Objective]:
    """The updates of one step."""
    groups = random_groups(3, SIZES)
    episodes = [e for group in groups for e in group]
    if method == "sft":
        parts = [likelihood_batch(episodes[n::minibatches]) for n in range(minibatches)]
        return parts, NllObjective()
    if method == "rce":
        halves = [groups[n::minibatches] for n in range(minibatches)]
        parts = [weighted_batch([e for g in half for e in g], 0.5, 1.0) for half in halves]
        return parts, NllObjective()
    if method == "dpo":
        packed = pair_batch(choose_pairs(groups, Pairs(), 0), "plain")
        with policy.reference():
            reference_S, _ = score_all(policy, packed, 10**6, entropy=False, atom="pair")
        return [packed.with_tokens(reference_S=reference_S)], Preference()
    objective = GrpoObjective(method, kl_coef=0.05, entropy_coef=0.05, several_updates=True)
    settings = toys.settings(aggregation=aggregation, minibatches=minibatches, micro_tokens=10**6)
    grpo = Grpo(None, settings, objective, str)  # type: ignore[arg-type]
    updates, _, _ = grpo.updates(policy, groups, GroupChoice(tuple(range(len(groups)))))
    return [moved(packed) for packed in updates], objective


def moved(packed: Packed, seed: int = 1, step: float = 0.1) -> Packed:
    """The batch as if the policy had moved since: ratios are not 1, and some are clipped."""
    assert packed.old_S is not None
    step_S = step * torch.randn(len(packed.old_S), generator=torch.Generator().manual_seed(seed))
    return packed.with_tokens(old_S=packed.old_S + step_S)
