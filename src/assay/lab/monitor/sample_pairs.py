"""Picks a program before and one after: the same row's at the first and at the last step.

Of several rows the first by id that both steps sampled, of several completions of it the one of the
median reward. The choice looks at nothing else, so that it cannot flatter a run. Where no row is in
both steps, each step gives its own median completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.lab.monitor.sample_facts import SampleText, programs_of_step
from assay.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class SamplePair:
    """A completion of the first step and one of the last."""

    same_row: bool
    before: SampleText
    after: SampleText


def sample_pair(run: RunDirectory, stage: str, first: int, last: int) -> SamplePair | None:
    """The pair of two steps; None where they are one step, where one keeps no samples, or where the
    task notes no programs. Raises DamagedRecord."""
    if first == last:
        return None
    before, after = (scored(programs_of_step(run, stage, step)) for step in (first, last))
    if not before or not after:
        return None
    shared = {s.facts.row_id for s in before} & {s.facts.row_id for s in after}
    if not shared:
        return SamplePair(False, median(before), median(after))
    row = min(shared)
    both = ([s for s in part if s.facts.row_id == row] for part in (before, after))
    return SamplePair(True, *map(median, both))


def scored(samples: Sequence[SampleText]) -> list[SampleText]:
    """Those that have a reward, of a task that notes errors or programs."""
    return [s for s in samples if s.facts.error is not None and s.facts.reward is not None]


def median(samples: Sequence[SampleText]) -> SampleText:
    """The one of the median reward; the lower of two, and the earlier of equals."""
    ranked = sorted(samples, key=lambda s: (s.facts.reward or 0.0, s.facts.row_id, s.facts.sample))
    return ranked[(len(ranked) - 1) // 2]
