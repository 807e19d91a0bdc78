"""How much memory training takes: by the formula for models of many sizes, and measured on one.

    python -m benchmarks.memory table     the formula, as the table of docs/machines.md
    python -m benchmarks.memory measure   SFT and GRPO updates of the default model (Linux)
    python -m benchmarks.memory long      SFT on one row of 4k to 32k tokens, a small model (Linux)

Each measurement is a process of Assay's side: peak resident memory of the second update (the first
makes the optimizer's moments), above what the imports alone take, beside the formula. Chooses no
settings of a run.
"""

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from transformers import (
    AutoConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from assay.models.memory import ModelShape, StepLoad, estimate_memory, model_shape
from assay.rollout.engines.cpu.sampler import ROWS, prompt_slots
from benchmarks.driver import Side, parser_of, say
from benchmarks.models import byte_tokenizer, model_folder
from benchmarks.results import machine
from benchmarks.shapes import Document, GrpoCell, SftCell
from benchmarks.worker import Record

GIB, MEBI = 2**30, 2**20


@dataclass(frozen=True)
class Plan:
    """A column of the table: how a model is trained, in bf16 over fp32 weights."""

    name: str
    rank: int | None = None
    """Rank of a LoRA adapter on all linear layers; None trains every weight."""
    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    checkpointing: bool = False


PLANS = (
    Plan("full"),
    Plan("LoRA", rank=16),
    Plan("full, checkpointing", checkpointing=True),
    Plan("the same with 8-bit AdamW", optimizer="adamw8bit", checkpointing=True),
    Plan("LoRA, checkpointing", rank=16, checkpointing=True),
)
PROMPT, GROUP, ANSWER = 1024, 8, 128
"""Tokens of a prompt, completions behind each, tokens of a completion."""
PROMPTS = 2
"""In one micro-batch: 4096 tokens."""


def configs() -> dict[str, PreTrainedConfig]:
    """Sizes of published models, from their config files."""
    sizes = {
        "SmolLM2-135M": (LlamaConfig, 49152, 576, 30, 9, 3, 64, 1536, True),
        "Qwen2.5-0.5B": (Qwen2Config, 151936, 896, 24, 14, 2, 64, 4864, True),
        "Qwen3-0.6B": (Qwen3Config, 151936, 1024, 28, 16, 8, 128, 3072, True),
        "Qwen3-1.7B": (Qwen3Config, 151936, 2048, 28, 16, 8, 128, 6144, True),
        "Qwen3-4B": (Qwen3Config, 151936, 2560, 36, 32, 8, 128, 9728, True),
        "Qwen3-8B": (Qwen3Config, 151936, 4096, 36, 32, 8, 128, 12288, False),
    }
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    keys += ("num_key_value_heads", "head_dim", "intermediate_size", "tie_word_embeddings")
    return {
        name: kind(**dict(zip(keys, values, strict=True)))
        for name, (kind, *values) in sizes.items()
    }


def adapter_weights(config: PreTrainedConfig, rank: int) -> int:
    """Weights of a LoRA adapter on every linear layer but the output head."""
    hidden, inner = config.hidden_size, config.intermediate_size
    size = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    query, key = config.num_attention_heads * size, config.num_key_value_heads * size
    sides = 2 * (hidden + query) + 2 * (hidden + key) + 3 * (hidden + inner)
    return rank * sides * config.num_hidden_layers


def peak_bytes(config: PreTrainedConfig, plan: Plan) -> float:
    """Bytes by the formula: training and sampling take turns, the larger of the two counts."""
    shape = model_shape(config)
    load = StepLoad(
        tokens=PROMPTS * (PROMPT + GROUP * ANSWER),
        logit_rows=PROMPTS * (1 + GROUP * ANSWER),
        trainable=plan.rank and adapter_weights(config, plan.rank),
        optimizer=plan.optimizer,
        bf16=True,
        checkpointing=plan.checkpointing,
    )
    step = estimate_memory(shape, load)
    return max(step.total, step.weights + step.moments + sampling_bytes(shape))


def sampling_bytes(shape: ModelShape) -> float:
    """What the sampler holds in bf16 while prompts wait: its weights, keys and values."""
    token = 2 * shape.layers * shape.key * 2
    slots = prompt_slots(token, PROMPT, GROUP, ANSWER, waiting=ROWS)
    return 2.0 * shape.parameters + slots * token * (PROMPT + GROUP * ANSWER)


def table() -> str:
    """A Markdown table: GiB for every model and plan."""
    sizes = {
        name: [peak_bytes(config, plan) / GIB for plan in PLANS]
        for name, config in configs().items()
    }
    plans = " | ".join(plan.name for plan in PLANS)
    lines = [f"| model | {plans} |", "|---|" + "---:|" * len(PLANS)]
    for name, row in sizes.items():
        lines.append(f"| {name} | " + " | ".join(f"{size:.1f}" for size in row) + " |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Case:
    """A measured update of SmolLM2."""

    side: Side
    micro_tokens: int
    bf16: bool


def cases(dtype: str, folder: Path) -> Iterator[Case]:
    """SFT on 8 rows of 96 and 32 tokens in one and in two micro-batches, and GRPO."""
    file = folder / "documents.json"
    file.write_text(json.dumps(random_documents(8, 96, 32)))
    shared = {"model": str(model_folder("smollm2")), "documents": str(file), "batch": 8}
    sft, grpo = SftCell("smollm2", dtype), GrpoCell("smollm2", 128, 32, dtype)
    for method, cell, micro_tokens in (("sft", sft, 4096), ("sft", sft, 512), ("grpo", grpo, 4096)):
        settings: Record = {"method": method, "cell": asdict(cell), **shared}
        side = Side(method, "benchmarks.assay_worker", settings)
        yield Case(side, micro_tokens, dtype == "bf16")


def random_documents(count: int, prompt: int, answer: int) -> list[Document]:
    """Prompts and answers of arbitrary ordinary tokens."""
    draw = random.Random(0)
    tokens = iter(partial(draw.randrange, 1000, 40000), None)
    return [(list(islice(tokens, prompt)), list(islice(tokens, answer))) for _ in range(count)]


def measure(case: Case, shape: ModelShape) -> str:
    """A line of the table of measurements."""
    with case.side.start() as worker:
        worker.ask("use", tokens=case.micro_tokens)
        worker.ask("step")
        peak = worker.ask("step")["peak_bytes"] - worker.ready["import_bytes"]
        micros = worker.ask("batch_tokens")["micro_batches"]
    loads = [StepLoad(tokens, logit_rows=rows, bf16=case.bf16) for tokens, rows in micros]
    formula = max(estimate_memory(shape, load).total for load in loads)
    cells = [case.side.name.upper(), " + ".join(f"{tokens:,}" for tokens, _ in micros)]
    cells += ["bf16" if case.bf16 else "fp32", f"{formula / MEBI:,.0f}", f"{peak / MEBI:,.0f}"]
    return "| " + " | ".join([*cells, f"{peak / formula:.2f}"]) + " |"


LENGTHS = (4096, 8192, 16384, 32768)
"""Tokens of one row."""
SHORT = 128
"""Tokens of the row that each is compared with: what libraries take once is in both."""
LONG = ((512, False), (512, True), (49152, True))
"""Words of the vocabulary, and whether activations are recomputed."""


def long_config(vocabulary: int) -> LlamaConfig:
    """A model of four layers that reads the longest row."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=LENGTHS[-1],
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )


def measure_long(vocabulary: int, recompute: bool, folder: Path) -> Iterator[str]:
    """Lines of the table of long rows, whose answers are all but their first 64 tokens: what an
    update takes more than one of a short row."""
    config = long_config(vocabulary)
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    shape, file = model_shape(config), folder / "documents.json"
    settings: Record = {"method": "sft", "cell": asdict(SftCell("long")), "model": str(folder)}
    settings |= {"documents": str(file), "batch": 1, "recompute": recompute}
    for tokens in LENGTHS:
        ids = [n % (vocabulary - 2) + 2 for n in range(tokens)]
        file.write_text(json.dumps([[ids[:64], ids[64:]]]))
        with Side("sft", "benchmarks.assay_worker", settings).start() as worker:
            worker.ask("moments", document=[ids[:64], ids[64:SHORT]])
            short = worker.ask("moments", document=[ids[:64], ids[64:SHORT]])["peak_bytes"]
            found = worker.ask("trial", tokens=tokens)
        peak = found["peak_bytes"] - short
        loads = (StepLoad(n, n - 64, checkpointing=recompute) for n in (tokens, SHORT))
        formula, least = (estimate_memory(shape, load).total for load in loads)
        formula -= least
        cells = [f"{vocabulary:,}", "yes" if recompute else "no", f"{tokens:,}"]
        cells += [f"{formula / MEBI:,.0f}", f"{peak / MEBI:,.0f}", f"{peak / formula:.2f}"]
        cells.append(f"{found['cpu_per_token'] * tokens:.0f}")
        yield "| " + " | ".join(cells) + " |"


def print_long() -> None:
    """The table of long rows."""
    say("| words | recomputed | tokens | formula MiB | peak MiB | peak / formula | CPU s |")
    say("|---:|---|---:|---:|---:|---:|---:|")
    for vocabulary, recompute in LONG:
        with tempfile.TemporaryDirectory() as folder:
            for line in measure_long(vocabulary, recompute, Path(folder)):
                say(line)


def main() -> None:
    """Print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["table", "measure", "long"])
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    arguments = parser.parse_args()
    if arguments.what == "table":
        print(table())
        return
    say(f"{machine()['processor']}\n")
    if arguments.what == "long":
        print_long()
        return
    say("| update | tokens by micro-batch | compute | formula MiB | peak MiB | peak / formula |")
    say("|---|---:|---|---:|---:|---:|")
    shape = model_shape(AutoConfig.from_pretrained(model_folder("smollm2")))
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(arguments.dtype, Path(folder)):
            say(measure(case, shape))


if __name__ == "__main__":
    main()
