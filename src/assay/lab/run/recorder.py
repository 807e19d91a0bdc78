"""Writes the history of a stage into its run: samples, metrics, checkpoints, reports when due.

`Following` writes down what another trainer wrote. It is called again and again while the tool
works, and once where its work was done elsewhere; each call records what has become whole since the
last. A metric is the tool's, translated by the table of its reader; what the samples say is counted
as Assay counts its own. A checkpoint is read strictly and written as Assay writes one, without
optimizer state.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from assay.data.episode import Context, Episode, Reward, Turn
from assay.data.files import new_folder, prompt_sha256, sha256_text, write_checksums
from assay.errors import InputError
from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.lab.models.language_learner import language_model
from assay.lab.monitor.guards import GuardWatch, stopped
from assay.lab.monitor.observer import Observer
from assay.lab.session.session import Session
from assay.models.precision import choose_precision
from assay.models.taken_over import open_theirs, refuse_unlike, refuse_unsteady
from assay.rl.policy import Policy
from assay.runs.history import History
from assay.runs.judgement_journal import JudgementJournal
from assay.runs.metrics import append_metrics, keep_history
from assay.runs.records import (
    ENTROPIES,
    FACTS,
    OUTCOME,
    PROMPT,
    conversation_columns,
    write_samples,
)
from assay.runs.run_directory import STATE, RunDirectory, change_status
from assay.train.checkpoint import (
    Journalled,
    SampleRecord,
    TrainState,
    save_checkpoint,
    state_fields,
)
from assay.train.grpo import advantage_spread
from assay.train.likelihood import signal_metrics
from assay.train.sampled_groups import sampling_metrics
from assay.trainers.outputs.output import Number, RecordedCompletion, Saved, Step
from assay.trainers.outputs.plain_folders import Output


@dataclass(frozen=True)
class RunRecorder:
    """See `train.checkpoint.Recorder`."""

    run: RunDirectory
    stage: str
    steps: int
    checkpoint_steps: frozenset[int]
    observer: Observer
    guards: GuardWatch
    add_files: Callable[[Path], None]
    """Adds what belongs to a checkpoint beside the policy and the metrics up to it."""
    after_checkpoint: Callable[[Policy, int], object] = lambda policy, step: None
    """Called with the policy and the step once a checkpoint is complete."""
    due: Callable[[int], str] = lambda step: ""
    """Returns why a progress report is due after a step; "" if none is."""
    judgements: JudgementJournal | None = None
    """What judges said of the step's completions, until these are recorded."""
    costs: Callable[[], Mapping[str, float]] = dict
    """Returns what helper models were asked since the last call, as metrics."""

    def inside(self, part: str, done: int, total: int) -> None:
        """See `Observer.inside`."""
        self.observer.inside(part, done, total)

    def recorded_rewards(self, step: int) -> Mapping[str, Journalled]:
        """Rewards that an interrupted attempt at this step already journalled. A deadline may pass
        one time and not another, so what was judged once stays judged."""
        return {
            f"{each.row}#{each.number}": Journalled(each.tokens, each.judgement)
            for each in History(self.run).samples(self.stage, step, tokens=True)
        }

    def samples(self, step: int, records: Sequence[SampleRecord]) -> None:
        """Write the step's completions, whole or not at all."""
        lines = [sample_line(self.stage, step, record) for record in records]
        write_samples(self.run.samples(self.stage, step), lines, self.run.path)
        if self.judgements is not None:
            self.judgements.drop(f"{step}/")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append the step's line, note how far the run is, and tell the observer."""
        values = {**values, **self.costs()}
        append_metrics(self.run.metrics, self.stage, step, **values)
        change_status(self.run.path, stage=self.stage, step=step)
        self.guards.see(step, values)
        self.observer.step(step, values)

    def checkpoint(
        self, policy: Policy, optimizer: torch.optim.Optimizer, state: TrainState
    ) -> None:
        """Save after `checkpoint_steps`, after the last step, and where a guard stops the run.
        Raises RunFailure, with the checkpoint on disk."""
        due = state.step in self.checkpoint_steps
        fired = self.guards.fired()
        if due or fired or state.step == self.steps:
            folder = self.run.checkpoints(self.stage)
            save_checkpoint(folder, policy, optimizer, state, self.complete)
        if fired:
            raise stopped(fired)
        if due or state.step == self.steps:
            self.after_checkpoint(policy, state.step)
        self.report(state.step)

    def report(self, step: int) -> None:
        """Ask for the progress report that is due after a step."""
        if why := self.due(step):
            self.observer.report(self.run, self.stage, step, why)

    def complete(self, folder: Path) -> None:
        """Add the other files of a checkpoint, and the metrics up to this step."""
        self.add_files(folder)
        keep_history(self.run.metrics, folder)


