"""A user's file with a demos task of sixty made-up demonstrations whose help is known: those of the
query's colour.

Rewards are computed, no frozen model is asked. `WORDS` is an encoder that counts the words of a
fixed list, so that nothing is fetched.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.data.episode import Completion, Reward
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.labs.demos.demonstrations import (
    Demonstration,
    DemonstrationSet,
    Query,
    query_row,
    set_of,
)
from assay.models import embeddings
from assay.models.embeddings import Opened, TextEncoder
from assay.tasks.task import BaseTask, Benchmark, BenchmarkMaker, BenchmarkOptions, RewardFunction

COLOURS = ("red", "green", "blue")
THINGS = ("ball", "car", "house", "tree", "boat")
VOCABULARY = (*COLOURS, *THINGS, "many", "few")


def vector(text: str) -> torch.Tensor:
    """How often each word is there, and a constant for texts without any."""
    words = text.split()
    return torch.tensor([*(float(words.count(word)) for word in VOCABULARY), 0.5])


WORDS = TextEncoder(len(VOCABULARY) + 1, lambda: "words", lambda: Opened(vector))


def use_words(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Put `WORDS` in MiniLM's place, with a cache of its own."""
    patch.setitem(embeddings.ENCODERS, "minilm", WORDS)  # type: ignore[arg-type]
    patch.setenv("ASSAY_CACHE", str(folder / "cache"))
    embeddings.opened.cache_clear()


def asked(n: int, of: str = "shown") -> str:
    """The nth question, unlike every other."""
    number = "many" if n % 4 else "few"
    return f"{of} {n} {number} {COLOURS[n % 3]} {THINGS[n % 5]}"


SHOWN = DemonstrationSet(
    "colours",
    "Say the colour.",
    tuple(
        Demonstration(f"shown-{n}", Message("user", asked(n)), COLOURS[n % 3]) for n in range(60)
    ),
)


def helps(row: Row, picks: list[int]) -> float:
    """The share of the picks that have the query's colour."""
    shown = set_of(row).demonstrations
    hits = [shown[pick].answer in row.prompt[-1].content.split() for pick in picks]
    return sum(hits) / len(hits) if hits else 0.0


def row_of(n: int, split: str, shots: int = 2, size: int = 6) -> Row:
    """A query with its own pool, of which two help, and four stored selections."""
    generator = np.random.default_rng([n, len(split)])
    helpful = generator.choice(np.arange(n % 3, 60, 3), 2, replace=False)
    others = generator.choice(np.arange((n + 1) % 3, 60, 3), size - 2, replace=False)
    pool = [int(number) for number in generator.permutation([*helpful, *others])]
    query = Query(f"{split}-{n}", Message("user", asked(n, split)), (COLOURS[n % 3],))
    row = query_row(SHOWN, query, pool, shots)
    orders = [helpful, *(generator.permutation(pool) for _ in range(3))]
    stored = [[int(pick) for pick in picks[:shots]] for picks in orders]
    candidates = [{"text": json.dumps(picks), "reward": helps(row, picks)} for picks in stored]
    return replace(row, extra={**row.extra, "candidates": candidates})


def read_rows(name: str, options: BenchmarkOptions) -> Loaded:
    """The rows of `source = "colours:train"`."""
    shots = options.over({"shots": 2})["shots"]
    return Loaded(tuple(row_of(n, name, shots) for n in range(32)))


def share(row: Row, completion: Completion) -> Reward:
    """How many of the picks help."""
    picks = json.loads(completion.text)
    return Reward(helps(row, picks), {"picked": float(len(picks))})


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """Twenty queries."""
    chosen = options.over({"shots": 2})
    items = tuple(row_of(n, "test", chosen["shots"]) for n in range(40, 60))
    return Benchmark("colours/test", items, share, "share 1", options=chosen)


@dataclass(frozen=True)
class ColoursTask(BaseTask):
    """The task called "colours"."""

    name: str = "colours"
    rewards: Mapping[str, RewardFunction] = field(default_factory=lambda: {"share": share})
    benchmarks: Mapping[str, BenchmarkMaker] = field(
        default_factory=lambda: {"colours/test": benchmark}
    )
    sources: Mapping[str, Callable[..., Loaded]] = field(
        default_factory=lambda: {"colours": read_rows}
    )

    def target(self, row: Row) -> Message:
        """The stored selection that helps most."""
        best = max(row.extra["candidates"], key=lambda each: each["reward"])
        return Message("assistant", best["text"])


TASK = ColoursTask()

HEAD = """\
name  = "colours"
about = "A selector learns which demonstrations help"
model = "selector:pointer"
task  = "path:colours_task.py"
seeds = [7]

[selector]
hidden = 16

[data.train]
source = "colours:train"
split  = { dev = 0.25, by = "conversation" }
"""

STAGES = """\
[stage.imitate]
method = "sft"
data   = "train"
steps  = 4
batch  = 4
validation = "train.dev"
micro_tokens = 20
optimizer = { lr = 1e-2 }

[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
steps  = 6
prompts = 4
checkpoint_every = 2
micro_tokens = 20
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
data   = "train"
steps  = 6
prompts = 4
group  = 4
reward = "share"
kl     = { coef = 0.05 }
adapt  = { kind = "freeze", patterns = ["backbone"] }
updates = { minibatches = 2 }
checkpoint_every = 2
optimizer = { lr = 1e-2 }
"""

EVALUATIONS = """\
[evaluate.dev]
data   = "train.dev"
reward = "share"
role   = "select"
checkpoints = ["rl.all"]

[evaluate.test]
benchmark = "colours/test"
role   = "report"
checkpoints = ["base", "imitate.last", "weigh.last", "rl.best", "rl.last"]
"""

UNTRAINED = """\
[evaluate.test]
benchmark = "colours/test"
role   = "report"
checkpoints = ["base"]
"""


def make_colours_lab(folder: Path, *parts: str) -> Path:
    """Fill `folder`, which is to be the lab's root; returns the experiment file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, folder / "colours_task.py")
    text = "\n".join(parts or (HEAD, STAGES, EVALUATIONS))
    (folder / "colours.toml").write_text(text, encoding="utf-8")
    return folder / "colours.toml"
