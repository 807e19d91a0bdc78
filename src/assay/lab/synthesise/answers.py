"""What a teacher is asked, answers that are paid for once, and what they hold as rows of a format.

An answer is in the cost ledger of the made set before it is used, with its call; what the ledger
knows is not asked again. The text is hostile: it is parsed and never run, and a row has of it what
the format reads and the fields that the table keeps. A row's id, conversation and tools come from
its seed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from assay.data.conversation import parse_messages
from assay.data.episode import row_values
from assay.data.files import canonical_json, expanded, sha256_text
from assay.data.formats.formats import FileLayout, all_rows, items_of
from assay.data.json_files import load_next
from assay.data.leakage import question
from assay.data.loaded import Record
from assay.data.row import Message, Row
from assay.data.row_checks import field_value, undeclared_calls
from assay.data.splits import conversation_of
from assay.errors import AssayError, InputError, nearest
from assay.experiment.read_file import read_text
from assay.experiment.selection_tables import FILE, JSON, SynthesiseSpec
from assay.lab.models.metering import MeteredModel, contents
from assay.lab.synthesise.made_set import Refused
from assay.rl.policy import SampleKey
from assay.runs.cost_ledger import LedgerUnusable
from assay.tasks.helper_model import Caller, HelperAnswer, OverBudget, Question
from assay.tasks.task import answer_text
from assay.tasks.user_code import function_in, in_a_line

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
MOST_TRIES = 1000
"""Places of a text at which JSON is looked for."""
FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
OPENING = re.compile(r"[{\[]")


Reader = Callable[[Row, str], Sequence[Mapping[str, Any]]]
"""The objects in an answer to a seed. Raises ValueError."""


def reader_of(spec: SynthesiseSpec, root: Path) -> Reader:
    """What reads a table's answers. Raises InputError."""
    if spec.read == JSON:
        return lambda seed, text: json_objects(text)
    function, _ = function_in(spec.read, root)

    def read(seed: Row, text: str) -> Sequence[Mapping[str, Any]]:
        try:
            value = function(seed, text)
            rows = [value] if isinstance(value, Mapping) else list(value)
            return json.loads(json.dumps(rows, allow_nan=False))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # one bad answer is data, not the end of the work
            raise ValueError(in_a_line(error)) from error

    return read


def json_objects(text: str) -> Sequence[Mapping[str, Any]]:
    """The objects that a text holds, behind its last thought: in a fence of code where there is
    one, alone or in arrays. Raises ValueError."""
    answer = text.rpartition("</think>")[2]
    fences = [each for held in FENCE.findall(answer) for each in _objects_in(held)]
    if objects := fences or [*_objects_in(answer)]:
        return objects
    raise ValueError("holds no JSON object")


def _objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    at = 0
    for _ in range(MOST_TRIES):
        begun = OPENING.search(text, at)
        if begun is None:
            return
        try:
            value, at = load_next(text, begun.start())
        except ValueError:
            at = begun.start() + 1
            continue
        members = value if isinstance(value, list) else [value]
        yield from (each for each in members if each and isinstance(each, Mapping))


def rows_in(
    spec: SynthesiseSpec, read: Reader, seed: Row, sample: int, text: str, cut: bool
) -> list[Row | Refused]:
    """The rows of an answer, which was `cut` at its most tokens or not, and what is none."""
    name = f"{seed.id}/{sample}"
    try:
        objects = read(seed, text)
    except ValueError as error:
        why = f"{error}, and was cut at max_tokens" if cut else str(error)
        return [Refused(name, seed.id, sample, "unreadable", why, text)]
    rows: list[Row | Refused] = []
    for place, value in enumerate(objects):
        own = name if len(objects) == 1 else f"{name}.{place}"
        try:
            row = row_of(spec, seed, own, value)
            reason, why = ill_formed(row)
        except InputError as error:
            row, reason = None, "unreadable"
            why = ": ".join(filter(None, (error.field, error.problem)))
        bad = Refused(own, seed.id, sample, reason, why, text, row)
        rows.append(bad if reason or row is None else row)
    return rows


def row_of(spec: SynthesiseSpec, seed: Row, name: str, value: Mapping[str, Any]) -> Row:
    """The row that an object is in the table's format. Raises InputError."""
    fields = {key: each for key, each in value.items() if key not in ("id", "conversation")}
    if seed.tools:
        fields.setdefault("tools", [dict(tool) for tool in seed.tools])
    record = Record(name, 1, fields)
    rows = [*all_rows(items_of([record], spec.format, FileLayout(), name, 0.0))]
    if len(rows) != 1:
        raise InputError(f"is {len(rows)} rows")
    kept = {key: rows[0].extra[key] for key in spec.keep if key in rows[0].extra}
    own = {"id": name, "conversation": conversation_of(seed), "extra": kept}
    return replace(rows[0], **own, columns={}, template_options={}, origin="")


def ill_formed(row: Row) -> tuple[str, str]:
    """Why a row that can be read is not to be trained on: reason and words; two empty texts."""
    if not question(row).strip():
        return "form", "asks nothing"
    if any(message.parts for message in row.messages):
        return "form", "holds images"
    for text in texts_in(row_values(row)):
        if match := CONTROL.search(text):
            why = f"holds the control character U+{ord(match[0]):04X}: in JSON a backslash is two"
            return "form", why
    undeclared = undeclared_calls(row)
    return ("calls", undeclared) if undeclared else ("", "")


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from (str(key), *texts_in(each))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)


ASK = "ask"
"""What a call of a made set is for, as its ledger has it."""
GAP = re.compile(r"\{([A-Za-z_][\w.]*)\}")
"""A gap of a template; JSON's braces hold something else."""


