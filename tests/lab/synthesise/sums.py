"""A lab whose teacher makes sums of sums, scripted or behind an endpoint."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.lab.monitor.observer import Silent
from assay.lab.synthesise.made_set import MadeSet
from tests.from_files import generate_tables
from tests.models.folders import save_tiny_model

FILE = """\
name = "sums"
task = "math"
seeds = [7]
[model]
policy = "path:model"
[model.teacher]
TEACHER
sampling = { temperature = 1.0, max_tokens = 200 }
[data.seeds]
source = "path:seeds.jsonl"
format = "math"
[synthesise.more]
data = "seeds"
prompt = "Another one like {question}, number {number}"
format = "math"
reward = "accuracy"
TABLE
"""
PRICE = "price = { prompt = 10.0, completion = 10.0 }"
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal")


def made(number: int, answer: str = "", question: str = "") -> str:
    """What a teacher writes: a sum that no other number has, with its answer."""
    asked = question or f"{NAMES[number % 8]} has {number} and finds {number + 1}. How many?"
    said = answer or str(2 * number + 1)
    value = {"problem": asked, "solution": f"They are \\boxed{{{said}}}.", "answer": said}
    return json.dumps(value)


def make_sums(
    folder: Path,
    table: str,
    rules: Sequence[Mapping[str, Any]] = (),
    url: str = "",
    seeds: int = 4,
    more: str = "",
    model: str = PRICE,
) -> Path:
    """The experiment file in a folder with seeds and a teacher's script, or the endpoint's URL."""
    if not (folder / "model").exists():
        save_tiny_model(folder / "model")
    lines = [{"id": f"s{n}", "problem": f"Seed {n}?", "answer": str(n)} for n in range(seeds)]
    (folder / "seeds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    source = 'source = "scripted:teacher.jsonl"\n'
    if url:
        source = f'source = "openai:m"\nendpoint = "{url}"\n'
    (folder / "teacher.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rules))
    file = folder / "make.toml"
    file.write_text(FILE.replace("TEACHER", source + model).replace("TABLE", table) + more)
    return file


def synthesise(file: Path, *overrides: str) -> MadeSet:
    """The only table of the file, made."""
    given = (file, overrides, file.parent, None, Silent())
    (found,) = generate_tables(*given, "synthesise")
    return found


def number_in(text: str) -> int:
    """The number of the seed and of the sample that a prompt of FILE asks for, as one."""
    found = re.search(r"Seed (\d+)\?, number (\d+)", text)
    assert found
    return 100 * int(found[1]) + int(found[2])


def calls_of(file: Path) -> Counter[str]:
    """The calls in the ledger by status."""
    with sqlite3.connect(file.parent / "synthesised/sums/more/costs.sqlite") as store:
        return Counter(status for (status,) in store.execute("SELECT status FROM calls"))


def asks(found: MadeSet) -> list[tuple[str, str]]:
    """The rows of a set by id and question."""
    return [(row.id, row.messages[0].content) for row in found.rows]
