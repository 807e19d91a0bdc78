"""An experiment file that uses most of what there is, and how to write a changed one."""

from pathlib import Path

TEXT = """\
name = "verl8"
about = "EGPO on HardGen; verl7 is its control"
task = "tools"
seeds = [42, 43]
vary = ["stage.rl.algorithm"]

[data.train]
source = "path:hardgen.jsonl"
format = "messages"
take = { rows = 1000 }
split = { dev = 0.05 }

[stage.sft]
method = "sft"
data = "train"
epochs = 1

[stage.rl]
method = "grpo"
data = "train"
start = "sft.best"
steps = 15
prompts = 64
group = 4
sampling = { max_tokens = 1024 }
reward = { strict_binary = 1.0, fine_grained = 0.5 }
adapt = { kind = "lora", rank = 8 }
kl = { coef = 0.001 }
clip = { high = 0.28 }
optimizer = { betas = [0.9, 0.95] }

[evaluate.dev]
data = "train.dev"
role = "select"
reward = "strict_binary"
checkpoints = ["sft.all"]

[evaluate.bfcl]
benchmark = "bfcl/simple_python"
role = "report"
checkpoints = ["base", "sft.best", "rl.last"]
options = { parser = "strict" }
"""


def write_spec(folder: Path, *changes: tuple[str, str]) -> Path:
    """The file with each text replaced, which must be there, by the other."""
    text = TEXT
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    file = folder / "e.toml"
    file.write_text(text, encoding="utf-8")
    return file
