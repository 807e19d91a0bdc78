"""Gives Assay what another trainer was given, update by update, and compares the numbers.

    python -m benchmarks.trainer_replay grpo trl build/trainers/trl-1 [SETTING ...]
    python -m benchmarks.trainer_replay sft trl build/trainers/sft-trl visited

Of GRPO the batches are the tool's own answers with their rewards, of SFT the rows of the folder; so
that what is left are definitions: prompts, advantages, loss, gradient, clipping, optimizer.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean

import torch
from safetensors.torch import load_file

from assay.data.episode import Completion, Episode, Reward, Turn, tokens_of
from assay.data.formats.plain_text import PlainText
from assay.data.row import Row
from assay.data.splits import visits
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.lab.models.learner import gold_turns, question
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import StageInput, build_grpo
from assay.lab.session.validate import read_whole
from assay.models.adapt import train_all
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.rl.objectives import Objective
from assay.rl.packed import Packed, pack
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.run_directory import RunDirectory
from assay.train.likelihood import NLL, likelihood_batch
from assay.train.pair_choice import choose
from assay.train.update import UpdateResult, make_optimizer, packs_of, update
from assay.trainers.outputs.output import RecordedCompletion, SwiftOutput, TrlOutput
from assay.trainers.outputs.plain_folders import VerlOutput
from benchmarks.driver import ROOT
from benchmarks.worker import Record

OUTPUTS = {"trl": TrlOutput, "swift": SwiftOutput, "verl": VerlOutput}


@dataclass(frozen=True)
class Stage:
    """A stage of an exported folder, and a policy at its start."""

    spec: SftStage | GrpoStage
    given: StageInput
    policy: LanguagePolicy
    optimizer: torch.optim.Optimizer
    tail: tuple[int, ...]
    """What the model's template writes behind the end of an answer, which tools train as well."""

    @property
    def sft(self) -> SftStage:
        """The stage as one that learns from given answers."""
        assert isinstance(self.spec, SftStage)
        return self.spec

    def update(self, packed: Packed, objective: Objective) -> UpdateResult:
        """One of Assay's updates."""
        limits = {"micro_tokens": self.spec.micro_tokens}
        limits |= {"clip_norm": self.spec.optimizer.clip_norm}
        return update(self.policy, packed, objective, self.optimizer, **limits)  # type: ignore[arg-type]


def opened(folder: Path, settings: Sequence[str] = ()) -> Stage:
    """The stage that a folder was exported for, with other settings if any are given."""
    experiment = read_whole(folder / "experiment.toml", settings, ROOT)
    (seed,) = experiment.seeds
    session = Session(experiment, RunDirectory(ROOT, experiment.name, "x"), seed, Silent())
    (spec,) = experiment.stage.values()
    assert isinstance(spec, SftStage | GrpoStage)
    loaded = load_model(folder / "model", choose_precision("fp32", "cpu"))
    module, _ = train_all(loaded.model)
    policy = LanguagePolicy(module.train(), choose_precision("fp32", "cpu"), loaded.end_tokens)
    given = session.stage_input(spec, score=unasked if isinstance(spec, GrpoStage) else None)
    text = PlainText(given.encoder.name, loaded.tokenizer)
    tail = tuple(loaded.tokenizer.encode(text.tail, add_special_tokens=False))
    optimizer = make_optimizer(module.parameters(), lr=spec.optimizer.lr)
    return Stage(spec, given, policy, optimizer, tail)


def unasked(pairs: Sequence[tuple[Row, Completion]]) -> list[Reward]:
    """Rewards of sampled answers, of which there are none."""
    raise NotImplementedError


def groups_of(stage: Stage, answers: Sequence[RecordedCompletion]) -> list[list[Episode]]:
    """Answers of one step as judged groups."""
    rows = {row.id: row for row in stage.given.rows}
    encoder, task = stage.given.encoder, stage.given.task

    def episode(name: str, answer: RecordedCompletion) -> Episode:
        prompt = encoder.prompt(rows[answer.row], question(task, rows[answer.row]))
        turn = Turn(prompt, answer.tokens, (True,) * len(answer.tokens))
        return Episode(name, answer.row, (turn,), Reward(answer.reward))

    numbered = [(f"{n}", answer) for n, answer in enumerate(answers)]
    grouped = groupby(numbered, key=lambda each: each[1].row)
    return [[episode(*each) for each in members] for _, members in grouped]


