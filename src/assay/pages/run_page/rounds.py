"""The rewards of a run's rounds on one axis of steps, and what each round reached, in a line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.pages.charts import Checkpoints, Told, curve_panel, told_curve
from assay.pages.facts import Curve, DevScore, RunFacts
from assay.pages.page import Block, Bullets, Figure, Text
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import Words, number, percent, visible

SEVERAL = 2


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
    reward: Curve
    dev: Sequence[DevScore]
    rewarded_by: object
    """The reward of the stage, to tell whether two rounds have one scale."""


def rounds_of(facts: RunFacts) -> list[Round]:
    """The sampling stages of a run that have rewards, one after the other."""
    found: list[Round] = []
    before = 0
    for name, lines in facts.metrics.items():
        reward = next((c for c in facts.curves(name) if c.metric == "reward_mean"), None)
        if reward is None:
            continue
        found.append(
            Round(
                stage=name,
                start=facts.history.start(name) or str(facts.experiment.stage[name].start),
                before=before,
                steps=lines[-1]["step"],
                completions=sum(int(line.get("completions", 0)) for line in lines),
                reward=reward,
                dev=facts.dev_scores(name),
                rewarded_by=facts.experiment.stage[name].model_dump().get("reward"),
            )
        )
        before += lines[-1]["step"]
    return found


def rounds_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """A chart for each reward, and a line for each round; from the second sampling stage on."""
    rounds = rounds_of(facts)
    if len(rounds) < SEVERAL:
        return []
    groups: list[list[Round]] = []
    for each in rounds:
        alike = [group for group in groups if group[0].rewarded_by == each.rewarded_by]
        alike[0].append(each) if alike else groups.append([each])
    completions = number(sum(each.completions for each in rounds))
    said = [words("figure.about", completions=completions)]
    said += [words("figure.other_rewards")] if len(groups) > 1 else []
    return [
        Text(" ".join(said), "soft"),
        *(_chart(group, words) for group in groups),
        Bullets([_line(each, words) for each in rounds]),
    ]


def _chart(rounds: Sequence[Round], words: Words) -> Figure:
    """The mean reward of every step of some rounds, a mark where each of them ends."""
    stages = words.listing.join(each.stage for each in rounds)
    label = words("figure.reward_of", stages=stages)
    curve = Curve(
        "reward_mean",
        tuple(each.before + step for each in rounds for step in each.reward.steps),
        tuple(value for each in rounds for value in each.reward.values),
        tuple(limits for each in rounds for limits in each.reward.limits),
    )
    ends = Checkpoints([each.before + each.steps for each in rounds])

    def tell(curve: Curve, x: Callable[[float], float], _: int) -> Told:
        return told_curve(label, curve, number, words, x)

    return Figure(curve_panel([curve], label, number, tell, ends, (1012, 150)), label)


def _line(each: Round, words: Words) -> str:
    """A round with the checkpoint that it started from, its reward and its chosen dev score."""
    start = visible(checkpoint_label(each.start, words))
    name = words("figure.round", stage=visible(each.stage), start=start)
    ends = f"{number(each.reward.values[0])} → {number(each.reward.last)}"
    said = [words("figure.reward", steps=each.steps, ends=ends)]
    said += [
        words("figure.dev", step=score.step, score=percent(score.score), items=score.items)
        for score in each.dev
        if score.chosen
    ]
    return name + words.colon + words.semicolon.join(said)
