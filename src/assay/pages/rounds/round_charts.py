"""Draws the figures of training rounds and of lengths as SVG, in the page's colours.

Learning curves and reward parts over all rounds, tokens of right and wrong completions by step, and
the share of right answers by length. The data come from `training_rounds` and `answer_lengths`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.pages.answer_lengths import LengthBin, Lengths, LengthsOfRecord
from assay.pages.charts import (
    WINDOW,
    Scale,
    Told,
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
from assay.pages.facts import Curve, DevScore, RunFacts
from assay.pages.words import Words, number, percent
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


WIDE, LEFT, RIGHT_END = 1012, 60, 1000
LETTER = 6.4
"""Width of a letter of the small text, on the safe side."""
Points = Sequence[tuple[int, float | None]]


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
    return drawing(WIDE, bottom + 42, marks, words("figure.learning"), told)


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


def part_panel(name: str, rounds: Sequence[Round], label: str, words: Words) -> Markup:
    """One part of the reward over all rounds, on a scale of its own."""
    left, right, top, bottom = 48, 312, 10, 122
    x = _axis(rounds, left, right)
    known = [(each, each.parts[name]) for each in rounds if name in each.parts]
    y, values = _scale([end for _, curve in known for end in _ends(curve)], bottom, top)
    marks = [*_grid(y, values, number, left, right), *_boundaries(rounds, x, top, bottom)]
    told = []
    for each, curve in known:
        marks += _curve(curve, _within(x, each), y)
        told.append(told_curve(each.stage, curve, number, words, _within(x, each)))
    marks.append(text(left, 142, number(1), "tick"))
    marks.append(text((left + right) / 2, 142, words("chart.step"), "tick", "middle"))
    marks.append(text(right, 142, number(_total(rounds)), "tick", "end"))
    return drawing(320, 150, marks, label, told)


def lengths_chart(rounds: Sequence[Round], labels: Sequence[str], words: Words) -> Markup:
    """Mean tokens of right and of wrong completions, step by step."""
    x, bottom = _axis(rounds, LEFT, RIGHT_END), 204
    found = [(each, length) for each in rounds for length in each.lengths]
    means = [v for _, length in found for v in (length.right, length.wrong) if v is not None]
    y, values = _scale([0.0, *means], bottom, 44)
    marks = [*_headings(rounds, labels, x), text(LEFT, 34, words("figure.tokens"), "label")]
    marks += [*_grid(y, values, number), *_boundaries(rounds, x, 44, bottom)]
    told = []
    for each in rounds:
        at, steps = _within(x, each), [length.step for length in each.lengths]
        for kind in ("right", "wrong"):
            points = [(length.step, getattr(length, kind)) for length in each.lengths]
            marks += _line(points, at, y, f"curve {kind}-line")
            shown = ["" if value is None else number(value) for _, value in points]
            name = f"{each.stage}{words.colon}{words.or_own('outcome', kind)}"
            told.append(Told(name, steps, [*map(at, steps)], shown, f"{kind}-line"))
    marks += _steps(rounds, x, bottom, words)
    return drawing(WIDE, bottom + 42, marks, words("figure.lengths"), told)


def length_bins_chart(found: LengthsOfRecord, label: str, words: Words) -> Markup:
    """The share of right answers by length, with intervals and numbers of answers; truncated
    answers stand apart at the right."""
    left, right, top, bottom = 52, 492, 26, 184
    bins = [(f"{each.low}–{each.high}", each) for each in found.bins]
    bins = [(number(e.low) if e.low == e.high else name, e) for name, e in bins]
    if found.truncated is not None:
        bins.append((words("figure.cut"), found.truncated))
    y = Scale(0.0, 1.0, bottom, top)
    wide = (right - left) / len(bins)
    marks = [text(left, 12, words("figure.share"), "tick")]
    marks += _grid(y, (0.0, 0.25, 0.5, 0.75, 1.0), percent, left, right)
    if found.truncated is not None:
        marks.append(line(right - wide, top, right - wide, bottom + 34, "round"))
    for place, (name, each) in enumerate(bins):
        marks += _bin_marks(name, each, left + (place + 0.5) * wide, y, bottom)
    marks.append(
        text((left + right) / 2, bottom + 52, words("figure.length_axis"), "tick", "middle")
    )
    return drawing(500, bottom + 58, marks, label)


def _bin_marks(
    name: str, each: LengthBin, place: float, y: Scale, bottom: float
) -> Iterator[Markup]:
    low, high = percent(each.interval.low), percent(each.interval.high)
    title = f"{name}: {percent(each.share)} ({low} – {high}), n = {each.answers}"
    yield line(place, y(each.interval.low), place, y(each.interval.high), "whisker")
    yield dot(place, y(each.share), 4.5, "mark", title)
    yield text(place, bottom + 16, name, "tick", "middle")
    yield text(place, bottom + 31, f"n {number(each.answers)}", "tick", "middle")


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
    left: float = LEFT,
    right: float = RIGHT_END,
) -> Iterator[Markup]:
    """Lines with their values."""
    for tick in at:
        yield line(left, y(tick), right, y(tick), "grid")
        yield text(left - 6, y(tick) + 4, write(tick), "tick", "end")


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


def _curve(curve: Curve, x: Callable[[float], float], y: Scale) -> list[Markup]:
    """The values of a curve with their band."""
    return [band(curve, x, y), *_line(curve.points, x, y, "curve")]


def _line(points: Points, x: Callable[[float], float], y: Scale, kind: str) -> Iterator[Markup]:
    """The values, and their moving average where there are many."""
    places = [None if value is None else (x(step), y(value)) for step, value in points]
    if len(points) <= 4 * WINDOW:
        yield path(places, kind)
        return
    yield path(places, f"{kind} faint")
    smooth = moving_average([value for _, value in points])
    yield path(
        [
            None if value is None else (x(step), y(value))
            for (step, _), value in zip(points, smooth, strict=True)
        ],
        kind,
    )
