"""A user's file with a task and a learner that is no language model: it picks k of a row's
candidates by a linear score.

Plackett-Luce: one candidate after the other, without replacement, each by the softmax of the scores
of those that are left. `model = "linear:features.json"` opens it once this task is loaded. The lab
is the smallest in which it trains.
"""

import copy
import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.data.episode import Completion, Context, Reward, Turn
from assay.data.renderings.rendering import Loss
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.stage_tables import GrpoStage, StageSpec, start_of
from assay.lab.check.all_checks import LEARNER_CHECKS
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.setup.learner import LEARNERS, LearnerInput, StagePolicy
from assay.models.load import weight_fingerprint
from assay.models.weight_files import load_module, save_module
from assay.rl.packed import Packed
from assay.rl.policy import SampleKey, Sampling, Scores
from assay.rollout.token_choice import draw, key_states, uniforms
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checked_directory, resolve_checkpoint
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import JudgeReward, Pair
from assay.tasks.task import (
    Asked,
    Benchmark,
    BenchmarkMaker,
    BenchmarkOptions,
    Dialogue,
    Loaded,
    RewardFunction,
)

FEATURES = "features.json"


class BadPick(InputError):
    """An answer that picks what cannot be picked."""


@dataclass(frozen=True)
class Choice:
    """What the selector reads: the query, the candidates it may pick, and how many it picks."""

    query: tuple[float, ...]
    pool: tuple[int, ...]
    features: tuple[tuple[float, ...], ...]
    picks: int


class LinearScorer(nn.Module):
    """A score for each candidate from its features times the query's; all alike at first."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))

    def forward(self, choices: Sequence[Choice]) -> Tensor:
        """Scores (N, K); minus infinity where a pool is smaller than the largest."""
        scores = []
        for choice in choices:
            query_F, features_KF = torch.tensor(choice.query), torch.tensor(choice.features)
            scores.append(features_KF @ (query_F @ self.weight))
        return nn.utils.rnn.pad_sequence(scores, batch_first=True, padding_value=float("-inf"))


class PickPolicy:
    """See `rl.policy.Policy`."""

    def __init__(self, module: LinearScorer, frozen: LinearScorer | None = None):
        self.module, self.frozen = module, frozen
        self.version = 0
        self._scoring = module

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        choices = [read(context) for context in contexts]
        with torch.no_grad():
            left_NK = self._scoring(choices)
        picked: list[list[int]] = [[] for _ in choices]
        logps: list[list[float]] = [[] for _ in choices]
        for place in range(max(choice.picks for choice in choices)):
            going = [n for n, choice in enumerate(choices) if place < choice.picks]
            uniform = uniforms(key_states([keys[n] for n in going]), np.full(len(going), place))
            chosen, logp = draw(left_NK[going], sampling, torch.from_numpy(uniform))
            for n, index, value in zip(going, chosen.tolist(), logp.tolist(), strict=True):
                picked[n].append(choices[n].pool[index])
                logps[n].append(value)
                left_NK[n, index] = float("-inf")
        return [
            Turn(choice, tuple(p), (True,) * len(p), tuple(x), "stop", self.version)
            for choice, p, x in zip(choices, picked, logps, strict=True)
        ]

    def score(self, packed: Packed, entropy: bool = False) -> Scores:
        choices = [read(context) for context in packed.contexts]
        scores_NK = self._scoring(choices) / packed.temperature
        spans = packed.offsets_N1.tolist()
        logps, entropies = [], []
        for n, choice in enumerate(choices):
            left_K = scores_NK[n]
            for action in packed.actions_S[spans[n] : spans[n + 1]].tolist():
                index = choice.pool.index(action)
                logp_K = left_K.log_softmax(0)
                logps.append(logp_K[index])
                kept_K = logp_K[logp_K > float("-inf")]
                entropies.append(-(kept_K.exp() * kept_K).sum())
                gone_K = torch.arange(len(left_K)) == index
                left_K = left_K.masked_fill(gone_K, float("-inf"))
        return Scores(torch.stack(logps), torch.stack(entropies) if entropy else None)

    @contextmanager
    def reference(self) -> Iterator[None]:
        assert self.frozen is not None
        self._scoring = self.frozen
        with torch.no_grad():
            yield
        self._scoring = self.module

    def conversations(self) -> AbstractContextManager[None]:
        return nullcontext()

    def updated(self) -> None:
        self.version += 1

    def save(self, folder: Path) -> None:
        save_module(self.module, folder)

    def load(self, folder: Path) -> None:
        load_module(self.module, folder)

    def context_cost(self, context: Context) -> int:
        return len(read(context).pool)


def read(context: Context) -> Choice:
    """The context as the selector's own."""
    assert isinstance(context, Choice)
    return context


