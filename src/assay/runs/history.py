"""The one typed reader of what a run recorded: metrics, samples, evaluations, selections, calls.

Everything is read when it is first asked for; samples are read step by step, without their tokens
where these are not asked for. Nothing is judged, sampled or written here. Files are written by
`metrics`, `records`, `checkpoints` and `cost_ledger`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from assay.data.episode import Ended, Reward, Turn
from assay.data.files import canonical_json, kept, sha256_file, sha256_text
from assay.data.row import Message
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import Rule, checkpoint_name, parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.judge.health_rules import derived
from assay.judge.scores import ItemScores, on_one_scale
from assay.runs.cost_ledger import LedgerCall, read_calls
from assay.runs.metrics import read_metrics
from assay.runs.records import (
    CLUSTER,
    FACTS,
    OUTCOME,
    PROMPT,
    VISIT,
    EvaluationRecord,
    check_record,
    check_types,
    read_columns,
    read_scores,
    reading,
    stored_messages,
    stored_turns,
    whole_table,
)
from assay.runs.run_directory import Manifest, RunDirectory, folders_in, read_manifest
from assay.runs.run_files import FIX, DamagedFile, Selection, as_entry, read_json, read_selection
from assay.runs.run_names import (
    RunNotFound,
    experiment_of,
    recorded_start,
    resolve_checkpoint,
)

Line = Mapping[str, Any]
compute: Any = pyarrow.compute
"""Its functions are made when it is imported, unseen by a type checker."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a training step, or one answer to an item of an evaluation."""

    id: str
    row: str
    """The row or the item."""
    number: int
    """Among the stage's samples of the row, or the repeat."""
    text: str
    reward: float | None
    """The reward or the score; None for an abstention."""
    parts: dict[str, float]
    ended: Ended
    step: int | None = None
    """None in evaluations."""
    visit: int = 0
    """Of the stage to the row; 0 in evaluations, and in files that do not say it."""
    why: str = ""
    error: str = ""
    """The type of a wrong answer; evaluations alone have it."""
    outcome: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    advantage: float | None = None
    prompt: str | None = None
    """See `files.prompt_sha256`."""
    cluster: str | None = None
    conversation: str | None = None
    """All that followed the prompt, JSON; None of a single answer."""
    tokens: tuple[int, ...] = ()
    """As they were sampled; none where another program answered, or where they are not read."""
    logps: tuple[float, ...] = ()
    stored: tuple[Line, ...] = ()
    """The turns of a conversation as the file has them."""
    length: int = 0
    """In tokens, read or not; 0 where it is not known."""

    @property
    def judgement(self) -> Reward:
        """What the reward said; files of older versions hold less."""
        return Reward(self.reward, self.parts, self.why, self.outcome, self.facts)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that followed the prompt, in an episode of several turns; else empty."""
        return stored_messages(self.conversation)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of a conversation, with log-probs where it has those."""
        return stored_turns(self.stored, self.tokens, self.logps)


SAMPLE = {"row": "row_id", "number": "sample", "text": "text", "reward": "reward"}
SAMPLE |= {"step": "step", "advantage": "advantage"}
ANSWER = {"row": "item_id", "number": "repeat", "text": "output", "reward": "score"}
ANSWER |= {"error": "error"}
"""What the fields of a sample are called in the two kinds of files."""
LATER = (VISIT, OUTCOME, FACTS, PROMPT, CLUSTER, "messages")
"""Columns that older files, or those of single answers, lack."""
PIECE = 1024
"""Lines of a file that are in memory at a time."""


def samples_in(file: Path, *, tokens: bool = False) -> Iterator[Sample]:
    """The samples of a step's file or an evaluation's record, in order, read piece by piece.

    Raises DamagedFile.
    """
    with reading(file), pq.ParquetFile(file, page_checksum_verification=True) as source:
        schema = source.schema_arrow
        names = ANSWER if ANSWER["row"] in schema.names else SAMPLE
        columns = ["sample_id", *names.values(), "parts", "why", "ended"]
        later = (*LATER, "tokens", *(["turns"] if tokens else []))
        columns += [name for name in later if name in schema.names]
        columns += ["behaviour_logps"] if tokens and names is SAMPLE else []
        check_types(pa.schema([schema.field(name) for name in columns]))
        for batch in source.iter_batches(PIECE, columns=columns):
            yield from _samples(batch, names, tokens)


