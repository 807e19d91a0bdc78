"""Asks a trained selector for its selections of a query: its beam, its samples, what is similar.

The selector is a checkpoint of a run; nothing is trained, and the frozen model is not asked here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch

from assay.data.episode import Episode, Turn
from assay.data.row import Row
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.selection_tables import RUN, SelectionsSpec
from assay.lab.monitor.observer import Observer
from assay.lab.setup.learner import Encoder, question
from assay.lab.setup.session import Session
from assay.rl.packed import pack
from assay.rl.policy import SampleKey, Sampling
from assay.runs.run_names import experiment_of, run_checkpoint
from assay.tasks.demos.choice import Choice, choice_of
from assay.tasks.demos.selection_data import (
    Picks,
    Proposal,
    distinct,
    drawn,
    retrieved,
    search,
)
from assay.tasks.demos.selector_policy import SelectorPolicy
from assay.tasks.task import Task


class NoSelector(InputError):
    """The checkpoint of something that picks no demonstrations."""


@dataclass(frozen=True)
class TrainedSelector:
    """A selector that can be asked."""

    policy: SelectorPolicy
    encoder: Encoder
    task: Task
    checkpoint: str
    """The folder of its weights, below the lab's root."""

    def choice(self, row: Row) -> Choice:
        """What it reads of a query."""
        return choice_of(self.encoder.prompt(row, question(self.task, row)))

    def logps(self, choice: Choice, selections: Sequence[Picks]) -> list[float]:
        """The log-probability of each selection, which may have fewer picks than `shots`."""
        if not choice.shots:
            return [0.0] * len(selections)
        turns = [Turn(choice, picks, (True,) * len(picks)) for picks in selections]
        packed = pack([Episode(str(n), choice.query, (turn,)) for n, turn in enumerate(turns)])
        with torch.no_grad():
            logps_S = self.policy.score(packed).logps_S
        bounds = packed.offsets_N1.tolist()
        return [float(logps_S[a:b].sum()) for a, b in pairwise(bounds)]


def trained_selector(source: str, root: Path, observer: Observer, seed: int) -> TrainedSelector:
    """The selector of `run:NAME@CHECKPOINT`. Raises NoSelector, RunNotFound, CheckpointDamaged."""
    run, reference, folder = run_checkpoint(source.removeprefix(RUN), root)
    session = Session(experiment_of(run), run, seed, observer)
    policy = session.learner.sampler(run, reference)
    if not isinstance(policy, SelectorPolicy):
        problem = f"{source} is a {session.learner.name}, which picks no demonstrations"
        raise NoSelector(problem, field="selector", fix="name a checkpoint of a selector")
    encoder = session.learner.encoder(RenderingSettings())
    return TrainedSelector(policy, encoder, session.task, folder.relative_to(root).as_posix())


def proposals_of(selector: TrainedSelector, row: Row, spec: SelectionsSpec) -> list[Proposal]:
    """The selections of a query that a `mixed` table asks for, each set once."""
    choice = selector.choice(row)
    return distinct(
        [
            *selector_beam(selector, choice, row, spec.width),
            *retrieved(row, similarities(choice), spec.similar),
            *sampled(selector, choice, spec),
            *drawn(row, spec.random, spec.seed),
        ]
    )


def selector_beam(
    selector: TrainedSelector, choice: Choice, row: Row, width: int
) -> list[Proposal]:
    """The selector's likeliest selections, the likeliest first."""
    # A selector picks from the query outwards; the search puts each new pick next to the query.
    beams = search(
        row, width, lambda states: selector.logps(choice, [picks[::-1] for picks in states])
    )
    return [replace(beam, picks=beam.picks[::-1]) for beam in beams]


def sampled(selector: TrainedSelector, choice: Choice, spec: SelectionsSpec) -> list[Proposal]:
    """What the selector draws, `samples` at each temperature."""
    found = []
    for place, temperature in enumerate(spec.temperatures):
        numbers = range(place * spec.samples, (place + 1) * spec.samples)
        keys = [SampleKey(spec.seed, choice.query, number) for number in numbers]
        turns = selector.policy.sample([choice] * len(keys), keys, Sampling(temperature))
        found += [Proposal(turn.actions, "sample", temperature=temperature) for turn in turns]
    return found


def similarities(choice: Choice) -> dict[int, float]:
    """The cosine of the query and each demonstration of its pool, by the selector's features."""
    pool_KD = choice.features.demonstrations_ND[torch.tensor(choice.pool, dtype=torch.long)]
    cosines_K = (pool_KD @ choice.query_D).double()
    return dict(zip(choice.pool, cosines_K.tolist(), strict=True))
