"""A lab of the demos task whose best selections are known: a query is of one of three kinds, and a
demonstration helps the scripted frozen model exactly where it is of the query's kind.

Also the user's task file of that lab, which is why it imports from the package alone.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from assay.data.loaded import Loaded
from assay.data.row import Message
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import with_pools
from assay.labs.demos.task import DemosTask
from assay.tasks.task import BenchmarkOptions

KINDS = 3
OPTIONS = {"sampler": "random", "pool": 6, "pool_seed": 1, "shots": 2}


def asked(number: int) -> Message:
    return Message("user", f"item {number} of kind {number % KINDS}?")


def demonstrations() -> DemonstrationSet:
    """Eighteen items; the answer of item 7 is x1."""
    shown = (Demonstration(f"item-{n}", asked(n), f"x{n % KINDS}") for n in range(18))
    return DemonstrationSet("kinds", "Name the kind.", tuple(shown))


def read_kinds(side: str, options: BenchmarkOptions) -> Loaded:
    """The first twelve items as queries, or twelve others."""
    numbers = range(12) if side == "train" else range(100, 112)
    queries = [Query(f"item-{n}", asked(n), (f"x{n % KINDS}",), f"kinds:{n}") for n in numbers]
    return Loaded(with_pools(demonstrations(), queries, options.over(OPTIONS)))


class KindsTask(DemosTask):
    """The demos task with these items."""

    name = "kinds"
    sources = {"kinds": read_kinds}  # noqa: RUF012
    benchmarks = {}  # noqa: RUF012


TASK = KindsTask()


def script() -> list[dict[str, Any]]:
    """The frozen model answers right after one demonstration of the kind, and is surer after two;
    one of kind 0 does harm to the others."""
    rules: list[dict[str, Any]] = []
    for kind in range(KINDS):
        one, asks = rf"assistant: x{kind}\n", rf"kind {kind}\?$"
        rules += [
            {"prompt": rf"(?s){one}.*{one}.*{asks}", "answered": f"x{kind}", "logps": -0.1},
            {"prompt": rf"(?s){one}.*{asks}", "answer": f"x{kind}", "logps": -0.5},
        ]
    return [*rules, {"prompt": r"assistant: x0\n", "logps": -3.0}, {"answer": "x9", "logps": -2.0}]


EXPERIMENT = """\
name  = "kinds"
about = "A model learns which demonstrations help"
model.policy = "selector:pointer"
task  = "path:kinds_task.py"
seeds = [7]

[model.frozen]
source = "scripted:frozen.jsonl"

[data.train]
source = "kinds:train"

[data.beams]
source = "selections:best"

[selections.best]
data  = "train"
kind  = "beam"
width = 3

[stage.imitate]
method = "sft"
data   = "beams"
steps  = 2
batch  = 4
optimizer = { lr = 1e-2 }

[stage.weigh]
method = "rce"
data   = "beams"
candidates = "stored"
steps  = 2
prompts = 2
optimizer = { lr = 1e-3 }

[data.others]
source = "kinds:test"

[evaluate.others]
data   = "others"
reward = "accuracy"
role   = "report"
checkpoints = ["weigh.last"]
"""


def make_kinds_lab(folder: Path, experiment: str = EXPERIMENT) -> Path:
    """Fill `folder`, which is to be the lab's root; returns the experiment file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, folder / "kinds_task.py")
    lines = [json.dumps(rule) + "\n" for rule in script()]
    (folder / "frozen.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "kinds.toml").write_text(experiment, encoding="utf-8")
    return folder / "kinds.toml"