def sample_line(stage: str, step: int, record: SampleRecord) -> dict[str, object]:
    """One line of a samples file."""
    return {
        "sample_id": f"{stage}/{step}/{record.row_id}#{record.sample}",
        "step": step,
        "row_id": record.row_id,
        "visit": record.visit,
        "sample": record.sample,
        "text": record.text,
        "tokens": list(record.tokens),
        "behaviour_logps": list(record.behaviour_logps),
        "reward": record.reward.value,
        "parts": json.dumps(dict(record.reward.parts), sort_keys=True),
        "why": record.reward.why,
        "advantage": record.advantage,
        "ended": record.ended,
        FACTS: json.dumps(dict(record.reward.facts), sort_keys=True),
        OUTCOME: record.reward.outcome,
        PROMPT: prompt_sha256(record.prompt),
        ENTROPIES: [*record.entropies] or None,
        **(
            {}
            if record.completion is None
            else conversation_columns(record.completion.messages, record.turns)
        ),
    }


OF_TOKENS = ("length_mean", "truncated_share", "completion_tokens", "prompt_tokens")
"""What is not known of answers that are text alone."""
ASKED = "prompt"
"""Fact of a sample whose row is not known: what was asked."""


@dataclass
class Following:
    """A tool's output and how far it is recorded."""

    session: Session
    recorder: RunRecorder
    stage: StageSpec
    output: Output
    step: int
    """The last that is recorded."""
    seen: Counter[str] = field(default_factory=Counter)
    """Completions so far, by row."""
    contexts: Mapping[str, Context] = field(default_factory=dict)
    """What each row asks, where the rows are known."""
    likelihood: bool = True
    """Whether the loss of a stage that learns from stored answers is the mean of -log p over the
    trained tokens."""
    elsewhere: bool = False
    """Whether the tool was not started by this run: what it did is taken over once."""
    merges: bool = False
    """Whether an adapter is taken over as whole weights."""
    stepped: Callable[[int], None] = lambda step: None
    """Called with each step once it is recorded, with its checkpoint."""

    def take(self, ended: bool = False, whole: Sequence[Step] | None = None) -> int:
        """Record what is whole by now, or of it what was read already; returns the last recorded
        step. `ended`: the tool writes no more. Raises what the reader and the recorder raise."""
        steps = self.output.steps(self.step, ended) if whole is None else iter(whole)
        first = next(steps, None)
        # Tools save between two steps: what is whole now was saved before the first of these.
        done = self.recorder.run.checkpoint_steps(self.recorder.stage)
        saved = {
            each.step: each
            for each in self.output.checkpoints()
            if each.step >= self.step and each.step not in done
        }
        self.keep_until(self.step, saved)
        while first is not None:
            self.keep_until(first.number - 1, saved)
            self.record(first)
            self.keep_until(first.number, saved)
            self.stepped(first.number)
            first = next(steps, None)
        if self.elsewhere:  # a tool may save more often than it logs, or log nothing
            self.keep_until(max(saved, default=0), saved)
        return self.step

    def keep_until(self, step: int, saved: dict[int, Saved]) -> None:
        """Take the checkpoints up to a step over, and out of `saved`."""
        for number in sorted(each for each in saved if each <= step):
            self.keep(saved.pop(number))

    def record(self, step: Step) -> None:
        """The completions and the metrics of one step."""
        records = self.records(step.answers)
        if records:
            self.recorder.samples(step.number, records)
        metrics = self.named(step.metrics)
        known = {k: v for k, v in metrics.items() if v is not None}
        counted = counted_metrics(records, self.contexts)
        gone: dict[str, Number] = {"seconds": None, **metrics}
        self.recorder.metrics(step.number, {**gone, **counted, **known})  # type: ignore[arg-type]
        self.seen.update(record.row_id for record in records)
        self.step = step.number

    def named(self, metrics: Mapping[str, Number]) -> Mapping[str, Number]:
        """The metrics of a stage that learns from stored answers: its loss is Assay's `nll`, or,
        where it is another quantity, what the tool calls it."""
        if isinstance(self.stage, SamplingStage):
            return metrics
        if self.likelihood:
            return {**metrics, "nll": metrics["loss"]} if "loss" in metrics else metrics
        theirs = {"loss": "loss", "validation_loss": "eval_loss"}
        return {
            f"{self.stage.trainer}/{theirs[k]}" if k in theirs else k: v for k, v in metrics.items()
        }

    def records(self, answers: Sequence[RecordedCompletion]) -> list[SampleRecord]:
        """The answers as a stage's samples; the group of a row is a visit to it."""
        size = self.stage.group if isinstance(self.stage, SamplingStage) else 1
        count, records = self.seen.copy(), []
        for answer in answers:
            row = answer.row or f"prompt-{sha256_text(answer.prompt)[:12]}"
            number = count[row]
            count[row] += 1
            facts = {} if answer.row else {ASKED: answer.prompt}
            reward = Reward(answer.reward, answer.parts or {}, answer.why, facts=facts)
            records.append(
                SampleRecord(
                    row_id=row,
                    visit=number // size,
                    sample=number,
                    text=answer.text,
                    tokens=answer.tokens,
                    behaviour_logps=answer.logps,
                    reward=reward,
                    advantage=answer.advantage,
                    ended=answer.ended or "",
                    prompt=self.contexts.get(row),
                )
            )
        return records

    def keep(self, saved: Saved) -> None:
        """A checkpoint of the tool as one of the stage's, proven to be the same model as in the
        tool's own loader. Raises InputError."""
        run, name = self.recorder.run, self.recorder.stage
        learner = language_model(self.session.learner, "another trainer")
        shelf = replace(learner.shelf(run), precision=choose_precision("fp32", "cpu"))
        with TemporaryDirectory() as scratch, new_folder(run.checkpoint(name, saved.step)) as part:
            theirs = self.output.weights(saved, Path(scratch))
            source = theirs if theirs.is_relative_to(saved.folder) else saved.folder
            base = shelf.take_over(self.stage, theirs, part, merges=self.merges)
            self.recorder.complete(part)
            state = json.dumps(state_fields(TrainState(step=saved.step))) + "\n"
            (part / STATE).write_text(state, encoding="utf-8")
            write_checksums(part)
            opened = partial(open_theirs, theirs, base)
            try:
                refuse_unlike(opened(), shelf.opened(self.stage, part), source)
            except InputError:
                if self.merges:
                    refuse_unsteady(opened, source)
                raise


