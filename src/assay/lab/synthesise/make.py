"""Makes the rows of a `[synthesise.NAME]` table: asks, reads, proves, and keeps what holds.

Answers are judged in the order of their questions, whatever order they came in and however often
the work was stopped, so that the set depends on the answers alone. What a row has to meet may
change at no cost: all paid answers are in the ledger.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.episode import row_values
from assay.data.files import atomic_write_text
from assay.data.formats.formats import write_rows
from assay.data.hashing import normalise_text, sha256_text
from assay.data.json_files import write_jsonl
from assay.data.leakage import question, separate
from assay.data.row import Row
from assay.errors import Finding, InputError, within
from assay.experiment.price_table import units
from assay.experiment.synthesise_table import MADE_BY, SYNTHESISE, SynthesiseSpec
from assay.lab.check.subject import target_messages
from assay.lab.monitor.run_costs import cost_line
from assay.lab.setup.made_folder import note_made_of
from assay.lab.setup.metering import MeteredModel
from assay.lab.setup.prepare import DataSet, find_part, prepare_set, tested_items
from assay.lab.setup.session import Session
from assay.lab.synthesise.answers import Refused, reader_of, rows_in
from assay.lab.synthesise.made_set import REFUSED, ROWS, MadeSet, made_folder, note_settings
from assay.lab.synthesise.proof import Prover
from assay.lab.synthesise.questions import ASK, Asker, Question, prompter_of, questions_of
from assay.runs.cost_ledger import LEDGER, STATE, LedgerCall, lost_costs, state_text
from assay.runs.status import hold_run
from assay.tasks.helper_model import HelperAnswer

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
            found = making.written()
            session.helpers.release()
    return found


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
    _sets: dict[str, DataSet] = field(default_factory=dict)
    _shares: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows of an answer, by seed and sample."""
    _asked: dict[str, str] = field(default_factory=dict)
    """Normal forms of the questions of proven rows -> the row."""

    def __post_init__(self) -> None:
        root, session = self.session.run.root, self.session
        self.seeds = self.part(self.spec.data)
        prompter = prompter_of(self.spec, root)
        self.prompt_sha256 = sha256_text(prompter.fingerprint)
        self.read = reader_of(self.spec, root)
        self.questions = questions_of(self.table, self.spec, self.seeds, prompter, session.seed)
        self.held = dict(self._held_out())
        self.own = {
            normalise_text(question(row)): row.id
            for row in self.seeds
            if target_messages(session.task, row) is not None
        }

    def part(self, name: str) -> tuple[Row, ...]:
        """The rows of a data set of the file, or a part of one."""
        session, data = self.session, name.partition(".")[0]
        given = (session.task, session.learner.encoder, session.run.root, self._sets)
        prepare_set(session.experiment, data, *given)
        return find_part(self._sets, name)

    def _held_out(self) -> Iterator[tuple[str, Sequence[Row]]]:
        """The sets that no made row may share anything with."""
        experiment, task = self.session.experiment, self.session.task
        names = [each.benchmark or each.data or "" for each in experiment.evaluate.values()]
        for name in dict.fromkeys([*names, *self.spec.disjoint_from]):
            if name in task.benchmarks:
                root = self.session.run.root
                yield name, tested_items(name, task, root, experiment.evaluate)
            else:
                yield name, self.part(name)

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
    def asker(self) -> Asker:
        """Who asks, with the calls that were made before."""
        return Asker(self.spec.calls, len(self.calls()), self.most)

    @cached_property
    def most(self) -> int:
        """Answers that are judged together, at most: all that the teacher's endpoint is asked at
        once."""
        return max(BATCH, self.session.experiment.helpers[self.spec.teacher].concurrency or 0)

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
        known = [model.known(q.messages, model.sampling, q.key) for _, q in self.questions]
        last = max((n for n, answer in enumerate(known) if answer is not None), default=-1) + 1
        self._judge_all(known[:last])
        missed = [n for n in range(last) if known[n] is None]
        if missed and not self.full:
            asked = [self.questions[n][1] for n in missed]
            for n, answer in zip(missed, self.asker.answers(model, asked), strict=True):
                known[n] = answer
            self._begin_again()
            self._judge_all(known[:last])
        while last < len(self.questions) and not self.full and not self.asker.stopped:
            size = min(self.most, max(self.spec.rows - len(self.kept), LEAST_BATCH))
            batch = self.questions[last : last + size]
            last += size
            self._judge(batch, self.asker.answers(model, [asked for _, asked in batch]))

    def _judge_all(self, answers: Sequence[HelperAnswer | None]) -> None:
        for begin in range(0, len(answers), BATCH):
            batch = answers[begin : begin + BATCH]
            if self.full:
                self.not_needed += sum(answer is not None for answer in batch)
            else:
                self._judge(self.questions[begin : begin + len(batch)], batch)

    def _begin_again(self) -> None:
        for each in (self.kept, self.refused, self._asked, self._shares):
            each.clear()
        self.not_needed = 0

    def _judge(
        self, batch: Sequence[tuple[Row, Question]], answers: Sequence[HelperAnswer | None]
    ) -> None:
        """Judge the answers of some questions, cheap checks first, and keep the rows that hold."""
        rows: list[Row] = []
        for (seed, asked), answer in zip(batch, answers, strict=True):
            if answer is not None:
                rows += self._read(seed, asked, answer)
        for prove in (self._separate, self.prover.calls, self.prover.golds):
            rows = [*self._passing(rows, prove(rows))]
        rows = [row for row in rows if self._is_new(row)]
        room = self.spec.rows - len(self.kept)
        self.not_needed += len(rows[room:])
        self.kept += rows[:room]
        self.session.observer.work(f"rows of {self.table}", len(self.kept), self.spec.rows)

    def _read(self, seed: Row, asked: Question, answer: HelperAnswer) -> Iterator[Row]:
        sample = asked.key.sample
        if answer.failure:
            name = f"{seed.id}/{sample}"
            self.refused.append(Refused(name, seed.id, sample, "unanswered", answer.failure))
            return
        cut = answer.ended == "length"
        found = rows_in(self.spec, self.read, seed, sample, answer.text, cut)
        self._shares[seed.id, str(sample)] = len(found)
        made = {"seed": seed.id, "sample": sample, "prompt_sha256": asked.sha256}
        for each in found:
            if isinstance(each, Refused):
                self.refused.append(each)
            else:
                yield replace(each, extra={**each.extra, MADE_BY: {"table": self.table, **made}})

    def _passing(self, rows: Sequence[Row], verdicts: Sequence[tuple[str, str]]) -> Iterator[Row]:
        for row, (reason, why) in zip(rows, verdicts, strict=True):
            if reason:
                self._refuse(row, reason, why)
            else:
                yield row

    def _refuse(self, row: Row, reason: str, why: str) -> None:
        made = row.extra[MADE_BY]
        told = row.id, made["seed"], made["sample"], reason, why
        self.refused.append(Refused(*told, row=row))

    def _separate(self, rows: Sequence[Row]) -> list[tuple[str, str]]:
        """Which rows share something with a held-out set."""
        found: dict[str, tuple[str, str]] = {}
        for name, items in self.held.items():
            for why, ids in separate(rows, items).dropped.items():
                for id_ in ids:
                    found.setdefault(id_, ("leaked", f"{why} ({name})"))
        return [found.get(row.id, ("", "")) for row in rows]

    def _is_new(self, row: Row) -> bool:
        """Whether a proven row asks what no other does, and no seed; it is remembered."""
        asked = normalise_text(question(row))
        first = self.own.get(asked) or self._asked.setdefault(asked, row.id)
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
        seen = []
        reason = "" if self.full else self.asker.stopped or ALL_ASKED
        if reason:
            fix = "raise samples or add seeds" if reason == ALL_ASKED else "call the command again"
            what = f"{len(rows)} of {self.spec.rows} rows are verified: {reason}"
            seen.append(Finding("error", what, f"{SYNTHESISE}.{self.table}", fix))
        return MadeSet(
            table=self.table,
            file=self.folder / ROWS,
            spec=self.spec,
            teacher=self.teacher.meter.source,
            fingerprint=self.teacher.fingerprint,
            rows=rows,
            refused=tuple(self.refused),
            asked=sum(c.operator == ASK and c.status == "answered" for c in calls)
            + sum(each.reason == "unanswered" for each in self.refused),
            not_needed=self.not_needed,
            held_out=tuple(self.held),
            total=cost_line("", calls) if calls else None,
            stopped=reason,
            findings=tuple(seen),
        )


def refused_values(each: Refused) -> dict[str, Any]:
    """A refused row or answer as JSON values."""
    return {
        "id": each.id,
        "seed": each.seed,
        "sample": each.sample,
        "reason": each.reason,
        "why": each.why,
        **({"text": each.text} if each.text else {}),
        **({"row": row_values(each.row)} if each.row is not None else {}),
    }
