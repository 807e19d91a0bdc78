"""The neutral form of results that another tool wrote, and what its readers share: one way from the
lines of a file to results, the reading of files, and the settings that logs hold.

A reader gives one `Result` for each run, benchmark and metric of a file. A value may be NaN, which
is no score, in JSON as in parquet; members of a zip are read into memory within limits and never
written, so their names cannot leave a folder. The arguments of a model are taken apart: which model
it is, how it computes and answers, and how it is reached; values that mean the same in two logs are
made equal. Comparing and judging results is done in `compare` and `judge`.
"""

import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from assay.data.files import sha256_text
from assay.data.json_files import begins_array, jsonl_lines, load_json, read_array
from assay.data.loaded import ABSENT, JSON_NAMES, DataError, Record, sound
from assay.data.parquet import MOST_ENTRIES, UnpackBudget
from assay.errors import Finding, nearest

CLUSTER = "cluster"
"""Where a file names the source of an item, unless another key is asked for."""
ROUNDING = 1e-6
"""How far the order in which a tool adds may move a mean."""
SCORE = "score"
"""The metric that is meant where a file has several and none is named."""


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """One answer to one item."""

    item: str
    repeat: int
    score: float | None
    """None where the tool has no score: it abstained, or the answer failed."""
    output: str | None = None
    """What the model wrote, where the file has it."""
    error: str = ""
    """What went wrong according to the tool; the tool may have given a score all the same."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A place where a file says of its own rows what they do not."""

    file: str
    field: str
    stated: Any
    counted: Any
    """What the rows say."""


@dataclass(frozen=True)
class Result:
    """One run on one benchmark by one metric. An empty text means that the file does not say."""

    run: str
    file: str
    format: str
    metric: str = ""
    answers: tuple[ForeignAnswer, ...] = ()
    benchmark: str = ""
    checker: str = ""
    """What gave the scores: a tool and its scorer."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the file carries of the run's settings, in the parts of a manifest."""
    configured: bool = False
    """Whether `settings` hold the configuration of the tool, so that fairness can be checked."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of the question by item, so that one id cannot stand for two questions."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The source that an item came from, by item; items of one source are not independent."""
    left_out: tuple[str, ...] = ()
    """What the file holds, or was made to hold, as well and has no scores of, by name."""
    unfinished: str = ""
    """Why this is not the whole run, where the file says so."""
    higher_is_better: bool | None = None
    """Of the metric, by the tool's own words; None where it says nothing."""
    contradictions: tuple[Contradiction, ...] = ()
    """Everything in which what the tool wrote about this run does not follow from its rows."""
    reads_answers: bool = True
    """Whether equal answers to an item have equal scores. False where the file says that a model
    judged them, or something other than the answer was looked at."""
    remarks: tuple[Finding, ...] = ()
    """What was found in reading the rows."""


def number(record: Record, name: str, value: Any) -> float | None:
    """A score: a finite number, true or false; None for null and NaN.

    Raises DataError for anything else, and for a field that the record does not have.
    """
    if value is ABSENT:
        raise record.error(name, "missing", nearest(name, record.value))
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, int | float):
        kind = JSON_NAMES.get(type(value), type(value).__name__)
        raise record.error(name, f"is {kind}, not a number", "a score is a number, or empty")
    if math.isinf(value):
        raise record.error(name, f"is {value}, not a finite number")
    return float(value)


