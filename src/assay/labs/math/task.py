r"""The math skill: answer a question step by step and put the final answer in `\boxed{}`.

Rows are read in `data.formats.problem_rows`, judged in `rewards`. Benchmarks bring no questions:
the option `path` names a file, relative to the lab's root, or `hf` a data set of the Hugging Face
hub with `config`, `split` and `revision`, which need not be said of the one where the benchmark is
usually found. `format` and `columns` tell how other files differ, and `source` keeps the items of
one benchmark of a union.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from assay.data.formats.formats import FileLayout, all_rows, items_of, iter_rows
from assay.data.hub_rows import HubSet, hub_records
from assay.data.loaded import DataError
from assay.data.row import Message, Row
from assay.errors import InputError, nearest
from assay.labs.math.rewards import (
    REWARD_MAXIMUM,
    REWARDS,
    RULES,
    accuracy,
    gold_answer,
    olympiad_accuracy,
)
from assay.tasks.task import (
    BaseTask,
    Benchmark,
    BenchmarkMaker,
    BenchmarkOptions,
    RewardFunction,
    moved,
)

ASDIV = "experiments/math/asdiv.py"
RULED = f"math rules {RULES}"


@dataclass(frozen=True, slots=True)
class Published:
    """How the questions of a benchmark are laid out, where they are usually found, who judges."""

    format: str
    hub: HubSet | None = None
    judge: RewardFunction = accuracy
    checker: str = RULED


PUBLISHED: Mapping[str, Published] = {
    "math/gsm8k": Published("gsm8k", HubSet("openai/gsm8k", "main", "test")),
    "math/math500": Published("math", HubSet("HuggingFaceH4/MATH-500", split="test")),
    "math/amc23": Published("math", HubSet("math-ai/amc23", split="test")),
    "math/olympiadbench": Published(
        "olympiadbench",
        HubSet("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
        olympiad_accuracy,
        f"OlympiadBench's rules, {RULED}",
    ),
    "math/union": Published("math_union"),
}

HUB = ("config", "split", "revision")
DEFAULTS: Mapping[str, Any] = {"columns": {}, **dict.fromkeys(("path", "hf", *HUB, "source"), "")}


def published(name: str, options: BenchmarkOptions) -> Benchmark:
    """The benchmark `name` on the questions that the options name.

    Raises InputError for an unknown option, InputError without `path` and `hf`, with both, or
    with a `source` that no item has, and what reading files and the hub raises.
    """
    usual = PUBLISHED[name]
    chosen = options.over({**DEFAULTS, "format": usual.format})
    if bool(chosen["path"]) == bool(chosen["hf"]):
        problem = f"{name} has {'both path and hf' if chosen['hf'] else 'neither path nor hf'}"
        fix = 'options = { path = "FILE" }, counted from the lab\'s root'
        if usual.hub is not None:
            fix += f', or options = {{ hf = "{usual.hub.name}" }}'
        raise InputError(problem, field="options", fix=fix)
    read = _of_file if chosen["path"] else _of_hub
    return Benchmark(
        name=name,
        items=_of_source(read(usual, chosen, options.root), chosen["source"]),
        score=usual.judge,
        checker=checked_by(usual.checker),
        # What is not said leaves no trace, so that older records keep their name.
        options={option: value for option, value in chosen.items() if value},
    )


def checked_by(rules: str) -> str:
    """A checker with the version of what it builds on, for fingerprints; without it items can be
    read and none judged."""
    try:
        return f"{rules} over math-verify {version('math-verify')}"
    except PackageNotFoundError:
        return f"{rules} over math-verify, which is not installed"


def _of_file(usual: Published, chosen: Mapping[str, Any], root: Path) -> Iterator[Row]:
    for key in HUB:
        if chosen[key]:
            raise InputError("a file has none", field=f"options.{key}", fix="remove it")
    return iter_rows(root / chosen["path"], chosen["format"], FileLayout(columns=chosen["columns"]))


def _of_hub(usual: Published, chosen: Mapping[str, Any], root: Path) -> Iterator[Row]:
    known = usual.hub if usual.hub and usual.hub.name == chosen["hf"] else HubSet(chosen["hf"])
    wanted = replace(known, **{key: chosen[key] for key in HUB if chosen[key]})
    try:
        records = list(hub_records(wanted, root))
    except DataError:
        raise
    except InputError as error:
        field = (error.field or "hub.hf").replace("hub.", "options.")
        fix = (error.fix or "").replace("hub.", "options.")
        raise InputError(error.problem, field=field, fix=fix) from error
    layout = FileLayout(columns=chosen["columns"])
    return all_rows(items_of(records, chosen["format"], layout, f"hf:{wanted.name}", 0.0))


def _of_source(rows: Iterable[Row], source: str) -> tuple[Row, ...]:
    """The rows whose `source` is this; all where it is "". Raises InputError where none is."""
    items = tuple(rows)
    kept = tuple(row for row in items if source in ("", row.extra.get("source")))
    if not kept:
        known = {str(row.extra["source"]) for row in items if "source" in row.extra}
        problem = f"no item has the source {source!r}"
        raise InputError(problem, field="options.source", fix=nearest(source, known))
    return kept


BENCHMARKS: Mapping[str, BenchmarkMaker] = {
    **{name: partial(published, name) for name in PUBLISHED},
    "math/asdiv": moved(ASDIV),
}


INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
"""Qwen2.5-Math's wording."""

CALCULATOR = re.compile(r"<<[^<>]*>>")
"""GSM8K's annotations for a calculator, which no completion can use."""


class MathTask(BaseTask):
    """The task called "math"."""

    name = "math"
    rewards = REWARDS
    moved_rewards = {"reasoning_accuracy": "math.accuracy"}  # noqa: RUF012
    reward_maximum = REWARD_MAXIMUM
    benchmarks = BENCHMARKS
    sources = {"asdiv": moved(ASDIV)}  # noqa: RUF012

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The question under a system message with `INSTRUCTION`, before the row's own if any."""
        first, *rest = row.prompt
        if first.role != "system":
            return (Message("system", INSTRUCTION), first, *rest)
        return (Message("system", f"{INSTRUCTION}\n\n{first.content}"), *rest)

    def target(self, row: Row) -> Message:
        """The gold steps, without calculator annotations, and the gold answer in a box.

        A row that has neither gold nor final answer is trained on as it stands. Raises
        InputError for one that does not even end with an assistant message.
        """
        gold = gold_answer(row)
        last = row.messages[-1]
        answer = last.content if last.role == "assistant" else ""
        if not gold and not answer.strip():
            raise InputError(f"row {row.id} has no gold answer", file=row.origin or None)
        steps = CALCULATOR.sub("", answer.rpartition("####")[0] or answer).strip()
        if steps == gold:
            steps = ""
        if gold and rf"\boxed{{{gold}}}" not in steps:
            steps = f"{steps}\nThe final answer is \\boxed{{{gold}}}.".strip()
        return Message("assistant", steps, reasoning=last.reasoning)


TASK = MathTask()
