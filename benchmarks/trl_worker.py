"""TRL's side of the comparisons: one GRPOTrainer or SFTTrainer, driven a step at a time.

Runs in an environment of TRL's own and imports nothing of Assay. The trainer's `train()` runs as it
does for a user; a callback holds it before each optimizer step until the driver asks for one. A
step lasts from `on_step_begin` to `on_step_end`: generation and rewards, forward and backward of
every micro-batch, clipping, the optimizer's step. Fetching the batch, logging and saving are left
out. GRPO has beta 0 and generation aligned with the optimizer step, so that TRL makes neither a
reference nor an old-log-prob pass. SFT's packing is TRL's default.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import worker
from benchmarks.worker import Meter, Record

CHANNEL, SETTINGS = worker.open_channel()

import torch  # noqa: E402 after the channel: libraries may print
import trl  # type: ignore[import-not-found]  # noqa: E402
from datasets import Dataset  # type: ignore[import-not-found]  # noqa: E402
from transformers import AutoModelForCausalLM, TrainerCallback  # noqa: E402
from transformers import PreTrainedTokenizerFast as Tokenizer  # noqa: E402

from benchmarks import shapes  # noqa: E402
from benchmarks.shapes import Document, GrpoCell, SftCell  # noqa: E402

Batch = dict[str, torch.Tensor]
DEVICE: str = SETTINGS.get("device", "cpu")
VLLM: bool = SETTINGS.get("vllm", False)
"""vLLM samples in the trainer's process (colocate)."""
ROWS: int = SETTINGS["rows"]
"""Rows of a micro-batch."""


def shared_settings(folder: str, window: int, bf16: bool) -> Record:
    """Arguments of both trainers' configs; each that is not TRL's default is one that is fixed.

    `window` micro-batches make a step.
    """
    return {
        "output_dir": folder,
        "use_cpu": DEVICE == "cpu",
        "bf16": bf16,
        "fp16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": ROWS,
        "gradient_accumulation_steps": window,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "max_grad_norm": shapes.CLIP_NORM,
        "optim": "adamw_torch_fused",
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "seed": 0,
    }


class HeldTrainer(TrainerCallback):
    """Holds a trainer back before each step; between steps it answers commands by its methods."""

    def __init__(self, cell: GrpoCell | SftCell) -> None:
        self.cell_threads, self.bf16 = cell.threads, cell.dtype == "bf16"
        self.commands = CHANNEL.received()
        self.whole = Meter.start()
        self.trainer: Any = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Answer commands until one asks for a step."""
        for command in self.commands:
            if command["do"] == "step":
                worker.reset_peak_of(DEVICE)
                self.whole = Meter.start()
                return
            CHANNEL.send(**getattr(self, command.pop("do"))(**command))
        raise SystemExit

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Report the step."""
        CHANNEL.send(**self.report())

    def report(self) -> Record:
        """The step that has just ended."""
        raise NotImplementedError

    def backward(self, inputs: Batch) -> float:
        """The trainer's own loss of collated inputs, after its backward pass."""
        loss = self.trainer.compute_loss(self.trainer.model_wrapped, inputs)
        loss.backward()
        return loss.item()

    def save_gradients(self, file: str) -> None:
        """Write the gradients and clear them."""
        named = self.trainer.model.named_parameters()
        torch.save({name: p.grad.clone() for name, p in named if p.grad is not None}, file)
        self.trainer.model.zero_grad()


