"""TRL's side of `time_to_reward`: one GRPOTrainer on the same prompts, driven a step at a time.

Runs in an environment of TRL's own and imports nothing of Assay. Rewards come from the driver,
which is asked for them in the middle of a step and whose time is not counted in CPU-seconds. What
a step includes is said in `held_trainer`.
"""

import tempfile
from typing import Any

from protocol import open_channel, versions

CHANNEL, SETTINGS = open_channel()

import torch  # noqa: E402 after the channel: libraries may print
from datasets import Dataset  # type: ignore[import-not-found]  # noqa: E402
from held_trainer import HeldTrainer  # noqa: E402
from id_tokens import as_text, id_tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]  # noqa: E402
from trl_settings import fixed_settings  # noqa: E402


class Side(HeldTrainer):
    """The trainer under command, and the mean reward of its last completions."""

    def __init__(self) -> None:
        super().__init__(CHANNEL)
        self.reward = 0.0

    def rewards(self, completion_ids: list[list[int]], row: list[int], **_: Any) -> list[float]:
        """The driver's reward of each completion."""
        self.channel.send(score=completion_ids, rows=row)
        found = next(self.commands)["rewards"]
        self.reward = sum(found) / len(found)
        return found

    def report(self) -> dict[str, Any]:
        """The step's seconds and mean reward."""
        return {"cpu": self.whole.cpu, "wall": self.whole.wall, "reward": self.reward}

    def save(self, file: str) -> dict[str, Any]:
        """Write the weights."""
        torch.save(self.trainer.model.state_dict(), file)
        return {}


def configuration(folder: str) -> Any:
    """The trainer's settings."""
    rows = SETTINGS["rows"]
    window = SETTINGS["prompts"] * SETTINGS["group"] // rows
    return GRPOConfig(
        **fixed_settings(folder, rows=rows, window=window, bf16=SETTINGS["bf16"]),
        num_generations=SETTINGS["group"],
        max_completion_length=SETTINGS["max_tokens"],
        temperature=1.0,
        beta=0.0,
        num_iterations=1,
        loss_type="grpo",
        scale_rewards="group",
        use_vllm=False,
        shuffle_dataset=False,
        max_steps=len(SETTINGS["contexts"]) // SETTINGS["prompts"],
        learning_rate=SETTINGS["learning_rate"],
        max_grad_norm=SETTINGS["clip_norm"],
    )


def main() -> None:
    """Build the trainer, say that it is ready, and train under command."""
    torch.set_num_threads(SETTINGS["threads"])
    model: Any = AutoModelForCausalLM.from_pretrained(SETTINGS["model"], dtype=torch.float32)
    model.generation_config.eos_token_id = SETTINGS["end"]
    rows = [{"prompt": as_text(c), "row": n} for n, c in enumerate(SETTINGS["contexts"])]
    side = Side()
    with tempfile.TemporaryDirectory() as folder:
        side.trainer = GRPOTrainer(
            model=model,
            reward_funcs=side.rewards,
            args=configuration(folder),
            train_dataset=Dataset.from_list(rows),
            processing_class=id_tokenizer(model.config.vocab_size, SETTINGS["end"]),
            callbacks=[side],
        )
        CHANNEL.send(versions=versions("trl", "transformers", "torch", "accelerate"))
        side.trainer.train()


if __name__ == "__main__":
    main()