@dataclass(frozen=True)
class PickEncoder:
    """See `lab.setup.learner.Encoder`; `features` are the candidates' by id."""

    features: dict[int, tuple[float, ...]]
    fingerprint: str
    name: str = "features"
    thinking: None = None
    stop: None = None

    def stopping_at(self, strings: tuple[str, ...]) -> "PickEncoder":
        raise InputError("a selection has no text in which a stop string could be")

    def prompt(self, row: Row, asked: Asked) -> Choice:
        pool = tuple(row.extra["pool"])
        if unknown := [id_ for id_ in pool if id_ not in self.features]:
            raise BadPick(f"candidate {unknown[0]} has no features", file=row.origin, field="pool")
        features = tuple(self.features[id_] for id_ in pool)
        return Choice(tuple(map(float, row.extra["query"])), pool, features, row.extra["picks"])

    def turns(self, row: Row, messages: Sequence[Message], loss_on: Loss) -> tuple[Turn, ...]:
        choice = self.prompt(row, Asked(tuple(messages[:-1])))
        picked = tuple(json.loads(messages[-1].content))
        if len({*picked} & {*choice.pool}) != choice.picks or len(picked) != choice.picks:
            problem = f"{messages[-1].content} are not {choice.picks} of {list(choice.pool)}"
            raise BadPick(problem, file=row.origin, field="messages")
        return (Turn(choice, picked, (True,) * len(picked)),)

    def environment(self, row: Row, dialogue: Dialogue) -> Any:
        raise BadPick("a selector answers once", file=row.origin, field="task")

    def decode(self, actions: Sequence[int]) -> str:
        return json.dumps(list(actions))

    def size(self, context: Context) -> int:
        return len(read(context).pool)

    def plain(self, context: Context) -> dict[str, Any]:
        return asdict(read(context))

    def text(self, context: Context) -> str:
        choice = read(context)
        return f"query {list(choice.query)}: {choice.picks} of {list(choice.pool)}"


@dataclass(frozen=True)
class LinearSelector:
    """See `lab.setup.learner.Learner`."""

    given: LearnerInput
    name: str = "linear selector"
    positions: int | None = None

    @property
    def file(self) -> Path:
        """The features of the candidates."""
        return self.given.root / self.given.source.partition(":")[2]

    @cached_property
    def features(self) -> dict[int, tuple[float, ...]]:
        read = json.loads(self.file.read_text(encoding="utf-8"))
        return {int(id_): tuple(map(float, values)) for id_, values in read.items()}

    @property
    def fingerprint(self) -> str:
        return weight_fingerprint(self.base())

    def base(self) -> LinearScorer:
        """The scorer before any training of this experiment."""
        module = LinearScorer(len(next(iter(self.features.values()))))
        if self.given.weights is not None:
            load_module(module, self.given.weights)
        return module

    def module(self, run: RunDirectory, reference: CheckpointReference) -> LinearScorer:
        """The scorer of a checkpoint."""
        module = self.base()
        found = resolve_checkpoint(run, reference)
        if found.stage is not None:
            load_module(module, checked_directory(run, found))
        return module

    def check(self) -> None:
        if not self.file.is_file():
            raise InputError(f"{self.file}: no such file", field="model", fix="write the features")
        for name, stage in self.given.experiment.stage.items():
            if stage.adapt.kind != "full":
                problem = "a selector is trained whole"
                raise InputError(problem, field=f"stage.{name}.adapt", fix="remove it")

    def encoder(self, rendering: RenderingSettings) -> PickEncoder:
        return PickEncoder(self.features, hashlib.sha256(self.file.read_bytes()).hexdigest())

    def policy(self, run: RunDirectory, stage: StageSpec) -> StagePolicy:
        module = self.module(run, start_of(stage))
        frozen = None
        if isinstance(stage, GrpoStage) and stage.keeps_start:
            at_base = stage.kl.reference == "base"
            frozen = self.base() if at_base else copy.deepcopy(module)
        weights = sum(parameter.numel() for parameter in module.parameters())
        return StagePolicy(PickPolicy(module, frozen), (f"all {weights} weights trained",))

    def sampler(self, run: RunDirectory, reference: CheckpointReference) -> PickPolicy:
        return PickPolicy(self.module(run, reference))

    def complete(self, run: RunDirectory, stage: StageSpec, folder: Path) -> None:
        shutil.copyfile(self.file, folder / FEATURES)

    def first_batch_check(self, stage: StageSpec) -> None:
        return None


def weights(subject: Subject) -> Seen:
    """The learner's own check: its size."""
    learner = subject.session.learner
    assert isinstance(learner, LinearSelector)
    yield Number("model", "weights", learner.base().weight.numel())


LEARNERS["linear"] = LinearSelector
LEARNER_CHECKS["linear selector"] = {"size": weights}


