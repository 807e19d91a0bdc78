"""Assay's side of the GRPO comparison: one policy and optimizer, driven a step at a time.

A step is what `assay.train.loop` does with `Grpo`: `collect` (laying the changed weights out for
the sampler, sampling, rewards, advantages; this is counted as generation) and `update` (scoring,
loss, backward, clipping and the optimizer's step). Recording and checkpoints lie outside, as they
do on TRL's side.

The settings are those that equal TRL's `loss_type="dapo"` with `scale_rewards="group"` and its
default clip: token mean over the whole batch, advantages divided by the deviation plus 1e-4, no
KL. Assay's `dapo` preset differs in the upper clip bound, which one update per rollout never
reaches, and in the epsilon.
"""

from typing import Any

from protocol import Meter, open_channel, reset_peak, step_report, versions

CHANNEL, SETTINGS = open_channel()

import torch  # noqa: E402 after the channel: libraries may print
from assay_side import NoRecords, batch_gradient  # noqa: E402
from shapes import (  # noqa: E402
    CHECK_PROMPT,
    CLIP_NORM,
    GROUP,
    LEARNING_RATE,
    LORA_ALPHA,
    LORA_RANK,
    PROMPTS,
    WARM_UP_COMPLETION,
    Cell,
    groups_with_signal,
    prompt_of,
    reward_of,
)

from assay.data.episode import Completion, Episode, Reward, Turn  # noqa: E402
from assay.data.row import Message, Row  # noqa: E402
from assay.models.adapt import train_all, train_lora  # noqa: E402
from assay.models.load import load_model  # noqa: E402
from assay.models.lora import LoraOptions  # noqa: E402
from assay.models.optimizer import make_optimizer  # noqa: E402
from assay.models.precision import choose_precision  # noqa: E402
from assay.rl.advantages import AdvantageOptions  # noqa: E402
from assay.rl.objectives import Grpo as Objective  # noqa: E402
from assay.rl.packed import Packed  # noqa: E402
from assay.rl.policy import Sampling  # noqa: E402
from assay.rollout.policies.language import LanguagePolicy  # noqa: E402
from assay.train.group_choice import Choice  # noqa: E402
from assay.train.grpo import Grpo, GrpoSettings  # noqa: E402
from assay.train.sampled_groups import Prompts, SingleTurn  # noqa: E402
from assay.train.train_state import Place  # noqa: E402
from assay.train.update import update  # noqa: E402

CELL = Cell(**SETTINGS["cell"])
OBJECTIVE = Objective()
OPTIONS = GrpoSettings(advantage_options=AdvantageOptions(epsilon=1e-4), max_tokens=CELL.completion)
"""Settings that equal TRL's; the micro-batch budget is the default."""


def score(pairs: list[tuple[Row, Completion]]) -> list[Reward]:
    """The agreed reward of each completion."""
    return [Reward(reward_of(completion.tokens)) for _, completion in pairs]


def no_text(tokens: Any) -> str:
    """Completions are not read."""
    return ""