def as_number(value: Any, words: Mapping[str, float]) -> Any:
    """A text as the number that it is, or that it stands for by `words`; all else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return float(words.get(value, words.get(value.lower(), value)))
    except ValueError:
        return value


def is_score(value: Any) -> bool:
    """Whether `number` takes the value."""
    return value is None or (isinstance(value, int | float) and not math.isinf(value))


def differ(stated: Any, counted: float) -> bool:
    """Whether a summary is a number, and another one than the rows make; NaN is no number."""
    known = isinstance(stated, int | float) and math.isfinite(stated) and not math.isnan(counted)
    return known and not math.isclose(stated, counted, rel_tol=ROUNDING, abs_tol=ROUNDING)


def refuse_double(seen: dict[Any, int], record: Record, field: str, fix: str, *key: Any) -> None:
    """Note the line of an answer. Raises DataError where an earlier line holds it too."""
    if seen.setdefault(key, record.line) != record.line:
        raise record.error(field, f"{key[0]!r} is also the item of line {seen[key]}", fix)


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One answer to an item, as a record of a file has it, before its scores are read."""

    record: Record
    item: str
    scores: Mapping[str, Any]
    """By metric, as the file has them."""
    repeat: int = 0
    output: str | None = None
    error: str = ""
    table: Mapping[str, Any] | None = None
    """Where the source of the item may be named."""
    question: str = ""
    """The fingerprint of what was asked, where the file has it."""


def results_of(
    run: Result,
    lines: Sequence[RecordLine],
    metrics: Iterable[str],
    cluster: str | None,
    field: str,
    fix: str,
) -> list[Result]:
    """The results of a run, one for each metric, whose name the checker's gets.

    `field` holds the item. Raises DataError where a line repeats the answer of an earlier one, for
    a score that is no number, and what `sources` raises.
    """
    seen: dict[Any, int] = {}
    for line in lines:
        refuse_double(seen, line.record, field, fix, line.item, line.repeat)
    clusters = sources(lines, cluster)
    questions = {line.item: line.question for line in lines if line.question}
    results = []
    for metric in metrics:
        scores = (number(line.record, metric, line.scores.get(metric)) for line in lines)
        answers = tuple(
            ForeignAnswer(line.item, line.repeat, score, line.output, line.error)
            for line, score in zip(lines, scores, strict=True)
        )
        checker = run.checker and f"{run.checker} {metric}"
        made = replace(run, metric=metric, checker=checker, answers=answers)
        results.append(replace(made, questions=questions, clusters=clusters))
    return results


def sources(lines: Iterable[RecordLine], key: str | None) -> dict[str, str]:
    """The source of each item, under the key of the lines' tables.

    Raises DataError where an item has two, where a record names none that was asked for, or one
    does and another does not, and where it is no text or number.
    """
    source_of: dict[str, str] = {}
    named = None if key is None else True
    key = key or CLUSTER
    for line in lines:
        table, item = line.table or {}, line.item
        value = table.get(key)
        named = value is not None if named is None else named
        if value is None and not named:
            continue
        if not isinstance(value, str | int | float) or not named:
            problem = f"is no source of item {item!r}, or other records name none"
            raise line.record.error(key, problem, nearest(key, table))
        if (known := source_of.setdefault(item, str(value))) != str(value):
            problem = f"item {item!r} is in {known!r} and in {str(value)!r}"
            raise line.record.error(key, problem, "an item has one source")
    return source_of


def load_bytes(content: bytes, file: Path, field: str | None = None) -> Any:
    """The JSON value of a text, with NaN and Infinity as floats. Raises DataError."""
    line, fix = None, None
    try:
        return load_json(content.decode("utf-8-sig"), constants=True)
    except UnicodeDecodeError as error:
        problem, fix = (
            f"byte {error.start + 1} is not UTF-8",
            None if field else "save the file as UTF-8",
        )
    except ValueError as error:
        line = None if field else getattr(error, "lineno", None)
        problem = f"malformed JSON: {getattr(error, 'msg', error)}"
    raise DataError(problem, file=file, line=line, field=field, fix=fix)


def read_document(path: Path) -> dict[str, Any] | None:
    """The one object of a JSON file; None for an array, and for objects one a line. Raises
    DataError."""
    if path.suffix == ".jsonl" or begins_array(path):
        return None
    try:
        value = load_bytes(path.read_bytes(), path)
    except DataError as error:
        if error.problem.endswith("Extra data"):
            return None
        raise
    return value if isinstance(value, dict) else None


