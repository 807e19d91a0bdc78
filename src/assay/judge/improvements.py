"""Improvements of a run: what one is made of, and the rule that ranks them.

An improvement names a change, the figures of the run that speak for it and where they lie, what it
can be worth, what it costs and what it may break. Values are shares that the evidence gives, never
marks of an opinion. The rules that find them are in `lab.improve`; words are the catalogue's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison

Aim = Literal["protect", "correct", "signal", "measure", "explore"]
AIMS: tuple[Aim, ...] = ("protect", "correct", "signal", "measure", "explore")
"""What a change is for, most urgent first. `protect`: what the run has reached is not lost again.
`correct`: a figure of the run does not mean what it says. `signal`: more of the data teaches
something. `measure`: what is undecided becomes decided. `explore`: whether it helps is unknown."""

Work = Literal["settings", "measure", "train", "data"]
WORK: tuple[Work, ...] = ("settings", "measure", "train", "data")
"""What a change takes, cheapest first: a line of the experiment file; answers to be asked again; a
stage to be trained again; data to be made again, and then trained on."""

Risk = Literal["none", "guarded", "open"]
RISKS: tuple[Risk, ...] = ("none", "guarded", "open")
"""What a change may break, least first. `none`: no trained weight becomes another. `guarded`: the
gate on dev items keeps the start unless the change is shown better. `open`: nothing does."""

Unit = Literal["score", "groups", "queries", "answers", "steps", "weights", "movement", "pairs"]
"""What a share is of; `movement` is how far the policy went from its reference, as KL says."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One piece of evidence, as a key `section.name` of the catalogue and the figures that fill
    it."""

    template: str
    figures: Mapping[str, str]
    place: str
    """The file or folder of the run that the figures come from."""


@dataclass(frozen=True, slots=True)
class Stake:
    """What a change can be worth: a share, computed from the evidence."""

    share: float
    """0 to 1: of the score's range for `score`, else of everything that `unit` names."""
    unit: Unit
    at_most: bool
    """An upper bound, not what is expected."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a change takes."""

    work: Work
    seconds: float | None
    """What the same work took in this run; None where the run did not record it."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """One change that the records of a run support."""

    rule: str
    about: str
    """The stage, evaluation or data set."""
    change: tuple[str, ...]
    """What to do, as keys `section.name` of the catalogue; `about` fills their gap."""
    aim: Aim
    evidence: tuple[Fact, ...]
    stake: Stake
    cost: Cost
    risk: Risk

    def __post_init__(self) -> None:
        assert self.evidence, "nothing is listed without evidence"
        assert 0 <= self.stake.share <= 1, self.stake


def ranked(found: Iterable[Improvement]) -> list[Improvement]:
    """Improvements by what they are for, then by the work that they take, then by the larger value,
    then by the smaller risk: what protects and costs nothing stands first, exploration last."""
    return sorted(
        found,
        key=lambda each: (
            *(AIMS.index(each.aim), WORK.index(each.cost.work), -each.stake.share),
            *(RISKS.index(each.risk), each.rule, each.about),
        ),
    )


def share_of_range(difference: float, interval: Interval, *scores: float) -> float:
    """A difference of scores as a share, 0 to 1: itself where scores run from 0 to 1, else relative
    to the largest of `scores`."""
    scale = 1.0 if interval.share else max(map(abs, scores), default=0.0)
    return min(1.0, abs(difference) / scale) if scale else 0.0


def loss_at_stake(found: Comparison) -> Stake:
    """What the change from control to other has cost: the measured loss where it is shown, else the
    most that the interval leaves possible."""
    shown = found.verdict == "worse"
    lost = -found.difference if shown else max(0.0, -found.interval.low)
    share = share_of_range(lost, found.interval, found.control_score, found.score)
    return Stake(share, "score", at_most=not shown)
