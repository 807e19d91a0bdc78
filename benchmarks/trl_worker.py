"""TRL's side of the GRPO comparison: one GRPOTrainer, driven a step at a time.

Runs in an environment of TRL's own and imports nothing of Assay. What a step includes is said in
`held_trainer`; generation and rewards are part of it. Generation is
`_generate_and_score_completions`, timed around the trainer's own method; the rest is the update.

The trainer runs with gradient checkpointing and logging off, beta 0 and generation aligned with
the optimizer step, so that TRL makes neither a reference nor an old-log-prob pass. Its tokenizer
knows one word per token id, so that prompts arrive as exactly the ids of `shapes`.
"""

import tempfile
from typing import Any

from protocol import Channel, Meter, open_channel, reset_peak, resident, step_report, versions

CHANNEL, SETTINGS = open_channel()

import torch  # noqa: E402 after the channel: libraries may print
from datasets import Dataset  # type: ignore[import-not-found]  # noqa: E402
from held_trainer import HeldTrainer  # noqa: E402
from id_tokens import as_text, id_tokenizer  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from shapes import (  # noqa: E402
    CACHE_TRIAL_COMPLETION,
    CACHE_TRIAL_PROMPT,
    CHECK_COMPLETION,
    CHECK_PROMPT,
    CLIP_NORM,
    GROUP,
    LEARNING_RATE,
    LORA_ALPHA,
    LORA_RANK,
    MAX_STEPS,
    PROMPTS,
    ROWS,
    WARM_UP_COMPLETION,
    Cell,
    groups_with_signal,
    prompt_of,
    reward_of,
)
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]  # noqa: E402
from trl_settings import fixed_settings  # noqa: E402

CELL = Cell(**SETTINGS["cell"])
MICRO_ROWS: int = SETTINGS["rows"]
WINDOW = ROWS // MICRO_ROWS
"""Micro-batches of one optimizer step."""


def load_model() -> Any:
    """The cell's model in fp32, with an adapter where the cell asks for one."""
    model: Any = AutoModelForCausalLM.from_pretrained(SETTINGS["model"], dtype=torch.float32)
    if CELL.lora:
        model = get_peft_model(
            model,
            LoraConfig(
                task_type="CAUSAL_LM",
                r=LORA_RANK,
                lora_alpha=LORA_ALPHA,  # type: ignore[arg-type]
                target_modules="all-linear",
            ),
        )
    return model


def configuration(folder: str) -> Any:
    """The trainer's settings; each that is not TRL's default is one the comparison fixes."""
    return GRPOConfig(
        **fixed_settings(folder, rows=MICRO_ROWS, window=WINDOW, bf16=CELL.dtype == "bf16"),
        num_generations=GROUP,
        max_completion_length=CELL.completion,
        temperature=1.0,
        cache_implementation=cache_name(SETTINGS["cache"]),
        beta=0.0,
        num_iterations=1,
        loss_type="dapo",
        scale_rewards="group",
        use_vllm=False,
        shuffle_dataset=False,
        max_steps=MAX_STEPS,
        learning_rate=LEARNING_RATE,
        max_grad_norm=CLIP_NORM,
    )


