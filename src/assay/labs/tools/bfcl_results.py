"""A run's answers on BFCL as `bfcl evaluate` reads them, which then makes its own tables of them.

Files are `FOLDER/CHECKPOINT/MODEL/GROUP/BFCL_v4_CATEGORY_result.json`. MODEL names the handler that
reads Hermes calls as the parser "bfcl" does. BFCL takes one answer to an entry: the first.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_text
from assay.errors import InputError
from assay.labs.tools.multi_turn import MULTI_TURN, spoken
from assay.labs.tools.parsing import answer_of
from assay.labs.tools.single_turn import ENTRIES
from assay.runs.records import stored_messages

PREFIX = "bfcl/"
MODEL = "Qwen/Qwen3-0.6B-FC"
Reported = tuple[str, str, str, Sequence[Mapping[str, Any]]]
"""Benchmark, evaluation, checkpoint and its answers, as `runs.history` gives them."""


def is_category(benchmark: str) -> bool:
    """Whether a benchmark is a category of BFCL."""
    return benchmark.startswith(PREFIX) and benchmark.removeprefix(PREFIX) in ENTRIES


def write_results(run: str, reported: Iterable[Reported], folder: Path) -> Iterator[Path]:
    """Writes a file for each checkpoint and category.

    Raises InputError without any answer, and where two evaluations are of one category.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file", file=folder, field="--bfcl", fix="name a folder")
    names: dict[str, str] = {}
    for benchmark, evaluation, checkpoint, lines in reported:
        category = benchmark.removeprefix(PREFIX)
        if names.setdefault(category, evaluation) != evaluation:
            problem = f"{run} measured {benchmark} as {names[category]} and as {evaluation}"
            raise InputError(problem, fix="BFCL reads one evaluation of each category")
        several = category in MULTI_TURN
        group = "multi_turn" if several else "live" if "live_" in category else "non_live"
        file = folder / checkpoint / MODEL.replace("/", "_") / group
        file.mkdir(parents=True, exist_ok=True)
        file /= f"BFCL_v4_{category}_result.json"
        answers = [
            {"id": line["item_id"], "result": turns_of(line) if several else shown(line["output"])}
            for line in lines
            if line["repeat"] == 0
        ]
        atomic_write_text(file, "".join(json.dumps(each) + "\n" for each in answers))
        yield file
    if not names:
        raise InputError(f"{run} was measured on no category of BFCL", fix='role = "report"')


def turns_of(line: Mapping[str, Any]) -> list[list[str]]:
    """What the model answered in each turn of a dialogue, step by step."""
    return [[shown(text) for text in turn] for turn in spoken(stored_messages(line["messages"]))]


def shown(text: str) -> str:
    """An answer after its last thought, as BFCL's handler keeps it."""
    return answer_of(text).lstrip("\n")
