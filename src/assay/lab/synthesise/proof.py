"""Proves made rows by the task: calls that fit their tools, gold answers that earn the full reward.

What is shown of a row is no more than that: a teacher's answer may be wrong and verified.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from assay.data.episode import Completion, Reward
from assay.data.formats.formats import expanded
from assay.data.row import Row
from assay.data.tools import function_of
from assay.errors import InputError
from assay.experiment.synthesise_table import SYNTHESISE, SynthesiseSpec
from assay.lab.check.gold_trials import NEAR as ROUNDING
from assay.lab.check.subject import Gold, render_golds
from assay.lab.setup.reward_parts import full_reward, reward_of, rewards_in
from assay.lab.setup.session import Session
from assay.rollout.engines.endpoint.openai_text import portable
from assay.sandbox.limits import Limits
from assay.sandbox.pool import WorkerPool
from assay.tasks.judge_reward import JudgeReward

SCHEMA_CHECK = "assay.data.json_schema:check"
CHECK_SECONDS = 10.0
Verdict = tuple[str, str]
"""The reason why a row is refused, and what it is in words; two empty texts for a row that is
not."""
FINE: Verdict = ("", "")
WRONG = "wrong"
"""The outcome of an answer that could be read and is not right."""


class Prover:
    """Proves the rows of one table; closed by `with`."""

    def __init__(self, session: Session, table: str, spec: SynthesiseSpec):
        """Raises InputError for a reward without a full value, and what making it raises."""
        self.session, self.table, self.spec = session, table, spec
        root = session.run.root
        self.reward = reward_of(session.task, spec.reward, root)
        self.full = full_reward(session.task, spec.reward, root)
        if not math.isfinite(self.full):
            problem = "its full value is not known, and no gold answer could earn it"
            raise InputError(problem, field=f"{SYNTHESISE}.{table}.reward")
        # A judge's call may cost.
        self.judged = any(
            isinstance(each, JudgeReward) for each in rewards_in(self.reward).values()
        )
        self._stack = ExitStack()
        self._runner = self._stack.enter_context(session.reward_runner(self.reward, spec))
        mode = session.experiment.sandbox or "namespaces"
        pool = WorkerPool(SCHEMA_CHECK, 1, Limits(cpu_seconds=10), isolation=mode)
        self._schemas = self._stack.enter_context(pool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def calls(self, rows: Sequence[Row]) -> list[Verdict]:
        """Whether the arguments of all calls fit the schemas of their tools; an argument that a
        schema does not name does not."""
        asked = [(n, *each) for n, row in enumerate(rows) for each in schemas_of(row)]
        given = [{"schema": schema, "text": text} for _, _, schema, text in asked]
        found = [FINE] * len(rows)
        for (n, name, _, _), outcome in zip(
            asked, self._schemas.map(given, CHECK_SECONDS), strict=True
        ):
            problem = outcome.why if outcome.failure else " ".join((outcome.value or {}).values())
            if problem and not found[n][0]:
                found[n] = ("calls", f"{name}: {problem}")
        return found

    def golds(self, rows: Sequence[Row]) -> list[Verdict]:
        """Whether each gold answer earns the full reward, at every turn of a conversation, and the
        teacher's own words beside it are not wrong, and an empty answer does not earn it."""
        turns = [turns_of(row) for row in rows]
        played = {row.id for row in rows if self.session.task.dialogue(row) is not None}
        rendered = render_golds(self.session, [t for each in turns for t in each], self.spec)
        unread = {**dict.fromkeys(rendered.missing, "has no gold answer"), **dict(rendered.broken)}
        unread |= dict.fromkeys(played, "begins a dialogue, which is not played here")
        tries = [
            (gold.row, said)
            for gold in rendered.answers
            # A task may put the answer behind steps that come to another one.
            for said in (gold.completion, own_words(gold), Completion(""))
        ]
        scored = self._runner.score(tries[::3] if self.judged else tries)
        size = 1 if self.judged else 3
        earned = {
            gold.row.id: scored[size * n : size * (n + 1)]
            for n, gold in enumerate(rendered.answers)
        }
        return [self._verdict([turn.id for turn in each], unread, earned) for each in turns]

    def _verdict(
        self, turns: Sequence[str], unread: dict[str, str], earned: dict[str, list[Reward]]
    ) -> Verdict:
        for number, id_ in enumerate(turns, 1):
            place = f"turn {number}: " if len(turns) > 1 else ""
            if id_ in unread:
                return "gold", place + unread[id_]
            gold, *others = earned[id_]
            if not self.is_full(gold):
                return "gold", place + self.words_of(gold)
            if others and others[0].outcome == WRONG:
                return "gold", f"{place}its own steps come to another answer"
            if others and self.is_full(others[1]):
                return "empty", f"{place}an empty answer earns the full reward"
        return FINE

    def is_full(self, reward: Reward) -> bool:
        """Whether a reward is the full one."""
        return reward.value is not None and reward.value >= self.full - ROUNDING

    def words_of(self, reward: Reward) -> str:
        """What a gold answer earned."""
        told = "abstains" if reward.value is None else f"earns {reward.value:.3g} of {self.full:g}"
        return told + (f": {reward.why}" if reward.why else "")


def own_words(gold: Gold) -> Completion:
    """A row's answer as it was written; the gold answer where there is no other."""
    last = gold.row.messages[-1]
    return Completion(last.content) if last.role == "assistant" else gold.completion


def schemas_of(row: Row) -> Iterator[tuple[str, dict, str]]:
    """The calls of a row: name, schema of the arguments, and the arguments as JSON."""
    tools = zip(row.tools, portable(row.tools).tools, strict=True)
    schemas = {
        function_of(tool)["name"]: theirs["function"]["parameters"] for tool, theirs in tools
    }
    for message in row.messages:
        for call in message.tool_calls:
            schema = dict(schemas.get(call.name, {}))
            if schema.get("properties") is not None:
                schema.setdefault("additionalProperties", False)
            yield call.name, schema, json.dumps(dict(call.arguments), ensure_ascii=False)


def turns_of(row: Row) -> list[Row]:
    """A row for each answer of a conversation that has several; else the row."""
    said = [message for message in row.messages if message.role == "assistant" and message.loss]
    if len(said) < 2:
        return [row]
    return [
        replace(each, id=f"{row.id}#{n}")
        for n, each in enumerate(expanded(row, "each_turn"))
        if isinstance(each, Row)
    ]
