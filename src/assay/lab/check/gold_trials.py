"""Tries rewards and checkers on gold answers, and on empty, cut and exchanged answers.

Gold answers must earn the full reward, the others must not. A reward whose value for a text changes
with the row judges correctness; one that depends on the text alone judges form. Gold dialogues are
played against the row's environment; no model is run.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from assay.data.episode import AGENT, Completion, Ended, Reward
from assay.data.row import Row
from assay.errors import Finding
from assay.experiment.base_table import RenderingSettings
from assay.lab.check.subject import (
    Gold,
    Number,
    Seen,
    Subject,
    gold_conversations,
    on_rows,
    reward_uses,
    share_of,
    some,
    spread,
    with_line,
)
from assay.lab.data.prepare import find_part
from assay.lab.session.reward_parts import table_parts
from assay.lab.session.session import Session
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.no_verdict import OUTCOMES, rewarded
from assay.tasks.reward_table import RewardTable
from assay.tasks.running import RewardRunner
from assay.tasks.task import (
    BenchmarkOptions,
    Dialogue,
    RewardFunction,
    benchmark,
    is_unsafe,
)
from assay.tasks.user_code import in_a_line, line_note

CONTROLS = 200
"""Rows on which wrong answers are tried."""
JUDGED = 8
"""Rows on which a judge is tried."""
LISTED = 10
"""Rows that a finding names where their gold answers fail."""
NEAR = 1e-6
BEGUN = 3
"""Length in characters of the shortest cut of an answer."""
WORLD_FAILS = "the world fails"
FEW, MOST = 0.05, 0.5
"""Shares of wrong answers with full reward that give a warning and an error."""

Value = TypeVar("Value")
Kind = Literal["correctness", "form", "constant", "unknown"]
Runner = Callable[[RewardFunction | RewardTable], RewardRunner]


@dataclass(frozen=True, slots=True)
class Tried:
    """One wrong answer: its row, its reward, and the reward of its text as a gold answer."""

    row_id: str
    value: float | None
    at_home: float | None


@dataclass(frozen=True, slots=True)
class GoldTrial:
    """One reward on the gold answers of some rows and on wrong answers."""

    name: str
    maximum: float
    gold: tuple[tuple[str, Reward], ...]
    """Each row's id and line, with what its gold answer earned."""
    empty: tuple[Tried, ...]
    cut: tuple[Tried, ...]
    exchanged: tuple[Tried, ...]
    place: str = ""
    """Of a user's reward: its file and line."""
    raised: tuple[str, ...] = ()
    """What the reward raised on wrong answers, which then earned its lowest value."""
    punishes: bool = False
    """Whether the reward is taken off, as a part of a table with a negative worth is: then nobody
    is to earn it in full."""

    @property
    def shown(self) -> str:
        """The name in messages."""
        return f"{self.name!r} ({self.place})" if self.place else repr(self.name)

    @property
    def broken(self) -> tuple[tuple[str, Reward], ...]:
        """The gold answers on which a user's reward itself failed, which says nothing of them; the
        house's fail where a gold answer cannot be read."""
        unscored = ((i, r) for i, r in self.gold if self.place and r.value is None)
        failed = {*OUTCOMES, WORLD_FAILS}
        return tuple((i, r) for i, r in unscored if r.why.partition(":")[0] in failed)

    @property
    def sound(self) -> "GoldTrial":
        """The trial without them."""
        out = {i for i, _ in self.broken}
        return replace(self, gold=tuple((i, r) for i, r in self.gold if i not in out))

    @property
    def kind(self) -> Kind:
        """What the reward judges (correctness or form); unknown if no answers could be
        exchanged."""
        if any(_differ(t.value, t.at_home) for t in self.exchanged):
            return "correctness"
        values = [r.value for _, r in self.gold] + [t.value for t in (*self.empty, *self.cut)]
        if not any(_differ(v, values[0]) for v in values):
            return "constant"
        return "form" if self.exchanged else "unknown"

    def full(self, tried: Sequence[Tried]) -> list[str]:
        """Rows whose wrong answer earned the full reward."""
        return [t.row_id for t in tried if t.value is not None and t.value >= self.maximum - NEAR]