def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The agreed reward of each completion."""
    return [reward_of(tokens) for tokens in completion_ids]


class Side(HeldTrainer):
    """The trainer under command, and what it last generated."""

    def __init__(self, channel: Channel):
        super().__init__(channel)
        self.generate: Any = None
        self.generation: dict[str, float] = {}
        self.lengths: list[int] = []
        self.signal = 0
        self.steps = 0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Answer commands until one asks for a step; the first is a short one."""
        super().on_step_begin()
        short = min(CELL.completion, WARM_UP_COMPLETION)
        self.set_generation(max_new_tokens=CELL.completion if self.steps else short)

    def watch(self, trainer: Any) -> None:
        """Time the trainer's generation."""
        self.trainer, self.generate = trainer, trainer._generate_and_score_completions
        trainer._generate_and_score_completions = self.timed_generation

    def timed_generation(self, inputs: Any) -> Any:
        """The trainer's generation, its time and the lengths it came to."""
        meter = Meter.start()
        prepared = self.generate(inputs)
        self.generation = {"cpu": meter.cpu, "wall": meter.wall}
        self.lengths = prepared["completion_mask"].sum(dim=1).tolist()
        self.signal = groups_with_signal([reward_of(t) for t in completions_of(prepared)])
        return prepared

    def report(self) -> dict[str, Any]:
        """The step's seconds, lengths, memory and groups with signal."""
        self.steps += 1
        report = step_report(self.whole, self.generation, self.lengths)
        return {**report, "groups_with_signal": self.signal}

    def micro(self, rows: int, count: int, longest: int = CELL.prompt) -> dict[str, Any]:
        """CPU-seconds per row and peak memory of `count` micro-batches of arbitrary tokens."""
        reset_peak()
        meter = Meter.start()
        for _ in range(count):
            tokens = torch.randint(1, vocabulary_of(self.trainer), (rows, longest))
            completions = torch.randint(1, vocabulary_of(self.trainer), (rows, CELL.completion))
            signs = torch.tensor([1.0, -1.0]).repeat(rows // 2)
            self.backward(batch_of(tokens, completions, signs))
        self.trainer.model.zero_grad()
        return {"cpu_per_row": meter.cpu / rows / count, "peak_bytes": resident("VmHWM")}

    def cache(self, kind: str, longest: int = CACHE_TRIAL_PROMPT) -> dict[str, Any]:
        """CPU-seconds of generating with a cache, at the cell's shape or a smaller one.

        The static cache does not work under bf16 autocast with every model: rotated keys are
        fp32 there and values bf16. Then the answer says why it failed.
        """
        limit = min(CELL.completion, CACHE_TRIAL_COMPLETION)
        self.set_generation(cache_implementation=cache_name(kind), max_new_tokens=limit)
        meter = Meter.start()
        try:
            self.generate(self.inputs(longest))
            found: dict[str, Any] = {"cpu": meter.cpu}
        except RuntimeError as error:
            found = {"failed": str(error)}
        self.set_generation(
            cache_implementation=cache_name(SETTINGS["cache"]), max_new_tokens=CELL.completion
        )
        return found

    def set_generation(self, **settings: Any) -> None:
        """Set generation options where the trainer keeps them: in two places."""
        self.trainer.generation_kwargs.update(settings)
        for name, value in settings.items():
            setattr(self.trainer.generation_config, name, value)

    def inputs(self, longest: int) -> list[dict[str, str]]:
        """Step 1's prompts, each GROUP times, cut to a length."""
        vocabulary = vocabulary_of(self.trainer)
        prompts = [prompt_of(CELL, vocabulary, 1, which)[:longest] for which in range(PROMPTS)]
        return [{"prompt": as_text(prompt)} for prompt in prompts for _ in range(GROUP)]

    def check(self, gradients: str, adapter: str) -> dict[str, Any]:
        """Sample as in training; loss and gradients of the sample by the trainer's own loss.

        `adapter` is a file of adapter weights to take first, or empty.
        """
        if adapter:
            self.trainer.model.load_state_dict(torch.load(adapter), strict=False)
        self.set_generation(max_new_tokens=min(CELL.completion, CHECK_COMPLETION))
        prepared = self.generate(self.inputs(CHECK_PROMPT))
        self.set_generation(max_new_tokens=CELL.completion)
        loss = 0.0
        for part in range(WINDOW):
            rows = slice(part * MICRO_ROWS, (part + 1) * MICRO_ROWS)
            cut = {k: v[rows] if v.dim() else v for k, v in prepared.items()}
            loss += self.backward(cut)
        named = self.trainer.model.named_parameters()
        torch.save({name: p.grad.clone() for name, p in named if p.grad is not None}, gradients)
        self.trainer.model.zero_grad()
        return {
            "loss": loss,
            "completions": completions_of(prepared),
            "advantages": prepared["advantages"].tolist(),
        }

    def backward(self, prepared: dict[str, torch.Tensor]) -> float:
        """The loss of prepared inputs, after its backward pass."""
        loss = self.trainer.compute_loss(self.trainer.model_wrapped, prepared)
        loss.backward()
        return loss.item()


def cache_name(kind: str) -> str | None:
    """The cache as TRL names it."""
    return None if kind == "dynamic" else kind


def batch_of(
    prompts: torch.Tensor, completions: torch.Tensor, advantages: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Prepared inputs without padding."""
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": advantages,
        "num_items_in_batch": torch.tensor(completions.numel()),
    }


def completions_of(prepared: dict[str, torch.Tensor]) -> list[list[int]]:
    """Token ids of each completion without padding."""
    pairs = zip(prepared["completion_ids"], prepared["completion_mask"].bool(), strict=True)
    return [tokens[mask].tolist() for tokens, mask in pairs]


def vocabulary_of(trainer: Any) -> int:
    """Rows of the embedding."""
    return trainer.model.config.vocab_size


def main() -> None:
    """Build the trainer, say that it is ready, and train under command."""
    torch.set_num_threads(CELL.threads)
    model = load_model()
    vocabulary = model.config.vocab_size
    end = vocabulary if SETTINGS["end"] is None else SETTINGS["end"]
    model.generation_config.eos_token_id = end
    prompts = [
        {"prompt": as_text(prompt_of(CELL, vocabulary, step, which))}
        for step in range(MAX_STEPS)
        for which in range(PROMPTS)
    ]
    side = Side(CHANNEL)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=rewards,
            args=configuration(folder),
            train_dataset=Dataset.from_list(prompts),
            processing_class=id_tokenizer(vocabulary, end),
            callbacks=[side],
        )
        side.watch(trainer)
        CHANNEL.send(versions=versions("trl", "transformers", "torch", "accelerate", "peft"))
        trainer.train()


if __name__ == "__main__":
    main()