def hits(row: Row, completion: Completion) -> Reward:
    """The share of the gold candidates that was picked."""
    picked = json.loads(completion.text or "[]") if completion.text.endswith("]") else []
    return Reward(len({*picked} & {*row.gold}) / len(row.gold), {"picked": float(len(picked))})


def helped(pairs: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
    """The probability of the row's answer by a frozen model that reads the picks first."""
    asked = [(Message("user", f"{said.text} for {row.gold}"),) for row, said in pairs]
    scores = helpers["frozen"].score(asked, ["yes"] * len(asked))
    return [Reward(math.exp(sum(logps)), {"logp": sum(logps)}) for logps in scores]


CANDIDATES = {id_: [id_ % 3, id_ // 3, 1.0] for id_ in range(9)}


def picks_row(index: int, split: str) -> Row:
    """A query whose gold candidates have the largest product with it; others' rewards are known."""
    query = ((-1.0) ** index, 1.0 if index % 3 else -1.0, 0.0)
    pool = [(index * 5 + step) % 9 for step in range(6)]

    def product(id_: int) -> float:
        return sum(a * b for a, b in zip(query, CANDIDATES[id_], strict=True))

    best = sorted(pool, key=product, reverse=True)
    gold = best[:2]
    stored = [gold, best[2:4], [best[0], best[-1]]]
    candidates = [{"text": json.dumps(ids), "reward": len({*ids} & {*gold}) / 2} for ids in stored]
    extra = {"query": query, "pool": pool, "picks": 2, "candidates": candidates}
    asked = Message("user", f"{split} {index}: pick two of {pool}")
    messages = (asked, Message("assistant", json.dumps(gold)))
    return Row(f"{split}-{index}", messages, gold=gold, extra=extra)


def read_rows(name: str) -> Loaded:
    """The rows of `source = "picks:train"`."""
    return Loaded(tuple(picks_row(index, name) for index in range(24)))


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """Twelve queries."""
    items = tuple(picks_row(index, "test") for index in range(24, 36))
    return Benchmark("picks/test", items, hits, "hits 1", options=options.over({}))


@dataclass(frozen=True)
class PicksTask:
    """The task called "picks"."""

    name: str = "picks"
    rewards: Mapping[str, RewardFunction] = field(
        default_factory=lambda: {
            "hits": hits,
            "helped": JudgeReward(helped, helpers=("frozen",), batch=None),
        }
    )
    benchmarks: Mapping[str, BenchmarkMaker] = field(
        default_factory=lambda: {"picks/test": benchmark}
    )
    reward_maximum: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, Callable[[str], Loaded]] = field(
        default_factory=lambda: {"picks": read_rows}
    )

    def prompt(self, row: Row) -> tuple[Message, ...]:
        return row.prompt

    def target(self, row: Row) -> Message:
        return row.messages[-1]

    def dialogue(self, row: Row) -> None:
        return None


TASK = PicksTask()

EXPERIMENT = """\
name  = "picks"
about = "A linear selector learns which two candidates help a query"
model = "linear:features.json"
task  = "path:picks_task.py"
seeds = [7]

[data.train]
source = "picks:train"
split  = { dev = 0.25, by = "conversation" }

[stage.imitate]
method = "sft"
data   = "train"
steps  = 4
batch  = 4
validation = "train.dev"
optimizer = { lr = 1e-2 }

[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
steps  = 4
prompts = 4
checkpoint_every = 2
optimizer = { lr = 3e-2 }

[stage.explore]
method = "rce"
data   = "train"
steps  = 4
prompts = 4
group  = 4
reward = "hits"
optimizer = { lr = 3e-2 }

[stage.rl]
method = "grpo"
data   = "train"
steps  = 6
prompts = 4
group  = 4
reward = "hits"
kl     = { coef = 0.05 }
updates = { minibatches = 2 }
checkpoint_every = 2
optimizer = { lr = 3e-2 }

[evaluate.dev]
data   = "train.dev"
reward = "hits"
role   = "select"
checkpoints = ["rl.all"]

[evaluate.test]
benchmark = "picks/test"
role   = "report"
checkpoints = ["base", "imitate.last", "rl.best", "rl.last"]

[evaluate.sampled]
benchmark = "picks/test"
role   = "report"
repeats = 3
checkpoints = ["base", "rl.last"]
sampling = { temperature = 1.0 }
"""


def make_picks_lab(folder: Path) -> Path:
    """Fill `folder`, which is to be the lab's root; returns the experiment file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, folder / "picks_task.py")
    (folder / FEATURES).write_text(json.dumps(CANDIDATES), encoding="utf-8")
    (folder / "picks.toml").write_text(EXPERIMENT, encoding="utf-8")
    return folder / "picks.toml"