def try_reward(
    name: str,
    function: RewardFunction | RewardTable,
    most: float,
    golds: Sequence[Any],
    runner_of: Runner,
    world: "World | None" = None,
) -> GoldTrial:
    """Score gold answers of all rows, and empty, cut and exchanged ones of at most CONTROLS rows
    evenly spread; of a judge, whose calls may cost, JUDGED rows. `golds` are of Gold or, in a
    `world`, Scripted, whose abstentions are kept."""
    if isinstance(function, JudgeReward) and world is None:
        golds = spread(golds, JUDGED)
    chosen = spread(golds, CONTROLS)
    same = same_answer if world is None else lambda one, other: one.script == other.script
    swaps = exchanged_pairs(chosen, same)
    if world is None:
        answers: Sequence[Sequence[tuple[Row, Completion | Reward, str]]] = (
            [(gold.row, gold.completion, "") for gold in golds],
            [(gold.row, Completion(""), "") for gold in chosen],
            [(gold.row, cut_short(gold), "") for gold in chosen],
            [(one.row, other.completion, other.row.id) for one, other in swaps],
        )
    else:
        answers = (
            [(gold.row, gold.played, "") for gold in golds],
            [(gold.row, play(world, gold.row, ()), "") for gold in chosen],
            [(g.row, play(world, g.row, [*map(begun, g.script)], "length"), "") for g in chosen],
            [(one.row, play(world, one.row, other.script), other.row.id) for one, other in swaps],
        )
    scored: list[list[Reward]] = []
    with runner_of(function) as runner:
        for each in answers:
            completions = [(row, one) for row, one, _ in each if isinstance(one, Completion)]
            rewards = iter(runner.score(completions))
            scored.append([one if isinstance(one, Reward) else next(rewards) for _, one, _ in each])
    home = {one.row.id: r.value for one, r in zip(golds, scored[0], strict=True)}
    empty, cut, exchanged = (
        tuple(Tried(one[0].id, r.value, home.get(one[2])) for one, r in zip(*two, strict=True))
        for two in zip(answers[1:], scored[1:], strict=True)
    )
    raised = (r.why for each in scored[1:] for r in each if r.outcome == OUTCOMES["exception"])
    named = tuple((with_line(one.row), r) for one, r in zip(golds, scored[0], strict=True))
    note = line_note(function)
    return GoldTrial(name, most, named, empty, cut, exchanged, note, tuple(raised))


def exchanged_pairs(
    golds: Sequence[Value], same: Callable[[Value, Value], bool]
) -> list[tuple[Value, Value]]:
    """Pairs of each value with another that is not the `same`; none if all are the same. Values are
    paired with distant ones, since neighbours often share a source."""
    half = len(golds) // 2
    pairs = []
    for index, one in enumerate(golds):
        others = (golds[(index + half + step) % len(golds)] for step in range(len(golds)))
        other = next((each for each in others if not same(one, each)), None)
        if other is not None:
            pairs.append((one, other))
    return pairs


def same_answer(one: Gold, other: Gold) -> bool:
    """Whether exchanging two gold answers proves nothing."""
    alike = one.row.gold is not None and one.row.gold == other.row.gold
    return alike or one.text == other.text


def cut_short(gold: Gold) -> Completion:
    """The first characters of the gold answer, as if cut at the token limit."""
    text = begun(gold.text)
    tokens = len(gold.actions) * len(text) // max(len(gold.text), 1)
    return Completion(text, gold.actions[:tokens], "length")


