"""Writes the history of a stage into its run: samples, metrics, checkpoints, reports when due."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from assay.lab.monitor.guards import GuardFired, GuardWatch
from assay.lab.monitor.observer import Observer
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
    prompt_sha256,
    write_samples,
)
from assay.runs.run_directory import RunDirectory
from assay.runs.status import stored_status, write_status
from assay.train.checkpoint import Journalled, SampleRecord, TrainState, save_checkpoint


@dataclass(frozen=True)
class RunRecorder:
    """See `train.checkpoint.Recorder`."""

    run: RunDirectory
    stage: str
    steps: int
    checkpoint_steps: frozenset[int]
    observer: Observer
    add_files: Callable[[Path], None]
    """Adds what belongs to a checkpoint beside the policy and the metrics up to it."""
    after_checkpoint: Callable[[Policy, int], None]
    """Called with the policy and the step once a checkpoint is complete."""
    guards: GuardWatch
    due: Callable[[int], str]
    """Returns why a progress report is due after a step; "" if none is."""
    judgements: JudgementJournal | None = None
    """What judges said of the step's completions, until these are recorded."""
    costs: Callable[[], Mapping[str, float]] = dict
    """Returns what helper models were asked since the last call, as metrics."""

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
        status = stored_status(self.run.path)
        write_status(self.run.path, replace(status, stage=self.stage, step=step))
        self.guards.see(step, values)
        self.observer.step(step, values)

    def checkpoint(
        self, policy: Policy, optimizer: torch.optim.Optimizer, state: TrainState
    ) -> None:
        """Save after `checkpoint_steps`, after the last step, and where a guard stops the run.
        Raises GuardFired, with the checkpoint on disk."""
        due = state.step in self.checkpoint_steps
        fired = self.guards.fired()
        if due or fired or state.step == self.steps:
            folder = self.run.checkpoints(self.stage)
            save_checkpoint(folder, policy, optimizer, state, self.complete)
        if fired:
            raise GuardFired(fired)
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
        **({} if record.said is None else conversation_columns(record.said.messages, record.turns)),
    }
