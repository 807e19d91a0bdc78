"""What `reward` may be in a stage or an evaluation, and the settings of judging.

Kinds and their options are looked up in `lab.session.validate`; `tasks.reward_table` combines the
parts and `tasks.running` scores them.
"""

from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from assay.errors import nearest
from assay.experiment.base_table import (
    Few,
    Many,
    Positive,
    Refusals,
    SpecTable,
    Weight,
    raise_all,
    refused,
)


class Bounds(SpecTable):
    """What another part gave; all have to hold."""

    above: float | None = None
    """The value is above this."""
    below: float | None = None
    """The value is below this."""
    outcome: Annotated[Many[str], Field(min_length=1)] | None = None
    """One of these: `["no answer", "timed out"]`."""

    def _conflicts(self) -> Refusals:
        if self.above is None and self.below is None and self.outcome is None:
            fix = "write above, below, outcome or several of them"
            yield refused("above", "a condition without a bound", fix)
        if self.above is not None and self.below is not None and self.above >= self.below:
            yield refused("above", f"no value is above {self.above:g} and below {self.below:g}")


class RewardPart(SpecTable):
    """One part of a reward, their sum."""

    kind: str
    """A reward of the task, of every task (`text.truncated`), or `path:FILE.py:FUNCTION`."""
    weight: Weight = 1.0
    """The kind's value is multiplied by it."""
    value: Weight | None = None
    """Worth of the full reward, before the weight; omitted: the kind's own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the kind, such as `{ size = 4 }`."""
    when: dict[str, float | Bounds] = Field(default_factory=dict)
    """Values, bounds or outcomes that other parts must have; else this is worth 0."""

    @property
    def worth(self) -> float:
        """What the full reward adds to the sum, of a kind whose full reward is 1 or that `value`
        gives a worth."""
        return self.weight * (1.0 if self.value is None else self.value)


def check_conditions(parts: "str | dict[str, float | RewardPart]") -> Any:
    """The parts, if each condition is on another part and none waits for itself."""
    if isinstance(parts, str):
        return parts
    problems, table = [], {n: p for n, p in parts.items() if isinstance(p, RewardPart)}
    worths = [p.worth if isinstance(p, RewardPart) else p for p in parts.values()]
    if not any(worths):
        problem = "every part is worth 0" if parts else "a table without parts"
        problems.append(refused("", problem, "for example { accuracy = 1.0 }"))
    for name, other in ((name, other) for name, p in table.items() for other in p.when):
        if other not in parts:
            fix = nearest(other, parts)
            problems.append(refused(f"{name}.when.{other}", f"no part {other!r}", fix))
    try:
        TopologicalSorter({name: [*p.when] for name, p in table.items()}).prepare()
    except CycleError as cycle:
        ring = cycle.args[1]
        problem = f"the conditions go in a circle: {' - '.join(ring)}"
        problems.append(refused(f"{ring[0]}.when", problem))
    raise_all(problems)
    return parts


Reward = Annotated[str | dict[str, Weight | RewardPart], AfterValidator(check_conditions)]
"""A reward by name, or a table: names with weights, or named parts. The reward is their sum."""


def parts_of(spec: Reward) -> dict[str, RewardPart]:
    """The parts of a reward; a bare name is one part, a number is the weight of the reward that the
    part is named after."""
    if isinstance(spec, str):
        return {spec: RewardPart(kind=spec)}
    return {
        name: part if isinstance(part, RewardPart) else RewardPart(kind=name, weight=part)
        for name, part in spec.items()
    }


class RewardSettings(SpecTable):
    """How the rewards of a stage or an evaluation are run."""

    reward_deadline: Positive = 10.0
    """Seconds for one completion in a worker or a judge's batch."""
    reward_workers: Few = 2
    """Worker processes."""
    reward_concurrency: Few = 8
    """Batches that judges are given at once."""