@dataclass(frozen=True, slots=True)
class TeacherQuestion:
    """What a model is asked for a made set, on whose behalf, and the key of the draw."""

    messages: tuple[Message, ...]
    key: SampleKey
    caller: Caller

    @property
    def sha256(self) -> str:
        """Of the messages."""
        return sha256_text(canonical_json(contents(self.messages)))

    def to(self, model: MeteredModel) -> Question:
        """As the model is asked it."""
        return Question(self.messages, model.sampling, self.key)


Prompt = Callable[[Row, int], tuple[Message, ...]]
"""Of a seed and the number of a sample, which counts from 0. Raises InputError."""


def prompt_of(spec: SynthesiseSpec, root: Path) -> tuple[Prompt, str]:
    """What a table's prompt means, and its fingerprint; files lie in `root`. Raises InputError."""
    text = spec.prompt
    if text.startswith(FILE) and ".py:" in text:
        function, loaded = function_in(text, root)
        return of_function(function), canonical_json(loaded.fingerprint)
    if text.startswith(FILE):
        text = read_text(root / expanded(text.removeprefix(FILE)))
    for name in GAP.findall(text):
        if name not in GAPS and not name.startswith("extra."):
            raise InputError(f"no gap {{{name}}}", fix=nearest(name, [*GAPS, "extra.NAME"]))
    return of_template(text), text


GAPS: Mapping[str, Callable[[Row, int], str | None]] = {
    "question": lambda row, number: question(row),
    "text": lambda row, number: question(row),
    "answer": lambda row, number: answer_text(row),
    "tools": lambda row, number: json.dumps(list(row.tools), ensure_ascii=False),
    "number": lambda row, number: str(number + 1),
}
"""What fills a gap; None where the seed has it not."""


def of_template(text: str) -> Prompt:
    """The prompts of a template."""

    def prompt(row: Row, number: int) -> tuple[Message, ...]:
        def filled(gap: re.Match[str]) -> str:
            name = gap[1]
            value = GAPS[name](row, number) if name in GAPS else field_value(row, name)
            if value is None:
                problem = f"the seed {row.id} has no {name}, for which the prompt has a gap"
                raise InputError(problem, fix="take the gap out, or leave such seeds out by where")
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        return (Message("user", GAP.sub(filled, text)),)

    return prompt


def of_function(function: Callable[..., Any]) -> Prompt:
    """The prompts of a user's function, which gives text or messages."""

    def prompt(row: Row, number: int) -> tuple[Message, ...]:
        try:
            value = function(row, number)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise InputError(f"seed {row.id}: raises {in_a_line(error)}") from error
        if isinstance(value, str):
            return (Message("user", value),)
        plain = [contents([m])[0] if isinstance(m, Message) else m for m in value]
        return parse_messages(Record(f"seed {row.id}", 1, {}), plain, "prompt")

    return prompt


def questions_of(
    table: str, spec: SynthesiseSpec, seeds: Sequence[Row], prompt: Prompt, seed: int
) -> list[tuple[Row, TeacherQuestion]]:
    """Every question to the teacher with its seed: each seed once, then each a second time, and so
    on. Raises InputError."""
    return [
        (
            row,
            TeacherQuestion(
                prompt(row, number),
                SampleKey(seed, row.id, number),
                Caller(table, 0, row.id, str(number), ASK),
            ),
        )
        for number in range(spec.samples)
        for row in seeds
    ]


@dataclass
class TeacherClient:
    """Asks models within the table's calls, until a budget or an error ends it."""

    limit: int | None
    """Calls that may be made; None: as many as budgets allow."""
    made: int
    """Calls that earlier processes made."""
    at_once: int
    """Questions that wait for answers; how many of them an endpoint is sent is its table's."""
    stopped: str = ""
    """Why nothing more is asked; "" while something may be."""
    _full: str = ""
    """Why a budget had no room beside the calls on their way."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    def answers(
        self, model: MeteredModel, questions: Sequence[TeacherQuestion]
    ) -> list[HelperAnswer | None]:
        """The answers in order, those of the ledger among them; None where nothing was asked."""
        answers = [model.known(each.to(model)) for each in questions]
        fresh = [n for n, answer in enumerate(answers) if answer is None]
        while fresh and not self.stopped:
            self._full, size = "", min(len(fresh), self.at_once)
            pool = ThreadPoolExecutor(size, thread_name_prefix="assay-teacher")
            try:
                replies = pool.map(lambda n: self._answer(model, questions[n]), fresh)
                for n, answer in zip(fresh, replies, strict=True):
                    answers[n] = answer
            except BaseException:  # what is on its way is paid for, and waited for
                self.stopped = self.stopped or "interrupted"
                raise
            finally:
                pool.shutdown(cancel_futures=True)
            left = [n for n in fresh if answers[n] is None]
            # A call on its way may cost more than it will: what found no room beside it is asked
            # again once it is there.
            if self._full and len(left) == len(fresh):
                self.stopped = self._full
            fresh = left if self._full else []
        return answers

    def _answer(self, model: MeteredModel, question: TeacherQuestion) -> HelperAnswer | None:
        with self._lock:
            if not self.stopped and self.limit is not None and self.made >= self.limit:
                self.stopped = f"calls = {self.limit} are made"
            if self.stopped:
                return None
            self.made += 1
        try:
            own = model.called_by(question.caller)
            return own.answer([question.to(model)])[0]
        except OverBudget as full:
            with self._lock:
                self.made -= 1
            self._full = str(full)
        except LedgerUnusable:
            raise
        except AssayError as error:
            self.stopped = self.stopped or str(error)
        return None