class GrpoSide(HeldTrainer):
    """A GRPOTrainer on the prompts of `shapes`."""

    def __init__(self) -> None:
        self.cell = GrpoCell(**SETTINGS["cell"])
        super().__init__(self.cell)
        self.generate: Any = None
        self.generation = (0.0, 0.0)
        self.completions: list[list[int]] = []
        self.steps = 0

    def build(self, model: Any, folder: str) -> Any:
        """The trainer."""
        cell = self.cell
        if cell.lora:
            from peft import LoraConfig, get_peft_model

            config = LoraConfig(
                task_type="CAUSAL_LM",
                r=shapes.LORA_RANK,
                lora_alpha=shapes.LORA_ALPHA,  # type: ignore[arg-type]
                target_modules="all-linear",
            )
            model = get_peft_model(model, config)
        self.vocabulary: int = model.config.vocab_size
        model.generation_config.eos_token_id = (
            self.vocabulary if SETTINGS["end"] is None else SETTINGS["end"]
        )
        prompts = [
            {"prompt": shapes.as_text(shapes.prompt_of(cell, self.vocabulary, step, which))}
            for step in range(shapes.GRPO_STEPS)
            for which in range(cell.prompts)
        ]
        trainer = trl.GRPOTrainer(
            model=model,
            reward_funcs=rewards,
            args=self.configuration(folder),
            train_dataset=Dataset.from_list(prompts),
            processing_class=Tokenizer.from_pretrained(SETTINGS["tokenizer"]),
            callbacks=[self],
        )
        self.generate = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = self.timed_generation
        return trainer

    def configuration(self, folder: str) -> Any:
        """The trainer's settings."""
        return trl.GRPOConfig(
            **shared_settings(folder, self.cell.rows // ROWS, self.bf16),
            num_generations=self.cell.group,
            max_completion_length=self.cell.completion,
            temperature=1.0,
            cache_implementation=cache_name(SETTINGS["cache"]),
            beta=0.0,
            num_iterations=1,
            loss_type="dapo",
            scale_rewards="group",
            use_vllm=VLLM,
            **({"vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3} if VLLM else {}),
            generation_kwargs={"ignore_eos": True} if VLLM else None,
            shuffle_dataset=False,
            max_steps=shapes.GRPO_STEPS,
            learning_rate=shapes.GRPO_RATE,
        )

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Answer commands until one asks for a step; the first step is a short one."""
        super().on_step_begin()
        short = min(self.cell.completion, shapes.WARM_UP_COMPLETION)
        self.set_generation(max_new_tokens=self.cell.completion if self.steps else short)

    def timed_generation(self, inputs: Any) -> Batch:
        """The trainer's generation, with its time and completions kept."""
        meter = Meter.start()
        prepared = self.generate(inputs)
        worker.finish(DEVICE)
        self.generation = meter.cpu, meter.wall
        self.completions = completions_of(prepared)
        return prepared

    def report(self) -> Record:
        """Seconds, memory, lengths and groups with signal."""
        self.steps += 1
        found = worker.step_report(self.whole, self.generation, DEVICE)
        return found | shapes.completion_facts(self.completions, self.cell.group)

    def micro(self, rows: int, count: int) -> Record:
        """CPU-seconds per row and peak memory of `count` micro-batches of arbitrary tokens."""
        worker.reset_peak()
        meter = Meter.start()
        for _ in range(count):
            prompts = torch.randint(1, self.vocabulary, (rows, self.cell.prompt))
            completions = torch.randint(1, self.vocabulary, (rows, self.cell.completion))
            signs = torch.tensor([1.0, -1.0]).repeat(rows // 2)
            self.backward(batch_of(prompts, completions, signs))
        self.trainer.model.zero_grad()
        return {"cpu_per_row": meter.cpu / rows / count, "peak_bytes": worker.resident("VmHWM")}

    def cache(self, kind: str, longest: int = shapes.CACHE_PROMPT) -> Record:
        """CPU-seconds of generating with a cache, at the cell's shape or a smaller one.

        The static cache does not work under bf16 autocast with every model: rotated keys are
        fp32 there and values bf16. Then the answer gives the error.
        """
        limit = min(self.cell.completion, shapes.CACHE_COMPLETION)
        self.set_generation(cache_implementation=cache_name(kind), max_new_tokens=limit)
        meter = Meter.start()
        try:
            self.generate(self.inputs(longest))
            found: Record = {"cpu": meter.cpu}
        except RuntimeError as error:
            found = {"failed": str(error)}
        kept = cache_name(SETTINGS["cache"])
        self.set_generation(cache_implementation=kept, max_new_tokens=self.cell.completion)
        return found

    def set_generation(self, **settings: Any) -> None:
        """Set generation options where the trainer keeps them: in two places."""
        self.trainer.generation_kwargs.update(settings)
        for name, value in settings.items():
            setattr(self.trainer.generation_config, name, value)

    def inputs(self, longest: int) -> list[dict[str, str]]:
        """Step 1's prompts, one for each completion, cut to a length."""
        cell = self.cell
        prompts = [
            shapes.prompt_of(cell, self.vocabulary, 1, w)[:longest] for w in range(cell.prompts)
        ]
        return [{"prompt": shapes.as_text(prompt)} for prompt in prompts for _ in range(cell.group)]

    def check(self, gradients: str, adapter: str) -> Record:
        """Sample as in training; loss and gradients of the sample by the trainer's own loss.

        `adapter` is a file of adapter weights to load first, or empty.
        """
        if adapter:
            self.trainer.model.load_state_dict(torch.load(adapter), strict=False)
        self.set_generation(max_new_tokens=min(self.cell.completion, shapes.CHECK_COMPLETION))
        prepared = self.generate(self.inputs(shapes.CHECK_PROMPT))
        self.set_generation(max_new_tokens=self.cell.completion)
        loss = 0.0
        for first in range(0, self.cell.rows, ROWS):
            rows = slice(first, first + ROWS)
            loss += self.backward({k: v[rows] if v.dim() else v for k, v in prepared.items()})
        self.save_gradients(gradients)
        return {
            "loss": loss,
            "completions": completions_of(prepared),
            "advantages": prepared["advantages"].tolist(),
        }


def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The agreed reward of each completion."""
    return [shapes.reward_of(tokens) for tokens in completion_ids]


def cache_name(kind: str) -> str | None:
    """The cache as TRL names it."""
    return None if kind == "dynamic" else kind


def batch_of(prompts: torch.Tensor, completions: torch.Tensor, advantages: torch.Tensor) -> Batch:
    """Prepared inputs without padding."""
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": advantages,
        "num_items_in_batch": torch.tensor(completions.numel()),
    }


def completions_of(prepared: Batch) -> list[list[int]]:
    """Token ids of each completion without padding."""
    pairs = zip(prepared["completion_ids"], prepared["completion_mask"].bool(), strict=True)
    return [tokens[mask].tolist() for tokens, mask in pairs]


class SftSide(HeldTrainer):
    """An SFTTrainer on the driver's documents, padded or packed."""

    def __init__(self) -> None:
        super().__init__(SftCell(**SETTINGS["cell"]))
        self.documents = shapes.read_documents(SETTINGS["documents"])
        self.packed: bool = SETTINGS["mode"] == "packed"
        self.compute_loss: Any = None
        self.tokens = 0

    def build(self, model: Any, folder: str) -> Any:
        """The trainer."""
        trainer = trl.SFTTrainer(
            model=model,
            args=trl.SFTConfig(
                **shared_settings(folder, SETTINGS["window"], self.bf16),
                packing=self.packed,
                max_length=SETTINGS["length"],
                max_steps=shapes.SFT_STEPS,
                learning_rate=shapes.SFT_RATE,
            ),
            train_dataset=as_rows(self.documents),
            processing_class=Tokenizer.from_pretrained(SETTINGS["tokenizer"]),
            callbacks=[self],
        )
        self.compute_loss, trainer.compute_loss = trainer.compute_loss, self.counted_loss
        return trainer

    def counted_loss(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> torch.Tensor:
        """The trainer's own loss; the tokens that are not padding are counted."""
        mask = inputs.get("attention_mask")
        self.tokens += int(mask.sum()) if mask is not None else inputs["input_ids"].numel()
        return self.compute_loss(model, inputs, *rest, **named)

    def report(self) -> Record:
        """Seconds, memory, and tokens that are not padding."""
        tokens, self.tokens = self.tokens, 0
        return {**worker.step_report(self.whole, device=DEVICE), "tokens": tokens}

    def trial(self, rows: int, length: int) -> Record:
        """CPU-seconds per token and peak memory of the first update's documents, split so."""
        data = as_rows(self.documents[: shapes.DOCUMENTS])
        features = list(trl.pack_dataset(data, length) if self.packed else data)
        worker.reset_peak()
        meter = Meter.start()
        for first in range(0, len(features), rows):
            self.backward(self.trainer.data_collator(features[first : first + rows]))
        self.trainer.model.zero_grad()
        tokens, self.tokens = self.tokens, 0
        return {"cpu_per_token": meter.cpu / tokens, "peak_bytes": worker.resident("VmHWM")}

    def check(self, gradients: str) -> Record:
        """Loss and gradients of the first documents as this trainer batches them."""
        features = list(as_rows(self.documents[: shapes.CHECKED]))
        if self.packed:
            # The packed row with the most documents: whether they see each other is the question.
            packed = trl.pack_dataset(Dataset.from_list(features), shapes.CHECK_LENGTH)
            features = [max(packed, key=lambda row: len(row["seq_lengths"]))]
        loss = self.backward(self.trainer.data_collator(features))
        self.save_gradients(gradients)
        self.tokens = 0
        return {"loss": loss, "documents": [d for row in features for d in documents_in(row)]}


def as_rows(documents: list[Document]) -> Any:
    """The documents as TRL takes tokenized ones: prompts are not trained."""
    return Dataset.from_list(
        [{"input_ids": p + a, "labels": [-100] * len(p) + a} for p, a in documents]
    )


def documents_in(row: Any) -> list[Document]:
    """The documents of a row, as pairs of prompt and answer."""
    found, start = [], 0
    for length in row.get("seq_lengths") or [len(row["input_ids"])]:
        tokens, labels = (row[key][start : start + length] for key in ("input_ids", "labels"))
        prompt = labels.count(-100)
        found.append((tokens[:prompt], tokens[prompt:]))
        start += length
    return found


def main() -> None:
    """Build the trainer, answer that it is ready, and train under command."""
    side = GrpoSide() if SETTINGS["method"] == "grpo" else SftSide()
    torch.set_num_threads(side.cell_threads)
    model: Any = AutoModelForCausalLM.from_pretrained(Path(SETTINGS["model"]), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        side.trainer = side.build(model, folder)
        CHANNEL.send(versions=worker.versions("trl", "transformers", "torch", "accelerate", "peft"))
        side.trainer.train()


if __name__ == "__main__":
    main()
