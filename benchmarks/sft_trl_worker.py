"""TRL's side of the SFT comparison: one SFTTrainer, padded or packed, driven a step at a time.

Runs in an environment of TRL's own and imports nothing of Assay. What a step includes is said in
`held_trainer`. Documents come as token ids with labels on the answers, which TRL takes as they
are. Packing is TRL's default, best-fit decreasing into rows of `max_length`; it turns on TRL's
padding-free collator, and Transformers builds a block mask for SDPA from the position ids.
"""

import tempfile
from typing import Any

from protocol import Channel, Meter, open_channel, reset_peak, resident, step_report, versions

CHANNEL, SETTINGS = open_channel()

import torch  # noqa: E402 after the channel: libraries may print
from datasets import Dataset  # type: ignore[import-not-found]  # noqa: E402
from held_trainer import HeldTrainer  # noqa: E402
from id_tokens import id_tokenizer  # noqa: E402
from sft_shapes import (  # noqa: E402
    CHECK_LENGTH,
    CHECKED,
    CLIP_NORM,
    DOCUMENTS,
    LEARNING_RATE,
    MAX_STEPS,
    SftCell,
    read_documents,
)
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import SFTConfig, SFTTrainer, pack_dataset  # type: ignore[import-not-found]  # noqa: E402
from trl_settings import fixed_settings  # noqa: E402

CELL = SftCell(**SETTINGS["cell"])
PACKED: bool = SETTINGS["mode"] == "packed"
ROWS: int = 1 if PACKED else SETTINGS["rows"]
LENGTH: int = SETTINGS["length"]


def configuration(folder: str, window: int) -> Any:
    """The trainer's settings; each that is not TRL's default is one the comparison fixes."""
    return SFTConfig(
        **fixed_settings(folder, rows=ROWS, window=window, bf16=CELL.dtype == "bf16"),
        packing=PACKED,
        max_length=LENGTH,
        max_steps=MAX_STEPS,
        learning_rate=LEARNING_RATE,
        max_grad_norm=CLIP_NORM,
    )


def as_rows(documents: list[Any]) -> Any:
    """The documents as TRL takes tokenized ones: prompts are not trained."""
    return Dataset.from_list(
        [{"input_ids": p + a, "labels": [-100] * len(p) + a} for p, a in documents]
    )


class Side(HeldTrainer):
    """The trainer under command, and the tokens it went through."""

    def __init__(self, channel: Channel, documents: list[Any]):
        super().__init__(channel)
        self.documents = documents
        self.compute_loss: Any = None
        self.tokens: list[int] = []

    def watch(self, trainer: Any) -> None:
        """Count the tokens of each micro-batch."""
        self.trainer, self.compute_loss = trainer, trainer.compute_loss
        trainer.compute_loss = self.counted_loss

    def counted_loss(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        """The trainer's own loss."""
        self.tokens.append(real_tokens(inputs))
        return self.compute_loss(model, inputs, *rest, **named)

    def report(self) -> dict[str, Any]:
        """The step's seconds, memory and tokens that are not padding."""
        report = step_report(self.whole, {"cpu": 0.0, "wall": 0.0}, self.tokens)
        tokens, self.tokens = sum(self.tokens), []
        return {**report, "tokens": tokens}

    def trial(self, rows: int, length: int) -> dict[str, Any]:
        """CPU-seconds per token and peak memory of the first update's documents, split so."""
        data = as_rows(self.documents[:DOCUMENTS])
        features = list(pack_dataset(data, length) if PACKED else data)
        reset_peak()
        meter = Meter.start()
        for first in range(0, len(features), rows):
            self.backward(features[first : first + rows])
        self.trainer.model.zero_grad()
        tokens = sum(len(prompt) + len(answer) for prompt, answer in self.documents[:DOCUMENTS])
        return {"cpu_per_token": meter.cpu / tokens, "peak_bytes": resident("VmHWM")}

    def check(self, gradients: str) -> dict[str, Any]:
        """Loss and gradients of the first documents as this trainer batches them."""
        data = as_rows(self.documents[:CHECKED])
        features = list(data)
        if PACKED:
            # The packed row with the most documents: whether they see each other is the question.
            features = [max(pack_dataset(data, CHECK_LENGTH), key=lambda r: len(r["seq_lengths"]))]
        loss = self.backward(features)
        named = self.trainer.model.named_parameters()
        torch.save({name: p.grad.clone() for name, p in named if p.grad is not None}, gradients)
        self.trainer.model.zero_grad()
        return {"loss": loss, "documents": [d for row in features for d in documents_in(row)]}

    def backward(self, features: list[Any]) -> float:
        """The loss of rows collated by the trainer, after its backward pass."""
        batch = self.trainer.data_collator(features)
        loss = self.compute_loss(self.trainer.model_wrapped, batch)
        loss.backward()
        return loss.item()


def real_tokens(inputs: Any) -> int:
    """Tokens of a collated batch without padding."""
    mask = inputs.get("attention_mask")
    return int(mask.sum()) if mask is not None else inputs["input_ids"].numel()


def documents_in(row: Any) -> list[Any]:
    """The documents of a row, as pairs of prompt and answer; cut answers are left out."""
    found, start = [], 0
    for length in row.get("seq_lengths") or [len(row["input_ids"])]:
        tokens, labels = (row[key][start : start + length] for key in ("input_ids", "labels"))
        prompt = labels.count(-100)
        found.append((tokens[:prompt], tokens[prompt:]))
        start += length
    return found


def main() -> None:
    """Build the trainer, say that it is ready, and train under command."""
    torch.set_num_threads(CELL.threads)
    model: Any = AutoModelForCausalLM.from_pretrained(SETTINGS["model"], dtype=torch.float32)
    documents = read_documents(SETTINGS["documents"])
    side = Side(CHANNEL, documents)
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model=model,
            args=configuration(folder, SETTINGS["window"]),
            train_dataset=as_rows(documents),
            processing_class=id_tokenizer(model.config.vocab_size, model.config.vocab_size),
            callbacks=[side],
        )
        side.watch(trainer)
        CHANNEL.send(versions=versions("trl", "transformers", "torch", "accelerate", "peft"))
        trainer.train()


if __name__ == "__main__":
    main()