def read_objects(path: Path) -> Iterator[Record]:
    """The objects of JSON lines or of one JSON array, with NaN and Infinity as floats.

    Raises DataError for a missing file and the first bad object.
    """
    return sound((read_array if begins_array(path) else jsonl_lines)(path, constants="floats"))


def fingerprint(value: Any) -> str:
    """The sha256 of a question, equal for equal values; NaN is a value like any other."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256_text(text)


PIECE = 1 << 20
ZSTANDARD = 93
"""The number of the method in the zip format (APPNOTE 4.4.5)."""
TORN = (zlib.error, struct.error, pa.ArrowException, EOFError)
"""What unpacking raises where bytes are missing or changed."""
LOCAL_HEADER = struct.Struct("<26x2H")
"""The header before the bytes of a member: 26 bytes, then the lengths of its name and extras."""


def read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The members whose name is wanted, in the order of the archive.

    Raises DataError for a damaged archive, for a compression or an encryption that cannot be read,
    and, before anything is unpacked, for more members or bytes than `parquet.UnpackBudget` allows.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            members = [member for member in archive.infolist() if wanted(member.filename)]
            if len(members) > MOST_ENTRIES:
                problem = f"holds {len(members)} members, more than {MOST_ENTRIES}"
                raise DataError(problem, file=path)
            budget = UnpackBudget(path)
            for member in members:
                budget.spend(member.file_size)
            return {m.filename: _read(archive, stream, m) for m in members}
    except (zipfile.BadZipFile, RuntimeError, OSError, *TORN) as error:
        problem = " ".join(str(error).split())
        raise DataError(f"is a damaged zip: {problem}", file=path) from error


def _read(archive: zipfile.ZipFile, stream: BinaryIO, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(member) as unpacked:
            # Read at once, a member is unpacked whole whatever size it claims.
            return b"".join(iter(lambda: unpacked.read(PIECE), b""))
    if member.compress_type != ZSTANDARD:
        raise NotImplementedError(f"compression {member.compress_type} is not read")
    stream.seek(member.header_offset)
    name, extra = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))
    stream.seek(name + extra, 1)
    packed = stream.read(member.compress_size)
    content = pa.decompress(packed, member.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {member.filename}")
    return content


IDENTITY = frozenset(
    {
        *("pretrained", "peft", "revision", "delta", "subfolder", "gguf_file", "lora_local_path"),
        *("model", "model_path", "model_name", "path"),
    }
)
"""Arguments that say which model it is."""
ADAPTERS = frozenset({"peft", "lora_local_path"})
"""Those of them whose files hold no weights of the model itself."""
QUANTISED = re.compile(
    r"""(?<![a-z0-9])(
        i?q[1-8][a-z0-9_]* | tq[12]_0 | gguf | ggml | [48]da[48]w
        | (?:mx|nv)?(?:fp|f|nf|u?int|float)[2-8] (?:wo|dq|w?a\d+|_?e[2-5]m[0-3][a-z]*)?
        | w[2-8]a(?:\d+|fp8|int8)(?:kv\d+)? | [1-8](?:[._]\d+)?[-_]?(?:bits?|bpw)
        | e[45]m[23][a-z]* | bnb | bitsandbytes | awq | gptq(?:model)? | auto[-_]?(?:round|awq|gptq)
        | exl[23] | hqq | aqlm | vptq | quip | spqr | eetq | ptq | quanto | torchao | marlin | dwq
        | compressed[-_]tensors | (?:omni|smooth)quant | quanti[sz]ed | ternary
    )(?![a-z0-9])""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words of a model's name that say in which numbers of few bits its weights are stored."""
