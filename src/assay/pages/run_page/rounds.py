"""The learning curves of a run's rounds in one chart: rewards and dev scores, stage after stage."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.pages.charts import (
    WINDOW,
    Scale,
    band,
    dot,
    drawing,
    line,
    moving_average,
    path,
    text,
    ticks,
    told_curve,
)
from assay.pages.drawn import curve_line
from assay.pages.facts import Curve, DevScore, RunFacts
from assay.pages.page import Block, Bullets, Figure, Line, Mark, Only, Text
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
    reward: Curve | None
    dev: Sequence[DevScore]
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
                dev=facts.dev_scores(name),
                rewarded_by=facts.experiment.stage[name].model_dump().get("reward"),
            )
        )
        before += steps
    return found


def rounds_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The chart, from the second sampling stage on."""
    rounds = rounds_of(facts)
    if len(rounds) < SEVERAL:
        return []
    labels = [_label(each, words) for each in rounds]
    completions = number(sum(each.completions for each in rounds))
    lines = [
        _drawn(label, each.reward, each.steps) for each, label in zip(rounds, labels, strict=True)
    ]
    return [
        Text(words("figure.about"), "soft"),
        *drawn(Figure(learning_chart(rounds, labels, words)), lines),
        Text(_learning_about(rounds, completions, words), "soft"),
    ]


def drawn(figure: Block, lines: Sequence[Line]) -> list[Block]:
    """A drawing, and the same in characters where there is none."""
    return [figure, Only(("markdown",), [Bullets(lines)])]


def curve_in_characters(label: str, first: str, drawn: str, last: str) -> Line:
    """A curve as a row of blocks between its first and last value."""
    return f"{label} {first} ", Mark(drawn, "code"), f" {last}"


def _label(each: Round, words: Words) -> str:
    """A round and the checkpoint that it started from."""
    start = visible(checkpoint_label(each.start, words))
    return words("figure.round", stage=visible(each.stage), start=start)


def _drawn(label: str, curve: Curve | None, steps: int) -> Line:
    """The reward of one round in characters."""
    name = f"{label} · {number(steps)}:"
    if curve is None:
        return f"{name} –"
    ends = number(curve.values[0]), number(curve.last)
    return curve_in_characters(name, ends[0], curve_line(curve.values), ends[1])


def _learning_about(rounds: Sequence[Round], completions: str, words: Words) -> str:
    """The numbers behind the learning curves, and whether rewards have one scale."""
    said = [words("figure.learning_about", completions=completions)]
    dev = {score.items for each in rounds for score in each.dev}
    if dev:
        said.append(words("figure.dev_about", items=number(max(dev))))
    if len(by_reward(rounds)) > 1:
        said.append(words("figure.other_rewards"))
    return " ".join(said)


WIDE, LEFT, RIGHT_END = 1012, 60, 1000
LETTER = 6.4
"""Width of a letter of the small text, on the safe side."""


def learning_chart(rounds: Sequence[Round], labels: Sequence[str], words: Words) -> Markup:
    """Mean reward of every step with its band, a panel for each reward, and dev scores with
    intervals below where there are any; `labels` name the rounds with what they started from.
    """
    x = _axis(rounds, LEFT, RIGHT_END)
    rewards = by_reward(rounds)
    marks, bottom, told = list(_headings(rounds, labels, x)), 8, []
    for alike in rewards:
        top, bottom = bottom + 36, bottom + 36 + (110 if len(rewards) > 1 else 142)
        key = "figure.reward_of" if len(rewards) > 1 else "figure.reward"
        title = words(key, stages=words.listing.join(e.stage for e in alike))
        marks.append(text(LEFT, top - 10, title, "label"))
        curves = [(each, each.reward) for each in alike if each.reward is not None]
        y, values = _scale([end for _, curve in curves for end in _ends(curve)], bottom, top)
        marks += [*_grid(y, values, number), *_boundaries(rounds, x, top, bottom)]
        for each, curve in curves:
            marks += _curve(curve, _within(x, each), y)
            told.append(told_curve(each.stage, curve, number, words, _within(x, each)))
    if any(each.dev for each in rounds):
        top, bottom = bottom + 36, bottom + 156
        marks.append(text(LEFT, top - 10, words("figure.dev"), "label"))
        marks += _dev_marks(rounds, x, top, bottom)
    marks += _steps(rounds, x, bottom, words)
    return drawing(WIDE, bottom + 42, marks, words("figure.title"), told)


