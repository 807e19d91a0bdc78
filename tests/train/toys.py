"""A 50-parameter policy over candidate ids, a toy environment, and a recorder that remembers."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.data.episode import Completion, Episode, Reward, Turn
from assay.data.row import Message, Row
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.training_settings import AdvantageSpec, Dynamic, Updates
from assay.models.weight_files import load_module, save_module
from assay.rl import advantages as rl
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores, SampleKey
from assay.rollout.token_choice import choose, key_states, uniforms
from assay.train.checkpoint import Journalled, SampleRecord, TrainState

Scorer = Callable[[Sequence[tuple[Row, Completion]]], list[Reward]]
CANDIDATES = 5
FEATURES = 10


class CandidatePolicy:
    """Linear scores of 5 candidates from 10 query features: a (10, 5) table and nothing else."""

    def __init__(self, seed: int = 0):
        torch.manual_seed(seed)
        self._module = torch.nn.Linear(FEATURES, CANDIDATES, bias=False, dtype=torch.float64)
        self.frozen = torch.nn.Linear(FEATURES, CANDIDATES, bias=False, dtype=torch.float64)
        self.frozen.load_state_dict(self._module.state_dict())
        self._scoring = self._module
        self.version = 0
        self.forwards = 0

    @property
    def module(self) -> torch.nn.Module:
        return self._module

    @property
    def weight(self) -> torch.Tensor:
        return self._module.weight

    def logps(self, contexts: Sequence[Any]) -> torch.Tensor:
        """Log-probs (N, 5); a context is a tuple of 10 numbers."""
        features_NF = torch.tensor([list(c) for c in contexts], dtype=torch.float64)
        return self._scoring(features_NF).log_softmax(-1)

    def sample(
        self, contexts: Sequence[Any], keys: Sequence[SampleKey], sampling: Any
    ) -> list[Turn]:
        with torch.no_grad():
            logps_NA = self.logps(contexts)
        uniform_N = torch.from_numpy(uniforms(key_states(keys), np.zeros(len(keys))))
        chosen_N, _ = choose(logps_NA.exp(), uniform_N)
        return [
            Turn(c, (int(a),), (True,), (float(logps_NA[n, a]),), "stop", self.version)
            for n, (c, a) in enumerate(zip(contexts, chosen_N, strict=True))
        ]

    def score(self, packed: Packed, entropy: bool = False) -> ActionScores:
        self.forwards += 1
        logps_NA = self.logps(packed.contexts)
        logps_S = logps_NA[packed.turn_S, packed.actions_S]
        entropy_S = -(logps_NA.exp() * logps_NA).sum(-1)[packed.turn_S]
        return ActionScores(logps_S, entropy_S if entropy else None)

    @contextmanager
    def reference(self) -> Iterator[None]:
        self._scoring = self.frozen
        with torch.no_grad():
            yield
        self._scoring = self._module

    def conversations(self) -> AbstractContextManager[None]:
        return nullcontext()

    def updated(self) -> None:
        self.version += 1

    def save(self, folder: Path) -> None:
        save_module(self._module, folder)

    def load(self, folder: Path) -> None:
        load_module(self._module, folder)

    def context_cost(self, context: Any) -> int:
        return 1


@dataclass
class MemoryRecorder:
    """Keeps what a stage tells; offers rewards recorded before, if any."""

    lines: list[dict[str, float]] = field(default_factory=list)
    samples_by_step: dict[int, list[SampleRecord]] = field(default_factory=dict)
    journal: dict[int, Mapping[str, Journalled]] = field(default_factory=dict)
    states: list[TrainState] = field(default_factory=list)
    told: list[tuple[str, int, int]] = field(default_factory=list)

    def inside(self, part: str, done: int, total: int) -> None:
        self.told.append((part, done, total))

    def recorded_rewards(self, step: int) -> Mapping[str, Journalled]:
        return self.journal.get(step, {})

    def samples(self, step: int, records: Sequence[SampleRecord]) -> None:
        self.samples_by_step[step] = list(records)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.lines.append({"step": step, **values})

    def checkpoint(self, policy: Any, optimizer: Any, state: TrainState) -> None:
        self.states.append(TrainState(state.step, state.cursor, state.skipped))


def moved() -> CandidatePolicy:
    """A policy that is no longer its reference."""
    policy = CandidatePolicy()
    with torch.no_grad():
        policy.weight.add_(0.3 * torch.randn_like(policy.weight))
    return policy


def right_answers(count: int) -> tuple[Episode, ...]:
    """The right answer to each query, as a data set has it."""
    turns = [Turn(query(i), (right(i),), (True,)) for i in range(count)]
    return tuple(Episode(f"q{i}", f"q{i}", (turn,)) for i, turn in enumerate(turns))


def query(index: int) -> tuple[float, ...]:
    """Features of query `index`: its class one-hot, which decides the right candidate."""
    return tuple(float(i == index % FEATURES) for i in range(FEATURES))


def right(index: int) -> int:
    """The candidate that query `index` wants."""
    return (index % FEATURES) % CANDIDATES


def rows(count: int = 20) -> tuple[Row, ...]:
    return tuple(Row(f"q{i}", (Message("user", str(i)),), gold=right(i)) for i in range(count))


def contexts(count: int = 20) -> dict[str, tuple[float, ...]]:
    return {f"q{i}": query(i) for i in range(count)}


def score(pairs: Sequence[tuple[Row, Completion]]) -> list[Reward]:
    """1 for the right candidate, 0 for another."""
    return [
        Reward(float(c.tokens[0] == row.gold), {"right": float(c.tokens[0] == row.gold)})
        for row, c in pairs
    ]


def dull_at_first(every: int = 10**6) -> Scorer:
    """Judges as `score`, but gives the first batch equal rewards, and again after so many."""
    calls = itertools.count()
    return lambda pairs: [Reward(0.5) for _ in pairs] if next(calls) % every == 0 else score(pairs)


def decode(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


def accuracy(policy: CandidatePolicy, count: int = FEATURES) -> float:
    """Expected reward over the query classes."""
    with torch.no_grad():
        probabilities = policy.logps([query(i) for i in range(count)]).exp()
    return float(sum(probabilities[i, right(i)] for i in range(count)) / count)


def settings(
    *,
    drop: bool = True,
    aggregation: str = "token_mean",
    options: rl.AdvantageOptions | None = None,
    minibatches: int = 1,
    epochs: int = 1,
    max_batches: int = 1,
    max_tokens: int = 256,
    **keys: Any,
) -> GrpoStage:
    """The table of a stage whose method a test makes itself; unlike a file's it is not checked."""
    least = {"method": "grpo", "data": "d", "steps": 1, "prompts": 1, "reward": "r"}
    made = GrpoStage.model_validate(least)
    changes: dict[str, Any] = {
        "drop_without_signal": drop,
        "aggregation": aggregation,
        "updates": Updates(minibatches=minibatches, epochs=epochs),
        "dynamic": Dynamic(max_batches=max_batches),
        "sampling": made.sampling.model_copy(update={"max_tokens": max_tokens}),
        **keys,
    }
    if options is not None:
        changes["advantage_options"] = AdvantageSpec.model_construct(**asdict(options))
    return made.model_copy(update=changes)
