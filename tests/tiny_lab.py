"""A whole lab of the smallest kind: random byte-level model, sums to do, an experiment file.

Every part of a run happens in it within seconds: SFT with several checkpoints of which dev rows
choose one, GRPO whose groups carry signal, a greedy and a repeated sampled report.
"""

import json
from pathlib import Path

from tests.models.folders import tiny_model, tiny_tokenizer

EXPERIMENT = """\
name  = "tiny"
about = "A random model learns sums"
model = "path:model"
task  = "math"
seeds = [7]

[data.sums]
source = "path:sums.jsonl"
format = "messages"
split  = {{ dev = 0.25, by = "conversation" }}

[stage.sft]
method = "sft"
data   = "sums"
steps  = 40
batch  = 4
checkpoint_every = 8
optimizer = {{ lr = 1e-2 }}

[stage.rl]
method = "grpo"
data   = "sums"
steps  = 4
prompts  = 2
group    = 4
sampling = {{ temperature = 1.0, max_tokens = 12 }}
reward   = {{ accuracy = 1.0, cosine = 0.5 }}
optimizer = {{ lr = 1e-3 }}
checkpoint_every = 2

[evaluate.dev]
data   = "sums.dev"
reward = "accuracy"
role   = "select"
checkpoints = ["sft.all"]
sampling = {{ max_tokens = 12 }}

[evaluate.test]
benchmark = "math/gsm8k"
options = {{ path = {path}, format = "messages" }}
role   = "report"
checkpoints = ["base", "sft.best", "rl.last"]
sampling = {{ max_tokens = 12 }}

[evaluate.sampled]
benchmark = "math/gsm8k"
options = {{ path = {path}, format = "messages" }}
role   = "report"
take   = {{ rows = 4, how = "first" }}
repeats  = 2
checkpoints = ["base", "rl.last"]
sampling = {{ temperature = 1.0, max_tokens = 12 }}
"""


def make_tiny_lab(folder: Path) -> Path:
    """Fill `folder`, which is to be the lab's root; returns the experiment file in it."""
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    sums = [(a, b) for a in range(1, 7) for b in range(1, 5)]
    write_rows(folder / "sums.jsonl", [pair for i, pair in enumerate(sums) if i % 3])
    write_rows(folder / "test.jsonl", sums[::3])
    file = folder / "tiny.toml"
    file.write_text(EXPERIMENT.format(path=json.dumps(str(folder / "test.jsonl"))))
    return file


def make_stages_lab(folder: Path, stages: str) -> Path:
    """The same with `stages` for its own, and without evaluations."""
    file = make_tiny_lab(folder)
    file.write_text(file.read_text().partition("[stage.sft]")[0] + stages)
    return file


def write_rows(file: Path, sums: list[tuple[int, int]]) -> None:
    """One sum a line in OpenAI's messages format, with its gold answer."""
    lines = [
        {
            "id": f"{a}+{b}",
            "messages": [
                {"role": "user", "content": f"{a} + {b} = ?"},
                {"role": "assistant", "content": f"\\boxed{{{a + b}}}"},
            ],
            "gold": str(a + b),
        }
        for a, b in sums
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