def _samples(batch: pa.RecordBatch, names: Mapping[str, str], tokens: bool) -> Iterator[Sample]:
    """The samples of a piece of a file, column by column: a page reads hundreds of thousands."""
    there, count = set(batch.schema.names), len(batch)
    own = compute.list_value_length(batch.column("tokens")) if "tokens" in there else None
    lengths = [0] * count if own is None else [length or 0 for length in own.to_pylist()]
    there -= set() if tokens else {"tokens"}

    def column(name: str, absent: Any = None) -> list[Any]:
        return batch.column(name).to_pylist() if name in there else [absent] * count

    named = {field: column(name) for field, name in names.items()}
    none = [None] * count
    parts, facts = (map(_object_reader(), column(name)) for name in ("parts", FACTS))
    texts = ((text or "" for text in column(name)) for name in ("why", "error", OUTCOME))
    lists = ([tuple(each or ()) for each in column(n)] for n in ("tokens", "behaviour_logps"))
    turns = [tuple(each or ()) for each in column("turns")]
    yield from map(
        Sample,
        column("sample_id"),
        *(named[name] for name in ("row", "number", "text", "reward")),
        parts,
        column("ended"),
        named.get("step", none),
        (visit or 0 for visit in column(VISIT)),
        *texts,
        facts,
        named.get("advantage", none),
        *(column(name) for name in (PROMPT, CLUSTER, "messages")),
        *lists,
        turns,
        lengths,
    )


def _object_reader() -> Callable[[str | None], dict[str, Any]]:
    """Reads JSON objects, of which many are alike; each caller gets its own."""
    known: dict[str, dict[str, Any]] = {}

    def read(text: str | None) -> dict[str, Any]:
        if not text or text == "{}":
            return {}
        if text not in known:
            known[text] = json.loads(text)
        return dict(known[text])

    return read


@dataclass(frozen=True)
class Look:
    """Score of one checkpoint on dev items."""

    step: int
    """0 for the stage's start."""
    name: str
    """As records name it."""
    scores: ItemScores


