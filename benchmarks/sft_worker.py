"""Assay's side of the SFT comparison: one policy and optimizer, driven a step at a time.

A step is what `assay.train.loop` does with `Sft`: `collect` (which packs the next documents) and
`update`. Recording and checkpoints lie outside, as they do on TRL's side.
"""

from pathlib import Path
from typing import Any

from protocol import Meter, open_channel, reset_peak, resident, step_report, versions

CHANNEL, SETTINGS = open_channel()

import torch  # noqa: E402 after the channel: libraries may print
from assay_side import batch_gradient  # noqa: E402
from sft_shapes import (  # noqa: E402
    CLIP_NORM,
    DOCUMENTS,
    LEARNING_RATE,
    Document,
    SftCell,
    read_documents,
)

from assay.data.episode import Episode, Turn  # noqa: E402
from assay.models.load import load_model  # noqa: E402
from assay.models.optimizer import make_optimizer  # noqa: E402
from assay.models.precision import choose_precision  # noqa: E402
from assay.rl.packed import Packed  # noqa: E402
from assay.rollout.policies.language import LanguagePolicy  # noqa: E402
from assay.train.likelihood import (  # noqa: E402
    NLL,
    Sft,
    likelihood_batch,
)
from assay.train.loop import LoopSettings  # noqa: E402
from assay.train.train_state import TrainState  # noqa: E402
from assay.train.update import update  # noqa: E402

CELL = SftCell(**SETTINGS["cell"])


def episode_of(number: int, document: Document) -> Episode:
    """A document as a stored episode whose answer is trained."""
    prompt, answer = document
    turn = Turn(tuple(prompt), tuple(answer), (True,) * len(answer))
    return Episode(str(number), str(number), (turn,))


def tokens_of(packed: Packed) -> int:
    """Tokens of prompts and answers."""
    return sum(map(len, packed.contexts)) + len(packed.actions_S)


class Side:
    """The policy in training and what the driver may ask of it."""

    def __init__(self) -> None:
        precision = choose_precision(CELL.dtype, "cpu")  # type: ignore[arg-type]
        model = load_model(Path(SETTINGS["model"]), precision).model
        model.train()
        self.policy = LanguagePolicy(model, precision, frozenset())
        self.optimizer = make_optimizer(model.parameters(), lr=LEARNING_RATE)
        episodes = tuple(map(episode_of, *zip(*enumerate(self.documents()), strict=True)))
        self.method = Sft(episodes, DOCUMENTS, 0)
        self.state = TrainState()
        self.micro_tokens = LoopSettings(1, LEARNING_RATE).micro_tokens

    def documents(self) -> list[Document]:
        """All documents."""
        return read_documents(SETTINGS["documents"])

    def step(self) -> dict[str, Any]:
        """One whole step."""
        reset_peak()
        whole = Meter.start()
        batch = self.method.collect(self.policy, self.state.place, None)  # type: ignore[arg-type]
        self.state.cursor += batch.consumed
        packed = batch.updates[0]
        update(
            self.policy,
            packed,
            NLL,
            self.optimizer,
            micro_tokens=self.micro_tokens,
            clip_norm=CLIP_NORM,
        )
        tokens = tokens_of(packed)
        return {**step_report(whole, {"cpu": 0.0, "wall": 0.0}, [tokens]), "tokens": tokens}

    def trial(self, tokens: int) -> dict[str, Any]:
        """CPU-seconds per token and peak memory of the first documents at a micro-batch budget."""
        self.micro_tokens = tokens
        packed = likelihood_batch([*map(episode_of, range(DOCUMENTS), self.documents())])
        reset_peak()
        meter = Meter.start()
        self.gradient(packed)
        self.optimizer.zero_grad(set_to_none=True)
        return {"cpu_per_token": meter.cpu / tokens_of(packed), "peak_bytes": resident("VmHWM")}

    def use(self, tokens: int) -> dict[str, Any]:
        """Take a micro-batch budget for the steps to come."""
        self.micro_tokens = tokens
        return {}

    def check(self, documents: list[Document], gradients: str) -> dict[str, Any]:
        """Loss and gradients of these documents."""
        loss = self.gradient(likelihood_batch([*map(episode_of, range(99), documents)]))
        named = self.policy.module.named_parameters()
        torch.save({name: p.grad.clone() for name, p in named if p.grad is not None}, gradients)
        self.optimizer.zero_grad(set_to_none=True)
        return {"loss": loss}

    def gradient(self, packed: Packed) -> float:
        """The loss of the batch, after its backward pass."""
        return batch_gradient(self.policy, packed, NLL, self.micro_tokens)


def main() -> None:
    """Answer commands until the driver is done."""
    torch.set_num_threads(CELL.threads)
    side = Side()
    CHANNEL.send(versions=versions("assay-lab", "transformers", "torch", "peft"))
    CHANNEL.serve(side)


if __name__ == "__main__":
    main()
