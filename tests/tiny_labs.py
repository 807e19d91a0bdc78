"""The one builder of labs for tests: a random byte-level model, rows, an experiment file.

Without arguments it is the tiny lab, in which every part of a run happens within seconds: SFT with
several checkpoints of which dev rows choose one, GRPO whose groups carry signal, a greedy and a
repeated sampled report. Nothing is run here.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from transformers import PreTrainedModel

from assay.experiment.checkpoint_reference import CheckpointReference, parse_checkpoint
from assay.lab.models.language_learner import language_model
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from tests.models.folders import save_tiny_model

Sum = tuple[int, int]

SUMS = [(a, b) for a in range(1, 7) for b in range(1, 5)]
ROWS = {"sums.jsonl": [pair for i, pair in enumerate(SUMS) if i % 3], "test.jsonl": SUMS[::3]}
EXPERIMENT = """\
name  = "tiny"
about = "A random model learns sums"
model = "path:model"
task  = "math"
seeds = [7]

[data.sums]
source = "path:sums.jsonl"
format = "messages"
split  = { dev = 0.25, by = "conversation" }

[stage.sft]
method = "sft"
data   = "sums"
steps  = 40
batch  = 4
checkpoint_every = 8
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
data   = "sums"
steps  = 4
prompts  = 2
group    = 4
sampling = { temperature = 1.0, max_tokens = 12 }
reward   = { accuracy = 1.0, cosine = 0.5 }
optimizer = { lr = 1e-3 }
checkpoint_every = 2

[evaluate.dev]
data   = "sums.dev"
reward = "accuracy"
role   = "select"
checkpoints = ["sft.all"]
sampling = { max_tokens = 12 }

[evaluate.test]
benchmark = "math/gsm8k"
options = { path = PATH, format = "messages" }
role   = "report"
checkpoints = ["base", "sft.best", "rl.last"]
sampling = { max_tokens = 12 }

[evaluate.sampled]
benchmark = "math/gsm8k"
options = { path = PATH, format = "messages" }
role   = "report"
take   = { rows = 4, how = "first" }
repeats  = 2
checkpoints = ["base", "rl.last"]
sampling = { temperature = 1.0, max_tokens = 12 }
"""


RL = EXPERIMENT[EXPERIMENT.index("[stage.rl]") : EXPERIMENT.index("[evaluate.dev]")]
"""The table of its stage `rl`, for those who leave it out."""


def make_lab(
    folder: Path,
    text: str = EXPERIMENT,
    *,
    file: str = "tiny.toml",
    until: str = "",
    tables: str = "",
    edits: Mapping[str, str] | None = None,
    rows: Mapping[str, Iterable[Sum]] = ROWS,
    template: str | None = None,
    positions: int = 2048,
) -> Path:
    """Fill `folder`, which is to be the lab's root; returns the experiment file in it.

    The file holds `text` up to the table `until`, with `edits` made and `tables` behind it; PATH is
    the test file's place. `rows` are sums by file, `template` the chat template if not the tiny
    tokenizer's, `positions` the tokens that the model reads at once.
    """
    save_tiny_model(folder / "model", template, positions)
    for name, sums in rows.items():
        write_rows(folder / name, sums)
    written = text.partition(until)[0] if until else text
    for old, new in (edits or {}).items():
        assert old in written, f"{old!r} is not in the experiment"
        written = written.replace(old, new)
    place = json.dumps(str(folder / "test.jsonl"))
    (folder / file).write_text(written.replace("PATH", place) + tables, encoding="utf-8")
    return folder / file


def model_of(session: Session, reference: CheckpointReference) -> PreTrainedModel:
    """The language model of a checkpoint of the session's run, adapters merged."""
    return language_model(session.learner, "this test").shelf(session.run).plain(reference)


def model_at(run: RunDirectory, checkpoint: str) -> PreTrainedModel:
    """The language model of a checkpoint of a run, by the checkpoint's name."""
    reference = parse_checkpoint(checkpoint)
    assert reference is not None
    return model_of(Session(experiment_of(run), run, 7, Silent()), reference).eval()


def write_rows(file: Path, sums: Iterable[Sum]) -> None:
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