def by_reward(rounds: Sequence[Round]) -> list[list[Round]]:
    """The rounds by their reward: only the same one has the same scale."""
    found: list[list[Round]] = []
    for each in rounds:
        same = [alike for alike in found if alike[0].rewarded_by == each.rewarded_by]
        same[0].append(each) if same else found.append([each])
    return found


def _dev_marks(rounds: Sequence[Round], x: Scale, top: float, bottom: float) -> Iterator[Markup]:
    """Dev scores with intervals; the chosen checkpoint of a round has a ring."""
    scores = [score for each in rounds for score in each.dev]
    ends = [end for score in scores for end in (score.interval.low, score.interval.high)]
    y, values = _scale(ends, bottom, top)
    yield from _grid(y, values, percent)
    yield from _boundaries(rounds, x, top, bottom)
    for each in rounds:
        for score in each.dev:
            place = x(each.before + score.step)
            yield line(place, y(score.interval.low), place, y(score.interval.high), "whisker")
            kind = "mark chosen" if score.chosen else "mark"
            title = f"{each.stage} {number(score.step)}: {percent(score.score)}"
            yield dot(place, y(score.score), 6 if score.chosen else 4, kind, title)


def _axis(rounds: Sequence[Round], left: float, right: float) -> Scale:
    """Steps of all rounds in one row, after room for what the first one started from; a round's
    first step lies half a step behind its boundary."""
    return Scale(-0.012 * _total(rounds), _total(rounds) + 0.5, left, right)


def _total(rounds: Sequence[Round]) -> int:
    return rounds[-1].before + rounds[-1].steps


def _within(x: Scale, each: Round) -> Callable[[float], float]:
    """The place of a step of a round."""
    return lambda step: x(each.before + step)


def _scale(values: Sequence[float], bottom: float, top: float) -> tuple[Scale, list[float]]:
    """The scale of values with round ends, and the values to mark."""
    marks = ticks(min(values), max(values)) if values else [0.0, 1.0]
    return Scale(marks[0], marks[-1], bottom, top), marks


def _ends(curve: Curve) -> list[float]:
    """The values and limits of a curve."""
    limits = [end for each in curve.limits if each for end in (each.low, each.high)]
    return [value for value in curve.values if value is not None] + limits


def _grid(
    y: Scale,
    at: Sequence[float],
    write: Callable[[float | None], str],
) -> Iterator[Markup]:
    """Lines with their values."""
    for tick in at:
        yield line(LEFT, y(tick), RIGHT_END, y(tick), "grid")
        yield text(LEFT - 6, y(tick) + 4, write(tick), "tick", "end")


def _boundaries(rounds: Sequence[Round], x: Scale, top: float, bottom: float) -> Iterator[Markup]:
    """A line where a round begins, but the first."""
    for each in rounds[1:]:
        place = x(each.before + 0.5)
        yield line(place, top, place, bottom, "round")


def _headings(rounds: Sequence[Round], labels: Sequence[str], x: Scale) -> Iterator[Markup]:
    """The names of rounds, cut to the width that they have."""
    for each, label in zip(rounds, labels, strict=True):
        start, end = x(each.before + 0.5), x(each.before + each.steps + 0.5)
        letters = int((end - start - 8) / LETTER)
        shown = label if len(label) <= letters else f"{label[: letters - 1]}…"
        if letters > 2:
            yield text(start + 4, 12, shown, "tick")


def _steps(rounds: Sequence[Round], x: Scale, bottom: float, words: Words) -> Iterator[Markup]:
    """The first and the last step of every round that has room, and the name of the axis."""
    for each in rounds:
        start, end = x(each.before + 0.5), x(each.before + each.steps + 0.5)
        last = number(each.steps)
        if end - start > LETTER * (len(last) + 4):
            yield text(start + 3, bottom + 18, number(1), "tick")
        if end - start > LETTER * len(last):
            yield text(end - 3, bottom + 18, last, "tick", "end")
    middle = (LEFT + RIGHT_END) / 2
    yield text(middle, bottom + 36, words("figure.steps"), "tick", "middle")


def _curve(curve: Curve, x: Callable[[float], float], y: Scale) -> Iterator[Markup]:
    """The values of a curve with their band, and their moving average where there are many."""
    yield band(curve, x, y)
    many = len(curve.points) > 4 * WINDOW
    yield path(_places(curve, curve.values, x, y), "curve faint" if many else "curve")
    if many:
        yield path(_places(curve, moving_average(curve.values), x, y), "curve")


def _places(
    curve: Curve, values: Sequence[float | None], x: Callable[[float], float], y: Scale
) -> list[tuple[float, float] | None]:
    steps = zip(curve.steps, values, strict=True)
    return [None if value is None else (x(step), y(value)) for step, value in steps]
