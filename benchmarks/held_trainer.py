"""Holds a Transformers trainer back before each optimizer step until the driver asks for one.

The trainer's own `train()` runs as it does for a user. A step lasts from `on_step_begin` to
`on_step_end`: every micro-batch's forward and backward, clipping, the optimizer's step and zeroing
of gradients. Fetching the batch, logging and saving lie outside. Between steps the callback
answers other commands, each a method of the subclass.
"""

from typing import Any

from protocol import Channel, Meter, reset_peak
from transformers import TrainerCallback


class HeldTrainer(TrainerCallback):
    """The callback; subclasses report a step and add commands."""

    def __init__(self, channel: Channel):
        self.channel = channel
        self.commands = channel.received()
        self.trainer: Any = None
        self.whole = Meter.start()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Answer commands until one asks for a step."""
        for command in self.commands:
            if command["do"] == "step":
                reset_peak()
                self.whole = Meter.start()
                return
            self.channel.send(**getattr(self, command.pop("do"))(**command))
        raise SystemExit

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Report the step."""
        self.channel.send(**self.report())

    def report(self) -> dict[str, Any]:
        """What there is to say of the step that has just ended."""
        raise NotImplementedError
