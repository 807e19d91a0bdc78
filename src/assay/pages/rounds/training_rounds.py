"""The rounds of a run, one sampling stage after the other on one axis of steps, for its figures.

Read from the facts of a run; drawn by `round_charts`. No words here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.pages.answer_lengths import Lengths
from assay.pages.facts import Curve, DevScore, RunFacts
from assay.train.metric_names import PART


@dataclass(frozen=True, slots=True)
class Round:
    """One sampling stage on the common axis of steps."""

    stage: str
    start: str
    """The checkpoint that it started from, as records name it; as the file says, while that is not
    known."""
    before: int
    """Steps of all rounds before it."""
    steps: int
    completions: int
    """Rewarded in all its steps."""
    reward: Curve | None
    parts: Mapping[str, Curve]
    """By name of the part."""
    dev: Sequence[DevScore]
    lengths: Sequence[Lengths]
    """Empty where outcomes were not recorded."""
    rewarded_by: object
    """The reward of the stage, to tell whether two rounds have one scale."""


def rounds_of(facts: RunFacts) -> list[Round]:
    """The sampling stages of a run that have steps, one after the other."""
    found: list[Round] = []
    before = 0
    for name, lines in facts.metrics.items():
        if not any("reward_mean" in line for line in lines):
            continue
        curves = facts.curves(name)
        steps = lines[-1]["step"]
        found.append(
            Round(
                stage=name,
                start=facts.history.start(name) or str(facts.experiment.stage[name].start),
                before=before,
                steps=steps,
                completions=sum(int(line.get("completions", 0)) for line in lines),
                reward=next((c for c in curves if c.metric == "reward_mean"), None),
                parts={c.metric.removeprefix(PART): c for c in facts.part_curves(name)},
                dev=facts.dev_scores(name),
                lengths=facts.lengths(name),
                rewarded_by=facts.experiment.stage[name].model_dump().get("reward"),
            )
        )
        before += steps
    return found
