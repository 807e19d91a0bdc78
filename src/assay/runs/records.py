"""Reads and writes samples and evaluation records as parquet files, complete or not at all.

An evaluation record is written chunk by chunk. A conversation is stored as its messages and, token
by token, as the turns in which it was sampled; a turn stores only what it adds to the context
before it. Nothing is scored here.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from assay.data.conversation import dump_messages, parse_message
from assay.data.episode import CUT, FULL_SCORE, Completion, Reward, Turn, common, tokens_of
from assay.data.files import (
    atomic_path,
    canonical_json,
    holds_another,
    kept,
    place_in_lab,
    sha256_file,
    sha256_text,
    whole_text,
)
from assay.data.loaded import Record
from assay.data.row import Message, Row
from assay.data.splits import drawn
from assay.errors import RunFailure
from assay.judge.identity import MANY_FALLBACKS, MOST_FALLBACKS, is_fallback
from assay.judge.scores import ItemScores, item_scores
from assay.judge.verdict import FEW_UNSCORED
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile, check_listed, listed_path, write_json

COLUMNS = [
    pa.field("messages", pa.string()),
    pa.field(
        "turns",
        pa.list_(
            pa.struct(
                [
                    ("reused", pa.int32()),
                    ("context", pa.list_(pa.int32())),
                    ("actions", pa.int32()),
                    ("ended", pa.string()),
                ]
            )
        ),
    ),
]
"""`messages`: JSON in OpenAI's format, all that followed the prompt. `turns`: for each turn, how
many tokens of the turn before (context and actions) its context begins with, the rest of its
context, and how many of the line's tokens are its own."""
NAMES = tuple(field.name for field in COLUMNS)


def conversation_columns(messages: Sequence[Message], turns: Sequence[Turn]) -> dict[str, Any]:
    """The two columns of one episode."""
    before: tuple[int, ...] = ()
    lines = []
    for turn in turns:
        context = tokens_of(turn.context)
        reused = common(before, context)
        lines.append(
            {
                "reused": reused,
                "context": list(context[reused:]),
                "actions": len(turn.actions),
                "ended": turn.ended,
            }
        )
        before = context + turn.actions
    values = dump_messages(tuple(messages))
    return {"messages": json.dumps(values, ensure_ascii=False), "turns": lines}


def stored_turns(
    stored: Sequence[Mapping[str, Any]], tokens: tuple[int, ...], logps: tuple[float, ...] = ()
) -> tuple[Turn, ...]:
    """The turns of a line's column, with log-probs where it has those."""
    before: tuple[int, ...] = ()
    turns, done = [], 0
    for each in stored:
        context = before[: each["reused"]] + tuple(each["context"])
        end = done + each["actions"]
        actions = tokens[done:end]
        trained = (True,) * len(actions)
        turns.append(Turn(context, actions, trained, logps[done:end] or None, each["ended"]))
        before, done = context + actions, end
    return tuple(turns)


def stored_messages(text: str | None) -> tuple[Message, ...]:
    """The messages of a line's column; empty if it has no conversation."""
    # A sampled conversation may break rules that rows keep, so messages are parsed one by one.
    values, record = json.loads(text or "[]"), Record("", 1, {})
    return tuple(parse_message(record, value, f"messages[{i}]") for i, value in enumerate(values))


def transcript(messages: str) -> str:
    """A stored conversation as text: each role, then its message, indented.

    The indent keeps text of a message from passing for a role. Calls are JSON.
    """
    parts = []
    for message in json.loads(messages):
        calls = [json.dumps(call, ensure_ascii=False) for call in message.get("tool_calls", ())]
        lines = "\n".join([message["content"], *calls]).split("\n")
        parts.append("\n".join([f"{message['role']}:", *(f"  {line}" for line in lines)]))
    return "\n".join(parts)


