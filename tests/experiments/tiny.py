"""A tiny Qwen3-style lab for the experiments of the tool log, and how each is scaled down to it."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import SftStage
from assay.labs.tools.multi_turn import DOCS, function_docs
from tests.data.bfcl_handler import chat_template
from tests.models.folders import tiny_model

TOOLS = Path(__file__).parents[2] / "experiments" / "tools"
FIXTURES = Path(__file__).parent / "fixtures"
LOG = [file for file in sorted(TOOLS.glob("*.toml")) if "[note]" in file.read_text()]
"""Every experiment of the log and every repaired twin."""


def make_model(folder: Path) -> Path:
    """A random Qwen3 model with the family's chat template and think tokens.

    Its tokens are learnt from the benchmark's function docs, so that an item of the benchmark is
    some thousand tokens and not tens of thousands of bytes.
    """
    tokenizer = make_tokenizer()
    tokenizer.chat_template = chat_template()
    tokenizer.save_pretrained(folder / "model")
    model = tiny_model("qwen3", vocab_size=len(tokenizer), max_position_embeddings=65536)
    # A byte has the id that the tiny models end with.
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.pad_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder / "model")
    return folder / "model"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with Qwen3's special tokens and think tags."""
    texts = [json.dumps(doc) for name in DOCS for doc in function_docs(name)]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=2000, initial_alphabet=sorted(alphabet), special_tokens=special
    )
    raw.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")
    made.add_tokens(["<think>", "</think>"])
    return made


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
        ]
        if data.take is not None:
            found.append(f"data.{name}.take.rows=5")
        if data.min_tokens is not None:
            # Two of the file's six rows are shorter.
            found.append(f"data.{name}.min_tokens=480")
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