@dataclass(frozen=True)
class History:
    """What a run recorded so far; each part is read once. Raises what reading its files raises."""

    run: RunDirectory

    @cached_property
    def experiment(self) -> Experiment:
        """The resolved experiment."""
        return experiment_of(self.run)

    @cached_property
    def manifest(self) -> Manifest:
        """The fingerprints; empty while the run has not written them."""
        return read_manifest(self.run)

    @cached_property
    def metrics(self) -> Mapping[str, Sequence[Line]]:
        """The steps of each stage, with derived metrics, in the order in which stages began."""
        lines: dict[str, list[Line]] = {}
        for line in read_metrics(self.run.metrics):
            lines.setdefault(line["stage"], []).append(derived(line))
        return lines

    def lines(self, stage: str, until: int | None = None) -> Sequence[Line]:
        """The recorded steps of a stage, all or up to one; none before it began."""
        lines = self.metrics.get(stage, [])
        return lines if until is None else [line for line in lines if line["step"] <= until]

    @property
    def last_stage(self) -> str | None:
        """The last stage that recorded a step."""
        return [*self.metrics][-1] if self.metrics else None

    def sampled(self, stage: str) -> list[int]:
        """The steps whose samples are kept, in order."""
        files = self.run.samples(stage, 0).parent.glob("step-*.parquet")
        return sorted(int(file.stem.removeprefix("step-")) for file in files if is_there(file))

    def samples(self, stage: str, step: int, *, tokens: bool = False) -> Iterator[Sample]:
        """The completions of one step; none where they are not kept."""
        file = self.run.samples(stage, step)
        if is_there(file):
            yield from samples_in(file, tokens=tokens)

    @cached_property
    def evaluations(self) -> Sequence[EvaluationRecord]:
        """The evaluations with a record, finished or not."""
        return evaluation_records(self.run)

    def record(self, on: str) -> EvaluationRecord:
        """The record of an evaluation."""
        return find_record(self.run, on)

    def measured(self, record: EvaluationRecord) -> list[str]:
        """Checkpoints with a finished record: the base first, then by stage and step."""
        return measured_checkpoints(self.run, record)

    def scores(self, record: EvaluationRecord, *checkpoints: str) -> Sequence[ItemScores]:
        """The scores of some checkpoints on one scale."""
        return on_one_scale(*(read_scores(self.run, record, name) for name in checkpoints))

    def looks(self, stage: str) -> list[Look]:
        """The scores of a stage by its first selecting evaluation, by step, on one scale.

        The start comes first if it was measured.
        """
        for record in self.evaluations:
            if record.role != "select":
                continue
            measured = self.measured(record)
            places = {name: parse_checkpoint(name) for name in measured}
            steps = {n: p.step for n, p in places.items() if p and p.stage == stage and p.step}
            if steps:
                start = self.start(stage)
                steps = ({start: 0} if start in measured else {}) | steps
                scores = self.scores(record, *steps)
                return [
                    Look(step, name, score)
                    for (name, step), score in zip(steps.items(), scores, strict=True)
                ]
        return []

    def selection(self, stage: str, rule: Rule = "gate") -> Selection | None:
        """What a rule has chosen of a stage; None before it did."""
        return read_selection(self.run.path, stage, rule)

    def checkpoints(self, stage: str) -> list[int]:
        """The steps of a stage's finished checkpoints, in order."""
        return self.run.checkpoint_steps(stage)

    def start(self, stage: str) -> str:
        """The start of a stage as records name it; "" if it is not known yet."""
        chosen = self.selection(stage)
        if chosen and chosen.start:
            return chosen.start
        try:
            start = recorded_start(self.run, stage, self.experiment.stage[stage])
            return checkpoint_name(start)
        except RunNotFound:  # the stage before has left no checkpoint yet, or it was deleted
            return ""

    @cached_property
    def calls(self) -> Sequence[LedgerCall]:
        """The calls of helper models, oldest first. Raises LedgerUnusable."""
        return read_calls(self.run.path)


_left_out: ContextVar[Mapping[Path, DamagedFile] | None] = ContextVar("left_out", default=None)


@contextmanager
def leaving_out(run: RunDirectory) -> Iterator[None]:
    """Within it damaged samples and records of the run count as not there; `left_out` says why."""
    files = [*run.path.glob("samples/*/*.parquet"), *run.evaluations.glob("*/[!.]*.parquet")]
    damage: dict[Path, DamagedFile] = {}
    for file in sorted([*files, *run.evaluations.glob("*/evaluation.json")]):
        try:
            if file.suffix == ".json":
                read_description(file)
            else:
                check_record(file)
        except DamagedFile as error:
            damage[file] = error
    token = _left_out.set(damage)
    try:
        yield
    finally:
        _left_out.reset(token)


def left_out() -> Sequence[DamagedFile]:
    """Why files are left out here."""
    return tuple((_left_out.get() or {}).values())


def is_there(file: Path) -> bool:
    """Whether samples or a record exist and are not left out."""
    return file not in (_left_out.get() or ()) and file.exists()


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""An evaluation's name begins the name of its folder."""


def evaluation_records(run: RunDirectory) -> list[EvaluationRecord]:
    """The evaluations of the run in the order of its file, then those added later."""
    files = filter(is_there, sorted(run.evaluations.glob("*/evaluation.json")))
    records = [read_description(file) for file in files]
    order = [*experiment_of(run).evaluate]
    return sorted(records, key=lambda r: order.index(r.name) if r.name in order else len(order))


@kept(1024)
def read_description(file: Path) -> EvaluationRecord:
    """What an `evaluation.json` describes. Raises DamagedFile, also where another folder is the
    one of its records."""
    values = read_json(file, dict)
    values.pop("schema", None)
    record = as_entry(EvaluationRecord, values, file)
    if not _FILE_NAME.fullmatch(record.name) or any(count < 1 for count in record.fewer.values()):
        problem = "cannot be read: its name, or a number of items, is none"
        raise DamagedFile(problem, file=file, fix=FIX)
    if record.key != file.parent.name:
        raise DamagedFile(f"describes {record.key}", file=file, fix=FIX)
    return record