QUARTER = re.compile(r"20\d\d[-_ ]?q[1-4]|q[1-4][-_ ]?20\d\d", re.IGNORECASE)
"""A date that looks like one of them."""
TRANSPORT = frozenset(
    {
        *("batch_size", "max_batch_size", "parallelize", "device_map", "device_map_option"),
        *("max_memory_per_gpu", "max_cpu_memory", "offload_folder", "cache_dir", "download_dir"),
        *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "tp_plan"),
        *("gpu_memory_utilization", "swap_space", "base_url", "port", "num_concurrent"),
        *("max_retries", "timeout", "verify_certificate", "ca_cert_path", "logits_cache"),
    }
)
"""Arguments that say where a model is and how it is reached, not what it answers."""
OFF = frozenset(
    {
        *("load_in_4bit", "load_in_8bit", "autogptq", "gptqmodel", "trust_remote_code"),
        *("truncation", "truncate", "parallelize"),
    }
)
"""Arguments for which false says no more than their absence."""
BY_ITSELF = frozenset({"dtype", "kv_cache_dtype", "quantization", "load_format"})
"""Arguments for which "auto" says no more than that."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object lay in memory; written into logs for functions, and another in every run."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class ModelArguments:
    """The arguments that a model was loaded with, by what they say."""

    identity: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Whatever may change an answer, among it every argument that is not known."""
    transport: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    """The kind of device without its number, `cuda` for instance."""


def model_arguments(options: Any, *names: Any) -> ModelArguments:
    """The arguments of a model, a table or text such as `pretrained=NAME,dtype=bfloat16`.

    How the weights are quantised by the model's names, those in the arguments and `names`, counts
    as an argument: it is none of what tells two models apart.
    """
    own = {
        name: value
        for name, value in arguments(options).items()
        # What says no more than the argument's absence is left out.
        if value is not None
        and (name, value) != ("revision", "main")
        and not (value == "auto" and name in BY_ITSELF)
        and not (value is False and name in OFF)
    }
    device = own.pop("device", None)
    named = own.get("pretrained") or own.get("model_path") or own.get("model")
    if own.get("tokenizer", named) == named:
        own.pop("tokenizer", None)
    called = [*names, *(v for k, v in own.items() if k in IDENTITY - ADAPTERS)]
    quantised = {"quantisation": form} if (form := quantisation(*called)) else {}
    return ModelArguments(
        {k: v for k, v in own.items() if k in IDENTITY},
        {k: v for k, v in own.items() if k not in IDENTITY | TRANSPORT} | quantised,
        {k: v for k, v in own.items() if k in TRANSPORT},
        kind_of_device(device),
    )


def quantisation(*names: Any) -> str:
    """The words by which names of a model say how it is quantised, in order; "" for none."""
    text = " ".join(QUARTER.sub(" ", str(name)) for name in names if name is not None)
    words = {re.sub("[-_]", "", match[0].lower()) for match in QUANTISED.finditer(text)}
    return " ".join(sorted(words))


def kind_of_device(device: Any) -> str | None:
    """`cuda` for `cuda:1`."""
    return None if device is None else str(device).partition(":")[0]


def arguments(options: Any) -> dict[str, Any]:
    """A table as it is, or the one that a text `NAME=VALUE,NAME=VALUE` stands for."""
    if isinstance(options, Mapping):
        return {str(name): comparable(value) for name, value in options.items()}
    pairs = (part.partition("=") for part in str(options or "").split(",") if part.strip())
    return {name.strip(): _parsed(value.strip()) for name, _, value in pairs}


def _parsed(text: str) -> Any:
    """A value of an argument, as the tools themselves take it."""
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    if not NUMBER.fullmatch(text):
        return comparable(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def comparable(value: Any) -> Any:
    """The value without addresses in memory, and with the short names of torch's types."""
    if isinstance(value, str):
        return ADDRESS.sub("", value).removeprefix("torch.")
    if isinstance(value, Mapping):
        return {key: comparable(each) for key, each in value.items()}
    return [comparable(each) for each in value] if isinstance(value, list | tuple) else value