def begin(session: Session, recorder: RunRecorder, output: Output) -> Following:
    """What goes on behind the steps that the recorder's run has of its stage."""
    history, name = History(recorder.run), recorder.stage
    lines = history.lines(name)
    seen = Counter(s.row for n in history.sampled(name) for s in history.samples(name, n))
    step = lines[-1]["step"] if lines else 0
    return Following(session, recorder, session.experiment.stage[name], output, step, seen)


def counted_metrics(
    records: Sequence[SampleRecord], contexts: Mapping[str, Context]
) -> dict[str, float]:
    """What a step's samples say, counted as Assay counts its own; empty without samples."""
    if not records:
        return {}
    groups: dict[tuple[str, int], list[Episode]] = {}
    for record in records:
        groups.setdefault((record.row_id, record.visit), []).append(episode(record, contexts))
    made = [*groups.values()]
    metrics = {**sampling_metrics(made), **signal_metrics(made)}
    if not all(record.tokens for record in records):
        metrics = {name: value for name, value in metrics.items() if name not in OF_TOKENS}
    elif not all(record.row_id in contexts for record in records):
        del metrics["prompt_tokens"]
    advantages = [r.advantage for r in records if r.reward.value is not None]
    known = [value for value in advantages if value is not None]
    return metrics | (advantage_spread(known) if len(known) == len(advantages) else {})


def episode(record: SampleRecord, contexts: Mapping[str, Context]) -> Episode:
    """A sample as the episode that metrics are counted of; of text alone, its bytes stand for
    tokens, so that equal answers are equal."""
    actions = record.tokens or tuple(record.text.encode("utf-8", "surrogatepass"))
    ended = "length" if record.ended == "length" else "stop"
    turn = Turn(contexts.get(record.row_id, ()), actions, (True,) * len(actions), ended=ended)
    return Episode(f"{record.row_id}#{record.sample}", record.row_id, (turn,), record.reward)