def find_record(run: RunDirectory, on: str) -> EvaluationRecord:
    """The run's record of an evaluation, by its name, its benchmark or its folder.

    Raises InputError when there is none or more than one.
    """
    records = evaluation_records(run)
    by_folder = [r for r in records if r.key == on]
    by_name = [r for r in records if r.name == on]
    matches = by_folder or by_name or [r for r in records if r.benchmark == on]
    if not matches:
        known = [r.name for r in records]
        fix = nearest(on, known) if known else "it has none yet"
        raise InputError(f"{run} has no evaluation {on!r}", fix=fix)
    if len(matches) > 1:
        fix = "name one: " + ", ".join(r.key for r in matches)
        raise InputError(f"{run} has {len(matches)} records of {on!r}", fix=fix)
    return matches[0]


def measured_checkpoints(run: RunDirectory, record: EvaluationRecord) -> list[str]:
    """Checkpoints with a finished record: the base first, then by stage and step."""
    files = record.file(run.evaluations, "base").parent.glob("[!.]*.parquet")
    names = {file.stem for file in files if is_there(file)}
    return sorted(names, key=partial(_place, ["base", *experiment_of(run).stage]))


def _place(stages: list[str], name: str) -> tuple[int, int]:
    reference = parse_checkpoint(name)
    if reference is None or (reference.stage or "base") not in stages:
        raise InputError(f"a record is named {name!r}", fix="the experiment has no such stage")
    return stages.index(reference.stage or "base"), reference.step or 0


def answers_in(file: Path) -> list[dict[str, Any]]:
    """The lines of a record, without their tokens. Raises DamagedFile.

    Lines of conversations have `messages`, JSON in OpenAI's format.
    """
    columns = ["sample_id", "item_id", "repeat", "output", "completion_tokens", "prompt_tokens"]
    columns += ["score", "parts", "error", "why", "ended"]
    rows = read_columns(file, columns, ["messages", FACTS, OUTCOME])
    return [dict(zip(rows, line, strict=True)) for line in zip(*rows.values(), strict=True)]


def reported_answers(
    run: RunDirectory, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, str, str, list[dict[str, Any]]]]:
    """Benchmark, evaluation, checkpoint and answers of all reporting records of wanted benchmarks.

    Raises DamagedFile.
    """
    for record in evaluation_records(run):
        if record.role == "report" and wanted(record.benchmark):
            for checkpoint in measured_checkpoints(run, record):
                lines = answers_in(record.file(run.evaluations, checkpoint))
                yield record.benchmark, record.name, checkpoint, lines


def sample_files(run: RunDirectory, stage: str, steps: Sequence[int] | None) -> list[Path]:
    """The files of a stage's samples: of these steps, or of all. Raises RunNotFound."""
    stages = [folder.name for folder in folders_in(run.path / "samples")]
    if not stages:
        raise RunNotFound(f"{run} has no samples", fix="sft stages and stored rows record none")
    if stage not in stages:
        raise RunNotFound(f"{run} has no samples of {stage!r}", fix=nearest(stage, stages))
    there = History(run).sampled(stage)
    for step in steps or ():
        if step not in there:
            fix = f"it has steps {there[0]} to {there[-1]}"
            raise RunNotFound(f"{run} has no samples of step {step} of {stage!r}", fix=fix)
    return [run.samples(stage, step) for step in (there if steps is None else steps)]


def record_file(run: RunDirectory, evaluation: str, checkpoint: str) -> Path:
    """The record of an evaluation of one checkpoint. Raises RunNotFound."""
    folders = list(run.evaluations.iterdir()) if run.evaluations.is_dir() else []
    named = [p for p in folders if evaluation in (p.name, p.name.rpartition("-")[0])]
    if not named:
        fix = nearest(evaluation, {p.name.rpartition("-")[0] for p in folders})
        raise RunNotFound(f"{run} has no evaluation {evaluation!r}", fix=fix)
    reference = parse_checkpoint(checkpoint)
    if reference is None:
        raise RunNotFound(f"{checkpoint!r} is not a checkpoint", fix="write STAGE.last or base")
    name = checkpoint_name(resolve_checkpoint(run, reference))
    files = [file for p in named if (file := p / f"{name}.parquet").is_file()]
    if len(files) != 1:
        count = "no record" if not files else f"{len(files)} records"
        problem = f"{run} has {count} of {evaluation!r} for {name}"
        fix = "its records are in " + ", ".join(sorted(p.name for p in named))
        raise RunNotFound(problem, fix=fix)
    return files[0]


