"""Shows a run while it trains, as lines on stderr.

Shows only metrics that say something about learning, so not the surrogate loss of GRPO.
"""

import time
from collections.abc import Callable, Mapping

from assay.lab.monitor.observer import Clock, Pace, Silent
from assay.pages.facts import idle
from assay.pages.safe_console import columns, tell
from assay.runs.run_directory import RunDirectory

FIGURES: Mapping[str, tuple[str, str]] = {
    "nll": ("nll", ".4f"),
    "validation_loss": ("validation loss", ".4f"),
    "reward_mean": ("reward", ".3f"),
    "signal_share": ("groups with signal", ".0%"),
    "pairs": ("pairs", ",.0f"),
    "reward_margin": ("margin", ".4f"),
    "reward_accuracy": ("pairs right", ".0%"),
    "divergence": ("divergence", ".4f"),
    "teacher_agreement": ("as the teacher", ".0%"),
    "kept_share": ("kept", ".0%"),
    "grad_norm": ("gradient norm", ".3g"),
    "kl": ("KL", ".4f"),
    "clip_low_share": ("clipped low", ".1%"),
    "clip_high_share": ("clipped high", ".1%"),
    "entropy": ("entropy", ".3f"),
    "length_mean": ("length", ".0f"),
    "truncated_share": ("truncated", ".0%"),
    "abstained_share": ("unscored", ".0%"),
    "skipped_steps": ("skipped steps", ".0f"),
}
"""Metric -> its words and format, in the order shown; a narrow terminal lacks the last ones."""
QUIET_SECONDS = 10.0
"""Seconds between plain lines, except for the first and last step of a stage."""
FIRST_SHARE = 0.1
"""Of answers or other work, before the time left is told: what is sampled together says nothing of
the others by its first ones to end."""
FIRST_SECONDS = 5.0
"""Seconds of other work before its first plain line."""


def figures(metrics: Mapping[str, float], room: int | None = None) -> str:
    """One line of a step's numbers, with tokens per second; those that fit into `room` columns."""
    parts = [
        f"{words} {metrics[key]:{form}}"
        for key, (words, form) in FIGURES.items()
        if key in metrics and not idle(key, [metrics[key]])
    ]
    tokens = metrics.get("tokens", metrics.get("completion_tokens"))
    if tokens is not None and metrics.get("seconds"):
        parts.append(f"{tokens / metrics['seconds']:,.0f} tokens/s")
    while room is not None and parts and len("  ".join(parts)) > room:
        parts.pop()
    return "  ".join(parts)


def clock_text(seconds: float) -> str:
    """A time to go in minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def left_text(seconds: float | None) -> str:
    """The time to go; "" where it is not known."""
    return "" if seconds is None else f"{clock_text(seconds)} left"


class PlainProgress(Silent):
    """An observer that writes lines."""

    def __init__(self, write: Callable[[str], None] = tell, clock: Clock = time.monotonic):
        self.write, self.clock = write, clock
        self.name, self.at = "", 0
        self.pace = Pace(clock, 0, 0)
        self.works: dict[str, Pace] = {}
        self.written = -QUIET_SECONDS

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        self.write(text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""
        self.name, self.at, self.pace = name, step, Pace(self.clock, step, steps)
        so_far = f", {step} of them done" if step else ""
        self.write(f"{name} ({method}): {steps} steps{so_far}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        self.at = step
        if self._due(step == self.pace.steps or step == self.pace.first + 1):
            place = f"{self.name} {step}/{self.pace.steps}"
            left, wide = left_text(self.pace.left(step)), columns()
            room = None if wide is None else wide - len(place) - len(left) - 4
            self.write("  ".join(filter(None, (place, figures(metrics, room), left))))

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """See `Observer.evaluation`."""
        what = f"evaluation {name} of {checkpoint}"
        pace = self.works.setdefault(what, Pace(self.clock, done, total))
        if self._due(done == total):
            self.write(counted(what, done, total, "answers", pace.left(done, FIRST_SHARE)))
        if done == total:
            del self.works[what]

    def inside(self, part: str, done: int, total: int) -> None:
        """See `Observer.inside`."""
        self.work(f"{self.name} {self.at + 1}/{self.pace.steps} {part}", done, total)

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """See `Observer.work`; nothing is written of what takes less than FIRST_SECONDS."""
        pace = self.works.setdefault(what, Pace(self.clock, done, total))
        late = self.clock() - pace.started >= FIRST_SECONDS
        if done == total:
            del self.works[what]
        elif late and self._due(False):
            left = pace.left(done, FIRST_SHARE)
            self.write(counted(what, done, total, at and f"({at})", left))

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """See `Observer.report`."""
        self.write(f"progress report of {run}: {stage} step {step} ({why})")

    def _due(self, always: bool) -> bool:
        now = self.clock()
        due = always or now - self.written >= QUIET_SECONDS
        if due:
            self.written = now
        return due


def counted(what: str, done: int, total: int, rest: str, left: float | None) -> str:
    """How far a piece of work is, in a line; a `total` of 0 is unknown."""
    count = f"{done:,}/{total:,}" if total else f"{done:,}"
    return f"{what}: " + ", ".join(filter(None, (f"{count} {rest}".rstrip(), left_text(left))))