class Side:
    """The policy in training and what the driver may ask of it."""

    def __init__(self) -> None:
        from pathlib import Path

        precision = choose_precision(CELL.dtype, "cpu")  # type: ignore[arg-type]
        loaded = load_model(Path(SETTINGS["model"]), precision)
        self.vocabulary: int = loaded.model.config.vocab_size
        torch.manual_seed(0)
        if CELL.lora:
            module, _ = train_lora(loaded.model, LoraOptions(LORA_RANK, LORA_ALPHA))
        else:
            module, _ = train_all(loaded.model)
        module.train()
        ends = frozenset() if SETTINGS["end"] is None else frozenset([SETTINGS["end"]])
        self.policy = LanguagePolicy(module, precision, ends)
        self.optimizer = make_optimizer(module.parameters(), lr=LEARNING_RATE)
        self.step_number = 0

    def method(self, step: int) -> Grpo:
        """The method over this step's prompts."""
        contexts = {
            f"{step}/{which}": tuple(prompt_of(CELL, self.vocabulary, step, which))
            for which in range(PROMPTS)
        }
        rows = tuple(Row(name, (Message("user", name),)) for name in contexts)
        longest = CELL.completion if step else min(CELL.completion, WARM_UP_COMPLETION)
        sampling = Sampling(1.0, longest)
        source = SingleTurn(contexts, sampling, 0, score, no_text)  # type: ignore[arg-type]
        return Grpo(Prompts(rows, source, PROMPTS, GROUP, 0), OPTIONS, OBJECTIVE, no_text)

    def train(self, packed: Packed) -> None:
        """One optimizer update."""
        update(
            self.policy,
            packed,
            OBJECTIVE,
            self.optimizer,
            micro_tokens=OPTIONS.micro_tokens,
            clip_norm=CLIP_NORM,
        )

    def step(self) -> dict[str, Any]:
        """One whole step."""
        reset_peak()
        whole = Meter.start()
        batch = self.method(self.step_number).collect(self.policy, Place(), NoRecords())  # type: ignore[arg-type]
        generation = {"cpu": whole.cpu, "wall": whole.wall}
        for packed in batch.updates:
            self.train(packed)
        self.step_number += 1
        lengths = [len(sample.tokens) for sample in batch.samples]
        report = step_report(whole, generation, lengths)
        rewards = [reward_of(sample.tokens) for sample in batch.samples]
        return {**report, "groups_with_signal": groups_with_signal(rewards)}

    def sample(self) -> dict[str, Any]:
        """Completions of step 1's prompts, for the choice of an end token."""
        batch = self.method(1).collect(self.policy, Place(), NoRecords())  # type: ignore[arg-type]
        return {"completions": [sample.tokens for sample in batch.samples]}

    def adapter(self, file: str) -> dict[str, Any]:
        """Write the trained weights, an adapter's second matrix made other than zero."""
        with torch.no_grad():
            for name, weight in self.policy.module.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.01)
        named = self.policy.module.named_parameters()
        torch.save({name: p.detach() for name, p in named if p.requires_grad}, file)
        self.policy.updated()
        return {}

    def check(self, completions: list[list[int]], gradients: str) -> dict[str, Any]:
        """Loss, gradients and advantages of step 1's prompts with these completions."""
        packed = self.episodes(completions, CHECK_PROMPT)
        loss = self.gradient(packed)
        named = self.policy.module.named_parameters()
        torch.save({name: p.grad.clone() for name, p in named if p.grad is not None}, gradients)
        self.optimizer.zero_grad(set_to_none=True)
        first = packed.offsets_N1[:-1]
        return {"loss": loss, "advantages": packed.advantage_S[first].tolist()}

    def episodes(self, completions: list[list[int]], longest: int) -> Packed:
        """A batch of step 1's prompts, cut to `longest`; advantages and weights by the method."""
        prompts = [
            tuple(prompt_of(CELL, self.vocabulary, 1, which)[:longest]) for which in range(PROMPTS)
        ]
        judged = [
            [
                Episode(
                    f"{which}#{member}",
                    str(which),
                    (Turn(prompt, tuple(tokens), (True,) * len(tokens)),),
                    Reward(reward_of(tokens)),
                )
                for member, tokens in enumerate(completions[which * GROUP : (which + 1) * GROUP])
            ]
            for which, prompt in enumerate(prompts)
        ]
        updates, _, _ = self.method(1).updates(self.policy, judged, Choice(tuple(range(PROMPTS))))
        return updates[0]

    def gradient(self, packed: Packed) -> float:
        """The loss of the batch, after its backward pass."""
        return batch_gradient(self.policy, packed, OBJECTIVE, OPTIONS.micro_tokens)


def main() -> None:
    """Answer commands until the driver is done."""
    torch.set_num_threads(CELL.threads)
    side = Side()
    CHANNEL.send(versions=versions("assay-lab", "transformers", "torch", "peft"))
    CHANNEL.serve(side)


if __name__ == "__main__":
    main()