def begun(text: str) -> str:
    """The first characters of an answer, less than its half."""
    return text[: min(BEGUN, len(text) // 2)]


def judge_trials(place: str, trials: Sequence[GoldTrial]) -> Seen:
    """Findings on the parts of one reward, or on a checker."""
    for trial in trials:
        reached = sum(not _short(trial, r) for _, r in trial.gold)
        yield Number(place, f"gold_full_share: {trial.name}", reached / len(trial.gold))
        if trial.broken:  # What else it does to gold answers is not known.
            ids = [i for i, _ in trial.broken]
            why = most_common([r.why.removeprefix("exception: ") for _, r in trial.broken])
            what = f"{place}: {trial.shown} fails on gold answers"
            told = f"{why}; {share_of(len(ids), len(trial.gold))}: {some(ids)}"
            fix = "correct the code, or the rows with which it fails"
            yield Finding("error", what, told, fix)
    whole = bool(trials) and all(len(trial.broken) < len(trial.gold) for trial in trials)
    trials = [trial.sound for trial in trials if len(trial.broken) < len(trial.gold)]
    judged = any(trial.kind in ("correctness", "unknown") for trial in trials)
    for trial in trials:
        if trial.raised:
            wrong = sum(map(len, (trial.empty, trial.cut, trial.exchanged)))
            told = f"{share_of(len(trial.raised), wrong)}, most often {most_common(trial.raised)}"
            fix = "return a number for any answer; one on which it raises earns its lowest value"
            what = f"{place}: {trial.shown} raises on wrong answers"
            yield Finding("warning", what, told, fix)
        if not trial.punishes:
            yield from gold_below_full(place, trial, judged)
            if trial.kind in ("correctness", "unknown"):
                yield from wrong_but_full(place, trial)
    if whole and not judged:  # No part depends on the question.
        names = ", ".join(trial.shown for trial in trials)
        constant = all(trial.kind == "constant" for trial in trials)
        told = f"{names}: exchanging the answers of two rows changes nothing"
        told += ", and neither does emptying them" if constant else ""
        what = f"{place}: the reward does not tell right from wrong"
        fix = "add a reward that compares with the gold answer, unless only form is to be trained"
        yield Finding("error" if constant else "warning", what, told, fix)


def most_common(texts: Sequence[str]) -> str:
    """The text that is there most often, the first of equals."""
    return max(dict.fromkeys(texts), key=texts.count)


def gold_below_full(place: str, trial: GoldTrial, judged: bool) -> Seen:
    """Gold answers that miss the full reward."""
    short = [(id_, r) for id_, r in trial.gold if _short(trial, r)]
    if not short:
        return
    lost = [(id_, r) for id_, r in short if r.value is None or r.value < trial.maximum / 2]
    mute = all(reward.value is None for _, reward in trial.gold)
    form = not mute and (trial.kind == "form" or (trial.kind == "constant" and judged))
    worst_id, worst = (lost or short)[0]
    value = "abstains" if worst.value is None else f"earns {worst.value:.3g}"
    value += f": {worst.why}" if worst.why else ""
    fix = "correct the gold answers of these rows, or how the reward reads them"
    if form:
        fix = "it judges the form of a text, not whether it is right: nothing, if the gold answers "
        fix += "are not meant to have that form"
    elif not lost:
        fix = "nothing, if the reward grades right answers too, by length for example"
    what = f"{place}: gold answers do not earn the full reward of {trial.shown}"
    ids = some([id_ for id_, _ in lost or short], LISTED)
    told = f"{share_of(len(short), len(trial.gold))} below {trial.maximum:g}: {ids}; "
    severity = "error" if lost and not form else "warning"
    yield Finding(severity, what, f"{told}{worst_id} {value}", fix)


def wrong_but_full(place: str, trial: GoldTrial) -> Seen:
    """Wrong answers that earn the full reward."""
    controls = {"empty": trial.empty, "cut": trial.cut, "exchanged": trial.exchanged}
    for name, tried in controls.items():
        full = trial.full(tried)
        if len(full) <= (0 if name == "empty" else FEW * len(tried)):
            continue
        grave = trial.kind == "correctness" and (name == "empty" or len(full) > MOST * len(tried))
        fix = "a model would learn to write them; make the reward stricter, or say in the rows "
        fix += "what is right"
        if trial.kind == "unknown":
            fix += "; nothing, if it judges form alone, which rows that all have one answer hide"
        what = f"{place}: {name} answers earn the full reward of {trial.shown}"
        yield from on_rows("error" if grave else "warning", what, full, len(tried), fix)


def _short(trial: GoldTrial, earned: Reward) -> bool:
    # A graded reward has no full value: its maximum is infinite.
    below = math.isfinite(trial.maximum) and (earned.value or 0.0) < trial.maximum - NEAR
    return earned.value is None or below


def _differ(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) > NEAR


LONGEST = 100
"""Turns after which a dialogue is ended."""

World = Callable[[Row], Dialogue | None]
Script = tuple[str, ...]
"""The messages of the assistant, turn by turn; "" after the last one."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A row, the assistant's messages of its gold conversation, and the outcome."""

    row: Row
    script: Script
    played: Completion | Reward
    """The conversation, or an abstention if the environment failed."""


def scripted(
    session: Session, rows: Sequence[Row], rendering: RenderingSettings, world: World
) -> list[Scripted]:
    """The gold conversations of at most CONTROLS rows that are dialogues, evenly spread."""
    encoder = session.learner.encoder(rendering)
    scripts = []
    for row in spread(rows, CONTROLS):
        conversations = gold_conversations(session.task, row)
        if conversations and world(row) is not None:
            script = tuple(
                encoder.decode(encoder.turns(*one, "last")[0].actions) for one in conversations
            )
            scripts.append(Scripted(row, script, play(world, row, script)))
    return scripts


def play(
    world: World, row: Row, script: Sequence[str], ended: Ended = "stop"
) -> Completion | Reward:
    """The conversation that a script leads to, or an abstention if the environment fails."""
    replies = []
    try:
        dialogue = world(row)
        assert dialogue is not None
        while len(replies) < LONGEST and dialogue.asks() is not None:
            replies.append(script[len(replies)] if len(replies) < len(script) else "")
            dialogue.hears(replies[-1], ended)
        return Completion("\n".join(replies), ended=ended, messages=dialogue.messages)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # failures of environments are what this check looks for
        return Reward(None, why=f"{WORLD_FAILS}: {in_a_line(error)}")


def gold_answers(subject: Subject) -> Seen:
    """Every reward on its rows, every benchmark's checker on its items."""
    session = subject.session
    for place, use in reward_uses(session):
        if use.reward == AGENT:  # an agent judges what it got itself
            continue
        parts = table_parts(session.task, use.reward, session.run.root)
        golds = subject.golds_of_data(use.data, use).answers
        world = session.task.dialogue
        runner_of = partial(session.reward_runner, settings=use)
        single = [gold for gold in golds if world(gold.row) is None]
        talks: list[Scripted] = []
        if len(single) < len(golds):
            talks = scripted(session, find_part(session.sets, use.data), use, world)
        for tried, played in ((single, None), (talks, world)):
            trial = partial(try_reward, golds=tried, runner_of=runner_of, world=played)
            trials = [
                replace(trial(name, part.reward, part.maximum), punishes=part.scale < 0)
                for name, part in (parts.items() if tried else ())
            ]
            yield from judge_trials(place, trials)
    for name, evaluation in session.evaluations.items():
        spec, golds = evaluation.spec, subject.golds_of_items(evaluation).answers
        if spec.benchmark is None or not golds:
            continue
        options = BenchmarkOptions(spec.options, session.run.root)
        most = benchmark(session.task, spec.benchmark, options).max_score
        terms = spec.benchmark, evaluation.score, most
        runner_of = partial(session.reward_runner, settings=spec)
        world, tried = evaluation.dialogue, golds
        if world is not None:
            tried = scripted(session, [gold.row for gold in golds], spec, world)
        trial = try_reward(*terms, tried, runner_of, world)
        yield from judge_trials(f"evaluate.{name}", [trial])


TRIED = 20
"""Rows, evenly spread."""


def task_sanity(subject: Subject) -> Seen:
    """The findings on every reward and every dialogue of the experiment's data."""
    session = subject.session
    for place, use in reward_uses(session):
        rows = spread(find_part(session.sets, use.data), TRIED)
        yield from broken_dialogues(place, rows, session.task.dialogue)
        golds = spread(subject.golds_of_data(use.data, use).answers, TRIED)
        single = [gold for gold in golds if session.task.dialogue(gold.row) is None]
        for name, part in table_parts(session.task, use.reward, session.run.root).items():
            yield from unsteady(place, name, part.reward, single)


def unsteady(place: str, name: str, function: RewardFunction, golds: Sequence[Gold]) -> Seen:
    """A pure reward that gives an answer another value when it is asked again."""
    if isinstance(function, JudgeReward) or is_unsafe(function):
        return
    pairs = [(g.row, completion) for g in golds for completion in (g.completion, Completion(""))]
    values = [[rewarded(function, *pair) for pair in pairs] for _ in range(2)]
    other = [
        pair[0].id
        for pair, *both in zip(pairs, *values, strict=True)
        if len({getattr(each, "value", None) for each in both}) > 1
    ]
    where = f" ({line})" if (line := line_note(function)) else ""
    what = f"{place}: {name!r}{where} does not say the same twice"
    fix = "take what is random, counted or read from a clock out of the reward"
    yield from on_rows("error", what, other, len(pairs), fix)


def broken_dialogues(place: str, rows: Sequence[Row], world: World) -> Seen:
    """Dialogues that cannot be begun, that asking changes, that lose an answer, or never end."""
    rows_by_problem: dict[str, list[str]] = {}
    for row in rows:
        try:
            problem = problem_of(world, row)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # what a user's dialogue raises is what this check looks for
            problem = f"raises {type(error).__name__}: {error}"
        if problem:
            rows_by_problem.setdefault(problem, []).append(row.id)
    for problem, ids in rows_by_problem.items():
        fix = "see docs/episodes.md for what asks, hears and messages promise"
        yield from on_rows("error", f"{place}: the dialogue {problem}", ids, len(rows), fix)


def problem_of(world: World, row: Row) -> str:
    """What is wrong with the dialogue of a row whose answers are all empty; "" if nothing is."""
    dialogue = world(row)
    if dialogue is None:
        return ""
    for heard in range(LONGEST):
        request = dialogue.asks()
        if request != dialogue.asks():
            return "asks something else when it is asked twice"
        if request is None:
            why = getattr(
                getattr(dialogue, "reward", None), "why", ""
            )  # Of an agent: how it ended.
            over = "is over before anything is asked" + (f": {why}" if why else "")
            return over if heard == 0 else ""
        dialogue.hears("", "stop")
        replies = sum(message.role == "assistant" for message in dialogue.messages)
        # What an agent sends may hold an answer again: branches do, and who rewrites their history.
        if replies != heard + 1 and not hasattr(dialogue, "begin"):
            return f"has {replies} messages of the assistant after {heard + 1} answers"
    return f"goes on after {LONGEST} empty answers"