def replay_grpo(tool: str, folder: Path, *settings: str) -> Record:
    """Assay's updates on a tool's answers: gradient norms of both at each step, the largest
    difference of an advantage, how its tokens were drawn (`surprises`), and how far the weights at
    the end are apart."""
    stage = opened(folder, settings)
    assert isinstance(stage.spec, GrpoStage)
    method = build_grpo(stage.spec, stage.given, stage.spec.steps or 0)
    count = method.algorithm.keep_dropped_in_denominator
    output: TrlOutput | VerlOutput = OUTPUTS[tool](folder / "output")
    steps = []
    for step in output.steps(ended=True):
        groups = groups_of(stage, step.answers)
        choice = choose(groups, stage.spec.prompts, drop=method.drop, count=count)
        surprise, squares = surprises(stage, [e for group in groups for e in group])
        batches, advantages, _ = method.updates(stage.policy, groups, choice)
        norms = [stage.update(packed, method.objective).grad_norm for packed in batches]
        pairs = zip([e for g in groups for e in g], step.answers, strict=True)
        gaps = [
            abs(advantages.get(e.id, 0.0) - a.advantage)
            for e, a in pairs
            if a.advantage is not None
        ]
        steps.append(
            {
                "step": step.number,
                "tokens": sum(len(a.tokens) for a in step.answers),
                "reward": fmean(a.reward or 0.0 for a in step.answers),
                "grad_norm": [step.metrics.get("grad_norm"), sum(norms)],
                "advantage_gap": max(gaps, default=None),
                "surprise": [surprise, squares],
            }
        )
    return {"steps": steps, **apart(output, folder, stage)}


def surprises(stage: Stage, episodes: Sequence[Episode]) -> tuple[float, float]:
    """Of a step's tokens the sum of -log p - entropy under the weights before its update, and that
    of its squares. Drawn from the model as it is, the first is 0 but for noise whose variance the
    second estimates; below, the tool draws likelier tokens than the model gives."""
    with torch.no_grad():
        scores = stage.policy.score(pack(episodes), entropy=True)
    assert scores.entropy_S is not None
    gaps_S = -scores.logps_S.double() - scores.entropy_S.double()
    return float(gaps_S.sum()), float(gaps_S.square().sum())


def apart(output: TrlOutput | VerlOutput, folder: Path, stage: Stage) -> Record:
    """How far two trainings ended from each other: the norm of the difference of their weights over
    that of the way that the tool's went."""
    start = load_file(folder / "model" / "model.safetensors")
    with tempfile.TemporaryDirectory() as scratch:
        saved = output.checkpoints()[-1]
        theirs = load_file(output.weights(saved, Path(scratch)) / "model.safetensors")
    ours = dict(stage.policy.module.state_dict())
    way = difference = 0.0
    for name, weight in start.items():
        way += float((theirs[name].double() - weight.double()).square().sum())
        difference += float((theirs[name].double() - ours[name].double()).square().sum())
    return {"way": way**0.5, "apart": difference**0.5, "share": (difference / way) ** 0.5}


def visited(stage: Stage, tail: int) -> list[list[Row]]:
    """The rows of the first updates, in the order of the stage's visits."""
    given, batch = stage.given, stage.sft.batch
    found = [visits(given.rows, given.seed, n * batch, batch, given.order) for n in range(UPDATES)]
    return [[row for _, row in rows] for rows in found]


def in_packs(stage: Stage, tail: int) -> list[list[Row]]:
    """The rows of ms-swift's packs in the order in which it makes them."""
    rows, batch = stage.given.rows, stage.sft.batch
    sizes = [
        len(tokens_of(turn.context)) + len(turn.actions) + tail for turn in turns_of(stage, rows)
    ]
    packs = packs_of(sizes, stage.sft.pack_tokens or 0)
    starts = range(0, UPDATES * batch, batch)
    return [[rows[place] for pack in packs[n : n + batch] for place in pack] for n in starts]


def the_same(stage: Stage, tail: int) -> list[list[Row]]:
    """The first update's rows again and again: however they are packed, an update has them all."""
    return visited(stage, tail)[:1] * UPDATES


BATCHES = {"visited": visited, "packs": in_packs, "same": the_same}
UPDATES = 10


def turns_of(stage: Stage, rows: Sequence[Row]) -> list[Turn]:
    """The gold turn of each row."""
    given = stage.given
    return [turn for row in rows for turn in gold_turns(given.encoder, given.task, row)]


def replay_sft(folder: Path, batches: str, tail: bool) -> Record:
    """Losses and gradient norms of Assay's first updates on the rows of a folder, with what the
    tools train behind an answer or without."""
    stage = opened(folder)
    more = stage.tail if tail else ()
    losses, norms = [], []
    for rows in BATCHES[batches](stage, len(stage.tail)):
        episodes = []
        for n, turn in enumerate(turns_of(stage, rows)):
            actions = (*turn.actions, *more)
            trained = Turn(turn.context, actions, (True,) * len(actions))
            episodes.append(Episode(f"{n}", f"{n}", (trained,)))
        made = stage.update(likelihood_batch(episodes), NLL)
        losses.append(made.totals.loss)
        norms.append(made.grad_norm)
    return {"loss": losses, "grad_norm": norms}


TAILS = {"with the tail": True, "without": False}


def main() -> None:
    """Print one replay."""
    method, tool, folder, *more = sys.argv[1:]
    torch.set_num_threads(1)
    if method == "grpo":
        found = replay_grpo(tool, Path(folder), *more)
    else:
        (batches,) = more
        found = {name: replay_sft(Path(folder), batches, tail) for name, tail in TAILS.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
