"""A lab whose frozen model is a script: which demonstrations help which question is known.

Question `wants N` is answered rightly after a single demonstration `asks N`, and after a pair that
ends with `asks N+1`; everything else is answered wrongly.
"""

import json
from pathlib import Path

from assay.data.row import Message, Row
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import POOL_OPTIONS, with_pools
from assay.labs.demos.rewards import accuracy
from assay.labs.demos.task import DemosTask
from assay.tasks.task import Benchmark, BenchmarkOptions, Loaded

QUESTIONS = 12
SHOWN = tuple(
    Demonstration(f"d{n}", Message("user", f"asks {n}."), "yes" if n % 2 else "no")
    for n in range(QUESTIONS)
)
SET = DemonstrationSet("helped", "Answer yes.", SHOWN)
OPTIONS = {**POOL_OPTIONS, "pool": 5, "shots": 2}


def items(count: int, options: dict) -> tuple[Row, ...]:
    queries = [
        Query(f"q{n}", Message("user", f"wants {n % QUESTIONS}. ({n})"), ("yes",))
        for n in range(count)
    ]
    return with_pools(SET, queries, options)


def benchmark(options: BenchmarkOptions) -> Benchmark:
    chosen = options.over(OPTIONS)
    return Benchmark("helped/test", items(24, chosen), accuracy, "exact 1", options=chosen)


def first_rows(options: BenchmarkOptions) -> Benchmark:
    """The planted fault: every query may pick from the first rows alone."""
    rows = items(24, OPTIONS)
    for row in rows:
        row.extra["pool"][:] = range(5)
    return Benchmark("helped/first", rows, accuracy, "exact 1", options={})


def read(name: str, options: BenchmarkOptions) -> Loaded:
    return Loaded(items(8, options.over(OPTIONS)))


class HelpedTask(DemosTask):
    name = "helped"
    benchmarks = {"helped/test": benchmark, "helped/first": first_rows}  # noqa: RUF012
    sources = {"helped": read}  # noqa: RUF012


TASK = HelpedTask()

EXPERIMENT = """\
name  = "helped"
task  = "path:helped_task.py"
seeds = [7]

[model]
policy = "selector:oracle"

[model.frozen]
source = "scripted:frozen.jsonl"

[evaluate.test]
benchmark = "helped/test"
role = "report"
checkpoints = ["base"]
"""


def make_helped_lab(root: Path) -> Path:
    """The experiment file of a new lab."""
    (root / "helped_task.py").write_text(Path(__file__).read_text(encoding="utf-8"))
    rules = []
    for n in range(QUESTIONS):
        ends = rf"\nassistant: \w+\nuser: wants {n}\."
        rules.append({"prompt": rf"yes\.\nuser: asks {n}\.{ends}", "answer": "yes"})
        after = (n + 1) % QUESTIONS
        rules.append({"prompt": rf"assistant[^Q]*user: asks {after}\.{ends}", "answer": "yes"})
    rules.append({"answer": "no"})
    lines = "".join(json.dumps(rule) + "\n" for rule in rules)
    (root / "frozen.jsonl").write_text(lines)
    file = root / "helped.toml"
    file.write_text(EXPERIMENT)
    return file


def helps(row: Row, picks: tuple[int, ...]) -> bool:
    """What the script does, said again."""
    wanted = int(row.messages[0].content.split(".")[0].removeprefix("wants "))
    if len(picks) == 1:
        return picks[0] == wanted
    return len(picks) == 2 and picks[1] == (wanted + 1) % QUESTIONS
