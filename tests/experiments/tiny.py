"""A tiny Qwen3-style lab for the experiments of the tool log, and how each is scaled down to it."""

import json
from pathlib import Path

from assay.lab.spec.experiment import Experiment
from assay.lab.spec.read import read_experiment
from assay.lab.spec.stage import SftStage
from tests.data.bfcl_handler import chat_template
from tests.models.folders import tiny_model, tiny_tokenizer

TOOLS = Path(__file__).parents[2] / "experiments" / "tools"
FIXTURES = Path(__file__).parent / "fixtures"
LOG = [file for file in sorted(TOOLS.glob("*.toml")) if "[note]" in file.read_text()]
"""Every experiment of the log and every repaired twin."""


def make_model(folder: Path) -> Path:
    """A random Qwen3 model with a byte-level tokenizer and the family's chat template."""
    tiny_model("qwen3", max_position_embeddings=65536).save_pretrained(folder / "model")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = chat_template()
    tokenizer.save_pretrained(folder / "model")
    config = folder / "model" / "config.json"
    settings = json.loads(config.read_text())
    assert settings["vocab_size"] <= len(tokenizer)
    return folder / "model"


def scaled_down(file: Path, model: Path) -> list[str]:
    """`--set` overrides that leave everything of a file as it is but its size.

    Two steps of two rows, one item of the benchmark with a few tokens for each answer.
    """
    experiment = read_experiment(file)
    found = [f"model=path:{model}"]
    for name, data in experiment.data.items():
        kind = data.format or ""
        found += [
            f"data.{name}.source=path:{FIXTURES / f'{kind}.jsonl'}",
            f"data.{name}.split={{ dev = 0.2 }}",
            f"data.{name}.max_prompt_tokens=100000",
        ]
        if data.take is not None:
            found.append(f"data.{name}.take.rows=5")
    for name, stage in experiment.stage.items():
        size = "batch" if isinstance(stage, SftStage) else "prompts"
        found += [f"stage.{name}.steps=2", f"stage.{name}.{size}=2"]
        if not isinstance(stage, SftStage):
            found += [f"stage.{name}.sampling.max_tokens=8", f"stage.{name}.group=2"]
    for name in experiment.evaluate:
        found += [
            f'evaluate.{name}.take={{ rows = 1, how = "first" }}',
            f"evaluate.{name}.repeats=1",
            f"evaluate.{name}.sampling.max_tokens=4",
        ]
    return found


def stages_of(experiment: Experiment) -> list[str]:
    """The stages in order."""
    return list(experiment.stage)
