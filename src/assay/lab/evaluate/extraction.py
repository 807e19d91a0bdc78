"""Asks a model to extract the record of a report, and keeps values found in the lines it cites.

`openai:NAME` is asked at its endpoint, `hf:`, `path:`, `pypi:` and `run:` in this process;
`scripted:FILE` reads the answer from a file. The record is written beside the report. Nothing is
judged here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_text
from assay.data.reported.instructions import Refused, cited, request
from assay.data.reported.read_reported import read_toml, report_text, results, toml_values
from assay.data.reported.reported_errors import ReportedError
from assay.errors import InputError, RunFailure
from assay.experiment.toml_write import inline, inline_key
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint.client import Unanswered
from assay.rollout.engines.register import TEXT_ENGINES

MOST_TOKENS = 16384
"""Of an answer."""
GREEDY = Sampling(temperature=0.0, max_tokens=MOST_TOKENS)
FENCE = re.compile(r"```(?:toml)?[ \t]*\n(.*?)(?:\n```|\Z)", re.S)
ENDING = ".record.toml"


@dataclass(frozen=True, slots=True)
class Extracted:
    """A record that a model extracted, after the check of its numbers."""

    file: Path
    """Where the record was written."""
    refused: tuple[Refused, ...]
    """Values that were removed because the cited line does not contain them."""


def extract(root: Path, report: Path, model: str) -> Extracted:
    """Write the record of a report as a model reads it to `REPORT.record.toml`.

    Raises ReportedError for a report that cannot be read, InputError, RunFailure for an answer that
    is no valid record, and what asking the model raises.
    """
    text = report_text(report)
    file = report.with_name(report.name + ENDING)
    if file.exists():
        raise InputError("exists already", file=file, fix="move it away, or audit it as it is")
    values, refused = cited(answered(model, ask(root, model, text)), text)
    record = f"# What {model} read in {report.name}, each number held against its line.\n"
    record += record_toml(values)
    try:
        found = results(read_toml(record, file))
    except ReportedError as error:
        raise _no_record(model, error) from None
    if not found:
        problem = f"the answer of {model} has no results that stand in their lines"
        raise RunFailure(f"{problem}: {len(refused)} refused")
    atomic_write_text(file, record)
    return Extracted(file, tuple(refused))


def ask(root: Path, model: str, text: str) -> str:
    """The model's answer. Raises RunFailure, InputError and what loading a model raises."""
    return ASKED.get(model.partition(":")[0], _sampled)(root, model, text)


def _scripted(root: Path, model: str, text: str) -> str:
    """The answer in a file, in place of a model's."""
    return report_text(Path(model.partition(":")[2]))


def _remote(root: Path, model: str, text: str) -> str:
    """The answer of a model behind an endpoint."""
    try:
        return TEXT_ENGINES["endpoint"](model, None).say(request(text), (), GREEDY).text
    except Unanswered as error:
        raise RunFailure(f"{model} does not answer: {error}") from None


def _sampled(root: Path, model: str, text: str) -> str:
    """The answer of a model in this process."""
    # Loading torch's models takes seconds, and neither scripts nor endpoints need them.
    from assay.lab.evaluate.opened_model import opened
    from assay.rollout.engines.cpu.batcher import Batcher, Job

    with opened(root, model, "auto") as served:
        context = served.renderer.prompt(request(text))
        room = served.context_tokens - len(context)
        if room < 1:
            problem = f"{len(context)} tokens of the report do not fit into {model}"
            raise RunFailure(f"{problem} ({served.context_tokens} tokens)")
        sampling = Sampling(temperature=0.0, max_tokens=min(room, MOST_TOKENS))
        batcher = Batcher(served.decoder, served.end_tokens)
        job = Job(tuple(context), SampleKey(0, "record", 0), sampling)
        batcher.submit(job)
        try:
            turn = job.done.result()
        finally:
            batcher.close()
        kept = [token for token in turn.actions if token not in served.end_tokens]
        return served.tokenizer.decode(kept, skip_special_tokens=True)


ASKED: Mapping[str, Callable[[Path, str, str], str]] = {"scripted": _scripted, "openai": _remote}
"""Function that answers, by kind of model; other kinds are loaded in this process."""


def answered(model: str, answer: str) -> Mapping[str, Any]:
    """The values of an answer's TOML, in a fence or bare. Raises RunFailure."""
    thought = answer.rpartition("</think>")[2]
    fenced = FENCE.search(thought)
    try:
        return toml_values(fenced[1] if fenced else thought, Path("answer"))
    except ReportedError as error:
        raise _no_record(model, error) from None


def _no_record(model: str, error: ReportedError) -> RunFailure:
    place = f" at {error.field}" if error.field else ""
    problem = " ".join(str(error.problem).split())[:200]
    return RunFailure(f"the answer of {model} is no valid record{place}: {problem}")


def record_toml(values: Mapping[str, Any]) -> str:
    """A record as TOML: plain values, then one table for each entry of a list of tables."""
    lines = [
        f"{inline_key(name)} = {inline(value)}"
        for name, value in values.items()
        if not _tables(value)
    ]
    for name, value in values.items():
        key = inline_key(name)
        for table in _tables(value):
            lines += ["", f"[{key}]" if isinstance(value, Mapping) else f"[[{key}]]"]
            lines += [f"{inline_key(field)} = {inline(item)}" for field, item in table.items()]
    return "\n".join(lines) + "\n"


def _tables(value: Any) -> list[Mapping[str, Any]]:
    """The tables that a value is made of; none of a plain value."""
    if isinstance(value, Mapping):
        return [value]
    whole = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
    return list(value) if whole else []