def files_sha256(run: RunDirectory, files: Sequence[Path]) -> str:
    """One hash of files of a run, by name and content."""
    named = [[file.relative_to(run.path).as_posix(), sha256_file(file)] for file in files]
    return sha256_text(canonical_json(named))


def find_samples(run: RunDirectory, id_: str) -> list[dict[str, Any]]:
    """The lines of the records that `id_` means, each with `file` (where it is), `parts` and
    `facts` as objects, and its text under `text`.

    Ids are `STAGE/STEP/ROW#SAMPLE` and `EVALUATION/CHECKPOINT/ITEM#REPEAT`. Without `#N` they mean
    all samples of the row or item; a bare row or item id means all of them in the run. If a row is
    named `a#1`, the id `a#1` is still sample 1 of row `a`, where there is one. An evaluation's bare
    name may stand for several records, made with different settings. Raises InputError with the
    nearest names at the first part of the id that is unknown.
    """
    folders = {folder.name: [folder] for folder in folders_in(run.path / "samples")}
    for folder in folders_in(run.evaluations):
        for name in (folder.name.rpartition("-")[0], folder.name):
            folders.setdefault(name, []).append(folder)
    head, _, rest = id_.partition("/")
    if head in folders and "/" in rest:
        place, _, item = rest.partition("/")
        file = _member(folders[head], place, f"{run} {head}")
        lines = _lines(run, [file], item)
        if not lines:
            known = {sample.row for sample in samples_in(file)}
            raise InputError(f"no {item!r} in {file}", fix=nearest(item, known))
        return lines
    different = dict.fromkeys(folder for group in folders.values() for folder in group)
    files = [file for folder in different for file in sorted(folder.glob("*.parquet"))]
    lines = _lines(run, files, id_)
    if not lines:
        places = "an evaluation or stage is one of " + ", ".join(folders) if folders else ""
        raise InputError(f"{run} has no sample, row or item {id_!r}", fix=places)
    return lines


def _member(folders: list[Path], place: str, whose: str) -> Path:
    """The file of a checkpoint or step in one of the folders. Raises InputError."""
    name = f"step-{int(place):06d}" if place.isdecimal() else place
    there = [file for folder in folders if (file := folder / f"{name}.parquet").exists()]
    if len(there) > 1:
        fix = "write " + " or ".join(file.parent.name for file in there) + " for its name"
        raise InputError(f"{whose} stands for several records of {place}", fix=fix)
    if not there:
        names = [file.stem for folder in folders for file in sorted(folder.glob("*.parquet"))]
        known = [re.sub(r"^step-0*(?=\d+$)", "", name) for name in names]
        raise InputError(f"{whose} has no {place!r}", fix=nearest(place, known))
    return there[0]


def _lines(run: RunDirectory, files: Sequence[Path], item: str) -> list[dict[str, Any]]:
    """Lines of files whose sample id ends in `item`; without any, those whose row or item it is."""
    samples, others = [], []
    bare = item.rpartition("#")[0] or item
    for file in files:
        key = ANSWER["row"] if file.is_relative_to(run.evaluations) else SAMPLE["row"]
        for line in whole_table(file, filters=[(key, "in", [item, bare])]).to_pylist():
            own = line["sample_id"].split("/", 2)[2]
            if item in (line[key], own):
                text = {"text": line.pop("output")} if "output" in line else {}
                place = {"file": str(file.relative_to(run.path))}
                read = {name: json.loads(line[name]) for name in ("parts", FACTS) if line.get(name)}
                (samples if own == item else others).append({**line, **text, **place, **read})
    return samples or others