SCHEMA = 1
SAMPLES = pa.schema(
    [
        ("sample_id", pa.string()),
        ("step", pa.int32()),
        ("row_id", pa.string()),
        ("visit", pa.int32()),
        ("sample", pa.int32()),
        ("text", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("behaviour_logps", pa.list_(pa.float32())),
        ("reward", pa.float64()),
        ("parts", pa.string()),
        ("why", pa.string()),
        ("advantage", pa.float64()),
        ("ended", pa.string()),
    ]
)
ANSWERS = pa.schema(
    [
        ("sample_id", pa.string()),
        ("item_id", pa.string()),
        ("repeat", pa.int32()),
        ("output", pa.string()),
        ("tokens", pa.list_(pa.int32())),
        ("completion_tokens", pa.int32()),
        ("prompt_tokens", pa.int32()),
        ("score", pa.float64()),
        ("parts", pa.string()),
        ("error", pa.string()),
        ("why", pa.string()),
        ("ended", pa.string()),
        ("seconds", pa.float64()),
    ]
)

VISIT = "visit"
"""Which of the row's groups in the stage a sample belongs to."""
CLUSTER = "cluster"
"""Column of records whose items may share a source: the source of the line's item."""
FACTS = "facts"
"""Column of the reward's facts, JSON; files of older versions lack it."""
OUTCOME = "outcome"
"""Column of `Reward.outcome`, "" where the reward gives none; older files lack it."""
PROMPT = "prompt_sha256"
"""Column of `prompt_sha256` of a single answer; null in conversations; older files lack it."""
ENTROPIES = "entropies"
"""Column of the entropies, in nats, of what the tokens were drawn from; null where no engine of
Assay's own drew them; older files lack it."""
OPTIONAL = (FACTS, OUTCOME, CLUSTER, PROMPT, ENTROPIES)
"""Columns that a file has where its lines have them, in this order."""
COLUMN_TYPES = {column.name: column.type for schema in (SAMPLES, ANSWERS) for column in schema}
"""Both kinds of file share the types of columns."""
COLUMN_TYPES |= {**dict.fromkeys(OPTIONAL, pa.string()), ENTROPIES: pa.list_(pa.float32())}

Line = Mapping[str, Any]


RIGHT, WRONG, ABSTAINED = "right", "wrong", "abstained"


def outcome(score: float | None, error: str, judged: str | None = "") -> str:
    """What became of an answer: `ABSTAINED`, its type of error, `RIGHT` or `WRONG`.

    `judged` is the reward's outcome, if it gives one: of a right answer that costs something off
    the score, only this says that it is right.
    """
    if score is None:
        return ABSTAINED
    return error or judged or (RIGHT if score >= FULL_SCORE else WRONG)


FIX = "restore it, or delete it and evaluate again"
NAME = b"name"
"""Key in the metadata of a parquet file of a run: its `place_in_lab`."""


def write_table(
    file: Path, lines: Sequence[Line], schema: pa.Schema, run: Path | None = None
) -> None:
    """Write lines as one parquet file, whole or not at all; each has every column of the schema.

    Its checksum is recorded in the run in folder `run`, if there is one. Lines may also have the
    columns OPTIONAL, those of conversations have the columns of `conversation_columns`.
    """
    optional = [name for name in OPTIONAL if lines and name in lines[0]]
    schema = pa.schema([*schema, *((name, COLUMN_TYPES[name]) for name in optional)])
    if lines and NAMES[0] in lines[0]:
        schema = pa.schema([*schema, *COLUMNS])
    schema = named(schema, file)
    # Arrow would take an absent column for null and leave an unknown one out.
    assert all(line.keys() == set(schema.names) for line in lines), "columns are not the schema's"
    kept = [{name: _keepable(value) for name, value in line.items()} for line in lines]
    with listed_path(run, file) if run else atomic_path(file) as temporary:
        pq.write_table(pa.Table.from_pylist(kept, schema), temporary, write_page_checksum=True)


def named(schema: pa.Schema, file: Path) -> pa.Schema:
    """A schema that holds the name of its file in a run, if it is one."""
    place = place_in_lab(file)
    return schema.with_metadata({NAME: place[1]}) if place else schema


def _keepable(value: Any) -> Any:
    # The text of an environment or a checker may hold half of a surrogate pair.
    return whole_text(value) if isinstance(value, str) else value


def write_samples(file: Path, lines: Sequence[Line], run: Path | None = None) -> None:
    """Write the completions of one step of the run in folder `run`."""
    write_table(file, lines, SAMPLES, run)


def read_columns(
    file: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Columns of a record or of a step's samples, by name, and the optional ones that it has.

    Raises DamagedFile.
    """
    # Not pq.read_table, which loads pandas where that is installed.
    with reading(file), pq.ParquetFile(file, page_checksum_verification=True) as source:
        there = source.schema_arrow.names
        names = [*columns, *(name for name in optional if name in there)]
        table = source.read(columns=names)
        check_types(table.schema)
        return {name: table[name].to_pylist() for name in names}


def whole_table(file: Path, **wanted: Any) -> pa.Table:
    """A record or a step's samples by `pyarrow.parquet.read_table`. Raises DamagedFile."""
    with reading(file):
        table = pq.read_table(file, page_checksum_verification=True, **wanted)
        check_types(table.schema)
        return table


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turns errors while a record or a step's samples are read into DamagedFile, which it raises
    at once where the file is not what its run wrote under its name."""
    check_record(file)
    with _naming(file):
        yield


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise DamagedFile(f"the record cannot be read: {reason}", file=file, fix=FIX) from error


@kept(1 << 15)
def check_record(file: Path) -> None:
    """Raise DamagedFile unless a parquet file of a run, if it is of one, has the name that it
    holds and the checksum that the run recorded."""
    with _naming(file), pq.ParquetFile(file) as source:
        if place_in_lab(file) is None:
            return
        name = (source.schema_arrow.metadata or {}).get(NAME, b"").decode(errors="replace")
        other, content = holds_another(file, name), sha256_file(file)
    if other:
        raise DamagedFile(other, file=file, fix=FIX)
    check_listed(file, content)


def check_types(schema: pa.Schema) -> None:
    """Raise ArrowTypeError for a column of another type than such files have."""
    for column in schema:
        if column.name in COLUMN_TYPES and column.type != COLUMN_TYPES[column.name]:
            wanted = COLUMN_TYPES[column.name]
            raise pa.ArrowTypeError(f"column {column.name!r} is {column.type}, not {wanted}")


@dataclass(frozen=True)
class EvaluationRecord:
    """The description of an evaluation; two with the same fingerprint may share records."""

    name: str
    benchmark: str
    role: str
    items: tuple[str, ...]
    items_hash: str
    repeats: int
    sampling: Mapping[str, Any]
    rendering: str
    checker: str
    options: Mapping[str, Any]
    seed: int
    shared: Mapping[str, int] | None = None
    """Training rows of the run with the question of an item, by data set; None: not checked."""
    fewer: Mapping[str, int] = field(default_factory=dict)
    """Number of items for `base` or the checkpoints of a stage; all if it is not given."""

    @cached_property
    def key(self) -> str:
        """`<name>-<hash8>`: the folder of the records."""
        settings = asdict(self)
        del settings["shared"]
        if not self.fewer:
            # The name of records from before there were subsets of items.
            del settings["fewer"]
        return f"{self.name}-{sha256_text(canonical_json(settings))[:8]}"

    def items_of(self, checkpoint: str) -> tuple[str, ...]:
        """The items that a checkpoint is asked: all, or so many of them drawn by their ids.

        Fewer are always among more, those of `take` with `how = "random"` included.
        """
        count = self.fewer.get(checkpoint.partition(".")[0])
        if count is None:
            return self.items
        chosen = set(drawn(self.items, count))
        return tuple(item for item in self.items if item in chosen)

    def jobs(self, checkpoint: str) -> list[tuple[int, int]]:
        """The requests for a checkpoint: places of items, each with every repeat."""
        keys = set(self.items_of(checkpoint))
        places = [place for place, item in enumerate(self.items) if item in keys]
        return [(place, repeat) for place in places for repeat in range(self.repeats)]

    def part(self, checkpoint: str) -> bool:
        """Whether a checkpoint is measured on a part of the items only."""
        return len(self.items_of(checkpoint)) < len(self.items)

    def file(self, evaluations: Path, checkpoint: str) -> Path:
        """The record of one checkpoint."""
        return evaluations / self.key / f"{checkpoint}.parquet"

    def parts(self, evaluations: Path, checkpoint: str) -> Path:
        """The folder of a record's chunks until it is complete."""
        return self.file(evaluations, checkpoint).with_suffix(".parts")

    def finished(self, run: RunDirectory, checkpoint: str) -> bool:
        """Whether the record of a checkpoint is complete; removes chunks that a kill left beside
        it."""
        there = self.file(run.evaluations, checkpoint).exists()
        if there:
            shutil.rmtree(self.parts(run.evaluations, checkpoint), ignore_errors=True)
        return there


class RecordWriter:
    """Writes one record in chunks; chunks that a killed process left are taken over."""

    def __init__(self, evaluations: Path, record: EvaluationRecord, checkpoint: str):
        self.run = evaluations.parent
        self.file = record.file(evaluations, checkpoint)
        self.parts = record.parts(evaluations, checkpoint)
        self.record, self.checkpoint = record, checkpoint

    def __enter__(self) -> Self:
        self.parts.mkdir(parents=True, exist_ok=True)
        for chunk in self.chunks:
            check_record(chunk)  # before more is asked for
        description = {"schema": SCHEMA, **asdict(self.record)}
        write_json(self.file.parent / "evaluation.json", description, self.run)
        return self

    def __exit__(self, *_: object) -> None:
        if self.file.exists():
            shutil.rmtree(self.parts, ignore_errors=True)

    def chunk(self, index: int) -> Path:
        """The file of one chunk."""
        return self.parts / f"{index:05d}.parquet"

    @property
    def chunks(self) -> list[Path]:
        """The files of the chunks that are there, in order."""
        return sorted(self.parts.glob("*.parquet"))

    def refuse_unscored(self) -> None:
        """Raise RunFailure where no answer has a score. They are kept in a folder beside the
        record, and asked for anew when the run goes on."""
        if self.file.exists():
            return
        columns = [read_columns(part, ["score", "why"]) for part in self.chunks]
        if not columns or any(score is not None for each in columns for score in each["score"]):
            return
        reasons = Counter(kind_of_reason(why) for each in columns for why in each["why"])
        aside = self.file.with_suffix(".unscored")
        shutil.rmtree(aside, ignore_errors=True)
        kept, ((why, _),) = self.parts.rename(aside), reasons.most_common(1)
        raise RunFailure(
            f"{self.checkpoint} on {self.record.name}: none of {reasons.total()} answers has a "
            f"score, most often: {why} (the answers are kept in {kept}; mend what failed, then "
            "resume the run)"
        )

    def has_chunk(self, index: int) -> bool:
        """Whether a chunk is there, alone or within the finished record."""
        return self.file.exists() or self.chunk(index).exists()

    def write_chunk(self, index: int, lines: Sequence[Line]) -> None:
        """Write one chunk."""
        write_table(self.chunk(index), lines, ANSWERS)

    def finish(self) -> Path:
        """Merge the chunks into the record."""
        if not self.file.exists():
            tables = [whole_table(part) for part in self.chunks]
            with listed_path(self.run, self.file) as temporary:
                # A chunk that an earlier version left may lack a column.
                whole = pa.concat_tables(tables, promote_options="default")
                own = named(whole.schema, self.file).metadata
                whole = whole.replace_schema_metadata(own)
                pq.write_table(whole, temporary, write_page_checksum=True)
        return self.file


TRUNCATED = "truncated"


def error_type(
    classify: Callable[[Row, Completion], str], row: Row, completion: Completion, reward: Reward
) -> str:
    """The type of an answer's error for records; "" for a right answer and for an abstention.

    An answer that was cut and is not right is "truncated", whatever else is wrong with it. A
    checker that failed on an answer is not called again.
    """
    if reward.value is None or reward.outcome == "right":
        return ""
    error = reward.outcome or classify(row, completion)
    right = not error and reward.value >= FULL_SCORE
    return TRUNCATED if completion.ended in CUT and not right else error


MANY_TRUNCATED = 0.1
"""A larger share of answers that were cut and count as wrong is warned of."""


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
    """The answers of a record, counted; the most frequent kinds first."""

    answers: int
    outcomes: Mapping[str, int]
    """Right and wrong answers and types of errors such as "truncated"; those without a score are
    not among them."""
    unscored: Mapping[str, int]
    """Reasons of answers without a score by kind, such as "endpoint: HTTP 400"."""
    fallback: int | None = None
    """Answers that a fallback metric scored; None where no answer says what scored it."""

    @property
    def fallback_share(self) -> float:
        """The share of the answers that a fallback metric scored."""
        return (self.fallback or 0) / max(self.answers, 1)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the record's score doubtful; `refuse_fallbacks` stops at more fallbacks."""
        warnings, missing = [], sum(self.unscored.values())
        if missing > FEW_UNSCORED * self.answers:
            warnings.append(
                f"{missing} of {self.answers} answers ({missing / self.answers:.1%}, more than "
                f"{FEW_UNSCORED:.0%}) have no score, most often: {next(iter(self.unscored))}; no "
                "verdict is given that they could undo"
            )
        if MANY_FALLBACKS < self.fallback_share <= MOST_FALLBACKS:
            warnings.append(
                f"a fallback metric scored {self.fallback} of {self.answers} answers "
                f"({self.fallback_share:.1%}, more than {MANY_FALLBACKS:.0%}): the score is not "
                "the benchmark's, and no verdict is given on it"
            )
        cut = self.outcomes.get(TRUNCATED, 0)
        if cut > MANY_TRUNCATED * self.answers:
            warnings.append(
                f"{cut} of {self.answers} answers ({cut / self.answers:.1%}, more than "
                f"{MANY_TRUNCATED:.0%}) count as wrong because they were cut at the token limit; "
                "raise sampling.max_tokens"
            )
        return tuple(warnings)


def recorded_outcomes(file: Path) -> RecordedOutcomes:
    """Reads a record's columns. Raises DamagedFile."""
    columns = read_columns(file, ["score", "error", "why", "parts"], [OUTCOME])
    scores = columns["score"]
    judged = columns.get(OUTCOME) or [""] * len(scores)
    lines = zip(scores, columns["error"], judged, strict=True)
    scored = Counter(outcome(*line) for line in lines if line[0] is not None)
    reasons = [why for why, score in zip(columns["why"], scores, strict=True) if score is None]
    unscored = Counter(map(kind_of_reason, reasons))
    return RecordedOutcomes(
        len(scores),
        dict(scored.most_common()),
        dict(unscored.most_common()),
        fallbacks(columns["parts"]),
    )


def kind_of_reason(why: str) -> str:
    """What answers without a score have in common, such as "endpoint: HTTP 400"; of a helper model
    also which one it was."""
    parts = why.split(": ")
    return ": ".join(parts[: 3 if parts[0].endswith("gave no answer") else 2])


def fallbacks(texts: Sequence[str]) -> int | None:
    """The answers that a fallback metric scored, by their parts; None where none says so."""
    known = {text: is_fallback(json.loads(text)) for text in set(texts)}
    marks = [known[text] for text in texts if known[text] is not None]
    return sum(map(bool, marks)) if marks else None


def refuse_fallbacks(name: str, checkpoint: str, file: Path) -> None:
    """Raise RunFailure for a record most of whose answers a fallback metric scored; the record
    is kept."""
    outcomes = recorded_outcomes(file)
    if outcomes.fallback_share > MOST_FALLBACKS:
        raise RunFailure(
            f"{checkpoint} on {name}: a fallback metric scored {outcomes.fallback} of "
            f"{outcomes.answers} answers ({outcomes.fallback_share:.1%}, more than "
            f"{MOST_FALLBACKS:.0%}); the record is kept: {file} (give every question what "
            "its metric needs; the facts of its answers say what lacks)"
        )


def read_scores(run: RunDirectory, record: EvaluationRecord, checkpoint: str) -> ItemScores:
    """The scores of one record, items by repeats. Raises DamagedFile."""
    return _scores(record.file(run.evaluations, checkpoint), record.part(checkpoint))


@kept(256)
def _scores(file: Path, part: bool) -> ItemScores:
    columns = read_columns(file, ["item_id", "repeat", "score"], [CLUSTER])
    return scores_of(
        columns["item_id"],
        columns["repeat"],
        columns["score"],
        columns.get(CLUSTER),
        part=part,
    )


def scores_of(
    items: Sequence[str],
    repeats: Sequence[int],
    scores: Sequence[float | None],
    clusters: Sequence[str | None] | None = None,
    *,
    part: bool = False,
) -> ItemScores:
    """The columns of a record as scores, on the scale that holds them all.

    An item of no cluster is one by itself. `part`: a part of the items was asked.
    """
    known = [score for score in scores if score is not None]
    # Rewards may be punished below 0 or carry a bonus above 1.
    bounds = (min([0.0, *known]), max([1.0, *known]))
    sources = {i: c or i for i, c in zip(items, clusters, strict=True)} if clusters else None
    scored = item_scores(zip(items, repeats, scores, strict=True), sources, bounds)
    return replace(scored, part=part)
