"""Assay's side of `time_to_reward`: the method of `reward_grpo.toml`, driven a step at a time.

A step is what `assay.train.loop` does, the self-check of the first one included.
"""

from typing import Any

from protocol import Meter, open_channel, versions

CHANNEL, SETTINGS = open_channel()

import torch  # noqa: E402 after the channel: libraries may print
from assay_side import NoRecords  # noqa: E402
from reward_task import reward_task  # noqa: E402

from assay.lab.setup.stage_methods import build_method  # noqa: E402
from assay.models.optimizer import make_optimizer  # noqa: E402
from assay.train.train_state import TrainState  # noqa: E402
from assay.train.update import update  # noqa: E402


class Side:
    """The policy in training."""

    def __init__(self) -> None:
        task = reward_task()
        self.stage = task.stage
        session = task.session
        self.policy, _ = session.shelf.policy(self.stage, session.base.end_tokens)
        self.method = build_method(self.stage, task.given, self.stage.steps or 0)
        self.optimizer = make_optimizer(self.policy.module.parameters(), lr=self.stage.optimizer.lr)
        self.state = TrainState()

    def step(self) -> dict[str, Any]:
        """One whole step."""
        meter = Meter.start()
        batch = self.method.collect(self.policy, self.state.place, NoRecords())  # type: ignore[arg-type]
        for packed in batch.updates:
            update(
                self.policy,
                packed,
                batch.objective,
                self.optimizer,
                micro_tokens=self.stage.micro_tokens,
                clip_norm=self.stage.optimizer.clip_norm,
            )
        self.state.step += 1
        self.state.cursor += batch.consumed
        return {"cpu": meter.cpu, "wall": meter.wall, "reward": batch.metrics["reward_mean"]}

    def save(self, file: str) -> dict[str, Any]:
        """Write the weights."""
        torch.save(self.policy.module.state_dict(), file)
        return {}


def main() -> None:
    """Answer commands until the driver is done."""
    torch.set_num_threads(SETTINGS["threads"])
    side = Side()
    CHANNEL.send(versions=versions("assay-lab", "transformers", "torch"))
    CHANNEL.serve(side)


if __name__ == "__main__":
    main()
