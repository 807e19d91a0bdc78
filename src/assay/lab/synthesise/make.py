"""Makes the rows of a `[synthesise.NAME]` table: asks, reads, proves, and keeps what holds.

A row is proven by the task: calls that fit their tools, gold answers that earn the full reward. No
more than that is shown of it: a teacher's answer may be wrong and verified. Answers are judged in
the order of their questions, whatever order they came in and however often the work was stopped, so
that the set depends on the answers alone. What a row has to meet may change at no cost: all paid
answers are in the ledger. `forecast` says what is asked and paid at most, and asks nobody.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from assay.data.episode import Completion, Reward, row_values
from assay.data.files import atomic_write_text, normalise_text, sha256_text
from assay.data.formats.formats import expanded, write_rows
from assay.data.json_files import write_jsonl
from assay.data.leakage import question, separate
from assay.data.row import Row
from assay.data.tools import function_of
from assay.errors import Finding, InputError, within
from assay.experiment.price_table import units
from assay.experiment.selection_tables import MADE_BY, SYNTHESISE, SynthesiseSpec
from assay.lab.check.gold_trials import NEAR as ROUNDING
from assay.lab.check.subject import Gold, Number, render_golds, target_messages
from assay.lab.data.prepare import DataSet, find_part, note_made_of, prepare_set, tested_items
from assay.lab.models.metering import MeteredModel, most_tokens
from assay.lab.monitor.run_costs import cost_line
from assay.lab.session.reward_parts import full_reward, reward_of, rewards_in
from assay.lab.session.session import Session
from assay.lab.synthesise.answers import (
    ASK,
    TeacherClient,
    TeacherQuestion,
    prompt_of,
    questions_of,
    reader_of,
    rows_in,
)
from assay.lab.synthesise.made_set import (
    REFUSED,
    ROWS,
    MadeSet,
    Refused,
    made_folder,
    made_rows_file,
    note_settings,
)
from assay.rollout.engines.endpoint.openai_text import portable
from assay.runs.cost_ledger import LEDGER, STATE, LedgerCall, lost_costs, read_calls, state_text
from assay.runs.run_directory import hold_run
from assay.sandbox.limits import Limits
from assay.sandbox.pool import WorkerPool
from assay.tasks.helper_model import HelperAnswer
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
        calls = [(n, *each) for n, row in enumerate(rows) for each in schemas_of(row)]
        arguments = [{"schema": schema, "text": text} for _, _, schema, text in calls]
        verdicts = [FINE] * len(rows)
        for (n, name, _, _), outcome in zip(
            calls, self._schemas.map(arguments, CHECK_SECONDS), strict=True
        ):
            problem = outcome.why if outcome.failure else " ".join((outcome.value or {}).values())
            if problem and not verdicts[n][0]:
                verdicts[n] = ("calls", f"{name}: {problem}")
        return verdicts

    def golds(self, rows: Sequence[Row]) -> list[Verdict]:
        """Whether each gold answer earns the full reward, at every turn of a conversation, and the
        teacher's own words beside it are not wrong, and an empty answer does not earn it."""
        turns = [turns_of(row) for row in rows]
        played = {row.id for row in rows if self.session.task.dialogue(row) is not None}
        rendered = render_golds(self.session, [t for each in turns for t in each], self.spec)
        unread = {**dict.fromkeys(rendered.missing, "has no gold answer"), **dict(rendered.broken)}
        unread |= dict.fromkeys(played, "begins a dialogue, which is not played here")
        tries = [
            (gold.row, completion)
            for gold in rendered.answers
            # A task may put the answer behind steps that come to another one.
            for completion in (gold.completion, own_words(gold), Completion(""))
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
    answers = [message for message in row.messages if message.role == "assistant" and message.loss]
    if len(answers) < 2:
        return [row]
    return [
        replace(each, id=f"{row.id}#{n}")
        for n, each in enumerate(expanded(row, "each_turn"))
        if isinstance(each, Row)
    ]


BATCH, LEAST_BATCH = 64, 8
"""Answers that are judged together: as many as rows are wanted, within these."""
ALL_ASKED = "every seed was asked for as often as samples says"


def make_table(session: Session, table: str) -> MadeSet:
    """Make the rows of a table, or go on with them, and write them.

    An endpoint or a budget that ends it is said by the set that is there. Raises InputError,
    LedgerUnusable.
    """
    spec = session.experiment.synthesise[table]
    folder = made_folder(session.run.root, session.experiment.name, table)
    folder.mkdir(parents=True, exist_ok=True)
    with hold_run(folder):
        if problem := lost_costs(folder, folder):
            fix = "restore it, or delete the folder to pay for all answers again"
            raise InputError(problem, file=folder / LEDGER, fix=fix)
        with within(f"{SYNTHESISE}.{table}"), Prover(session, table, spec) as prover:
            making = Making(session, table, spec, folder, prover)
            making.note_sources()
            session.helpers.record_in(folder)
            session.helpers.stage(table, 0)
            try:
                making.work()
            finally:
                # The ledger is written in any case, so that one that lost calls is noticed.
                state = state_text(session.helpers.ledger.state())
                atomic_write_text(folder / STATE, state)
            made_set = making.written()
            session.helpers.release()
    return made_set


@dataclass
class Making:
    """The work on one table."""

    session: Session
    table: str
    spec: SynthesiseSpec
    folder: Path
    prover: Prover
    kept: list[Row] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    not_needed: int = 0
    _shares: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows of an answer, by seed and sample."""
    _texts: dict[str, str] = field(default_factory=dict)
    """Normal forms of the questions of proven rows -> the row."""

    def __post_init__(self) -> None:
        root, session, sets = self.session.run.root, self.session, dict[str, DataSet]()
        seeds = rows_of(session, self.spec.data, sets)
        prompt, fingerprint = prompt_of(self.spec, root)
        self.prompt_sha256 = sha256_text(fingerprint)
        self.read = reader_of(self.spec, root)
        self.questions = questions_of(self.table, self.spec, seeds, prompt, session.seed)
        tests, task = session.experiment.evaluate, session.task
        names = [each.benchmark or each.data or "" for each in tests.values()]
        # The sets that no made row may share anything with.
        self.held: dict[str, Sequence[Row]] = {
            name: tested_items(name, task, root, tests)
            if name in task.benchmarks
            else rows_of(session, name, sets)
            for name in dict.fromkeys([*names, *self.spec.disjoint_from])
        }
        self.own = {
            normalise_text(question(row)): row.id
            for row in seeds
            if target_messages(task, row) is not None
        }

    @cached_property
    def teacher(self) -> MeteredModel:
        """The model that writes the rows."""
        return self.session.helpers[self.spec.teacher]

    def note_sources(self) -> None:
        """Write down what paid answers depend on, or check it. Raises InputError."""
        sampling = self.session.experiment.helpers[self.spec.teacher].sampling
        made_of = {
            "schema": 1,
            "teacher": self.teacher.fingerprint,
            "sampling": sampling.model_dump(mode="json", exclude_none=True),
            "prompts": self.prompt_sha256,
            "seed": self.session.seed,
        }
        note_made_of(self.folder, made_of, "rows")

    @cached_property
    def asker(self) -> TeacherClient:
        """Who asks, with the calls that were made before."""
        at_once = self.session.experiment.helpers[self.spec.teacher].concurrency or 0
        return TeacherClient(self.spec.calls, len(self.calls()), max(BATCH, at_once))

    def calls(self) -> list[LedgerCall]:
        """The calls for this table."""
        return [c for c in self.session.helpers.ledger.calls() if c.stage == self.table]

    @property
    def full(self) -> bool:
        """Whether there are as many rows as wanted."""
        return len(self.kept) >= self.spec.rows

    def work(self) -> None:
        """Judge what is paid for; while rows are wanted, ask again what failed, then go on."""
        model = self.teacher
        known = [model.known(q.to(model)) for _, q in self.questions]
        last = max((n for n, answer in enumerate(known) if answer is not None), default=-1) + 1
        self._judge_all(known[:last])
        missed = [n for n in range(last) if known[n] is None]
        if missed and not self.full:
            questions = [self.questions[n][1] for n in missed]
            for n, answer in zip(missed, self.asker.answers(model, questions), strict=True):
                known[n] = answer
            for each in (self.kept, self.refused, self._texts, self._shares):
                each.clear()
            self.not_needed = 0
            self._judge_all(known[:last])
        while last < len(self.questions) and not self.full and not self.asker.stopped:
            size = min(self.asker.at_once, max(self.spec.rows - len(self.kept), LEAST_BATCH))
            batch = self.questions[last : last + size]
            last += size
            self._judge(batch, self.asker.answers(model, [questions for _, questions in batch]))

    def _judge_all(self, answers: Sequence[HelperAnswer | None]) -> None:
        for begin in range(0, len(answers), BATCH):
            batch = answers[begin : begin + BATCH]
            if self.full:
                self.not_needed += sum(answer is not None for answer in batch)
            else:
                self._judge(self.questions[begin : begin + len(batch)], batch)

    def _judge(
        self, batch: Sequence[tuple[Row, TeacherQuestion]], answers: Sequence[HelperAnswer | None]
    ) -> None:
        """Judge the answers of some questions, cheap checks first, and keep the rows that hold."""
        rows: list[Row] = []
        for (seed, query), answer in zip(batch, answers, strict=True):
            if answer is not None:
                rows += self._read(seed, query, answer)
        for prove in (self._separate, self.prover.calls, self.prover.golds):
            verdicts = [*zip(rows, prove(rows), strict=True)]
            for row, (reason, why) in verdicts:
                if reason:
                    self._refuse(row, reason, why)
            rows = [row for row, (reason, _) in verdicts if not reason]
        rows = [row for row in rows if self._is_new(row)]
        room = self.spec.rows - len(self.kept)
        self.not_needed += len(rows[room:])
        self.kept += rows[:room]
        self.session.observer.work(f"rows of {self.table}", len(self.kept), self.spec.rows)

    def _read(self, seed: Row, query: TeacherQuestion, answer: HelperAnswer) -> Iterator[Row]:
        sample = query.key.sample
        if answer.failure:
            name = f"{seed.id}/{sample}"
            self.refused.append(Refused(name, seed.id, sample, "unanswered", answer.failure))
            return
        cut = answer.ended == "length"
        rows = rows_in(self.spec, self.read, seed, sample, answer.text, cut)
        self._shares[seed.id, str(sample)] = len(rows)
        made = {"seed": seed.id, "sample": sample, "prompt_sha256": query.sha256}
        for each in rows:
            if isinstance(each, Refused):
                self.refused.append(each)
            else:
                yield replace(each, extra={**each.extra, MADE_BY: {"table": self.table, **made}})

    def _refuse(self, row: Row, reason: str, why: str) -> None:
        made = row.extra[MADE_BY]
        told = row.id, made["seed"], made["sample"], reason, why
        self.refused.append(Refused(*told, row=row))

    def _separate(self, rows: Sequence[Row]) -> list[tuple[str, str]]:
        """Which rows share something with a held-out set."""
        leaks: dict[str, tuple[str, str]] = {}
        for name, items in self.held.items():
            for why, ids in separate(rows, items).dropped.items():
                for id_ in ids:
                    leaks.setdefault(id_, ("leaked", f"{why} ({name})"))
        return [leaks.get(row.id, ("", "")) for row in rows]

    def _is_new(self, row: Row) -> bool:
        """Whether a proven row asks what no other does, and no seed; it is remembered."""
        text = normalise_text(question(row))
        first = self.own.get(text) or self._texts.setdefault(text, row.id)
        if first != row.id:
            self._refuse(row, "same", f"asks what {first} asks")
        return first == row.id

    def _with_provenance(self, rows: Sequence[Row], calls: Sequence[LedgerCall]) -> Iterator[Row]:
        own = (c for c in calls if c.operator == ASK and c.status == "answered")
        answered = {(c.problem, c.completion): c for c in own}
        for row in rows:
            made: dict[str, Any] = dict(row.extra[MADE_BY])
            place = made["seed"], str(made["sample"])
            call = answered.get(place)
            cost = None if call is None else call.cost
            made |= {
                "teacher": self.teacher.meter.source,
                "fingerprint": self.teacher.fingerprint,
                "key": [self.session.seed, *place],
                "at": "" if call is None else call.at,
                "cost": None if cost is None else units(cost) / self._shares[place],
            }
            yield replace(row, extra={**row.extra, MADE_BY: made})

    def written(self) -> MadeSet:
        """Write what was made, and say what it is."""
        calls = self.calls()
        rows = tuple(self._with_provenance(self.kept, calls))
        write_rows(self.folder / ROWS, rows, "messages")
        write_jsonl(self.folder / REFUSED, map(refused_values, self.refused))
        note_settings(self.folder, self.spec)
        reason = "" if self.full else self.asker.stopped or ALL_ASKED
        fix = "raise samples or add seeds" if reason == ALL_ASKED else "call the command again"
        what = f"{len(rows)} of {self.spec.rows} rows are verified: {reason}"
        short = Finding("error", what, f"{SYNTHESISE}.{self.table}", fix)
        return MadeSet(
            table=self.table,
            file=self.folder / ROWS,
            spec=self.spec,
            teacher=self.teacher.meter.source,
            fingerprint=self.teacher.fingerprint,
            rows=rows,
            refused=tuple(self.refused),
            questions=sum(c.operator == ASK and c.status == "answered" for c in calls)
            + sum(each.reason == "unanswered" for each in self.refused),
            not_needed=self.not_needed,
            held_out=tuple(self.held),
            total=cost_line("", calls) if calls else None,
            stopped=reason,
            findings=(short,) if reason else (),
        )


def refused_values(each: Refused) -> dict[str, Any]:
    """A refused row or answer as JSON values."""
    plain = {key: getattr(each, key) for key in ("id", "seed", "sample", "reason", "why")}
    text = {"text": each.text} if each.text else {}
    return {**plain, **text, **({"row": row_values(each.row)} if each.row is not None else {})}


def forecast(session: Session, table: str) -> Iterator[Finding | Number]:
    """The calls of a table and their price, at most, beside those in the ledger of its set; nothing
    for a set that is whole. Raises InputError, LedgerUnusable."""
    experiment, root = session.experiment, session.run.root
    spec, place = experiment.synthesise[table], f"{SYNTHESISE}.{table}"
    with suppress(InputError):  # not made, or judged by other settings
        file = made_rows_file(root, experiment.name, table, spec)
        if len(file.read_text(encoding="utf-8").splitlines()) >= spec.rows:
            return
    calls = read_calls(made_folder(root, experiment.name, table))
    answered = (c for c in calls if c.stage == table and c.status == "answered")
    known, name = {(c.problem, c.completion) for c in answered}, spec.teacher
    helper = experiment.helpers[name]
    price = helper.token_price
    seeds, (prompt, _) = rows_of(session, spec.data, {}), prompt_of(spec, root)
    questions = questions_of(table, spec, seeds, prompt, session.seed)
    left = [
        most_tokens(each.messages)
        for _, each in questions
        if (each.caller.problem, each.caller.completion) not in known
    ]
    count = len(left) if spec.calls is None else min(len(left), max(spec.calls - len(known), 0))
    yield Number(place, "calls, at most", count)
    told = f"{place}: at most {count} calls"
    evidence = [f"{len(known)} calls are paid for"] if known else []
    if price is None:
        evidence.append(f"no price of {name} is known")
    else:
        costs = sorted(price.of(read, helper.sampling.max_tokens) for read in left)
        cost = units(sum(costs[len(costs) - count :]))
        yield Number(place, "cost, at most", cost)
        told += f" for {cost:.3g}"
    if helper.budget and helper.budget.run:
        evidence.append(f"model.{name}.budget.run is {helper.budget.run:g}")
    evidence.append("each question and answer of as many tokens as it may have")
    yield Finding("note", told, "; ".join(evidence), f"{place}.calls and budget.run bound them")


def rows_of(session: Session, name: str, sets: dict[str, DataSet]) -> tuple[Row, ...]:
    """The rows of a data set of the file, or a part of one; `sets` remembers what was prepared."""
    context = (session.task, session.learner.encoder, session.run.root, sets)
    prepare_set(session.experiment, name.partition(".")[0], *context)
    return find_part(sets, name)
