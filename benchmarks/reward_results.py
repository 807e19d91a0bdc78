"""Tables of `time_to_reward`: the cost of training and what held-out questions earn after it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cells import load_results
from results import TITLES, markdown

Look = Sequence[float]
"""CPU-seconds spent and held-out reward."""
LEVELS = (0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40)


def curves() -> str:
    """Each side's looks at the held-out rows."""
    rows = [
        [TITLES[name], str(number), f"{spent:.0f}", f"{reward:.1%}"]
        for result in load_results("time_to_reward")
        for name, side in result["sides"].items()
        for number, (spent, reward) in zip(steps_of(side), side["held_out"], strict=True)
    ]
    return markdown(["side", "step", "CPU-seconds", "held-out reward"], rows, words=1)


def steps_of(side: Mapping[str, Any]) -> list[int]:
    """The step of each look, the start included."""
    looks, steps = len(side["held_out"]), len(side["steps"])
    return [number * steps // (looks - 1) for number in range(looks)]


def levels() -> str:
    """The CPU-seconds at which each side first reached a level that both reached in training."""
    rows = []
    for result in load_results("time_to_reward"):
        sides = {name: side["held_out"] for name, side in result["sides"].items()}
        for level in LEVELS:
            ours, theirs = (first_at(level, sides[name]) for name in ("assay", "trl-1.16"))
            if ours and theirs:
                ratio = f"{theirs / ours:.2f}x"
                rows.append([f"{level:.0%}", f"{ours:.0f}", f"{theirs:.0f}", ratio])
    heads = ["held-out reward", TITLES["assay"], TITLES["trl-1.16"], "TRL 1.16 / Assay"]
    return markdown(heads, rows, words=1)


def first_at(level: float, looks: Sequence[Look]) -> float | None:
    """CPU-seconds of the first look at or above the level; None where there is none."""
    return next((spent for spent, reward in looks if reward >= level), None)


def stopped() -> str:
    """Why training ended before its last step; empty where it did not."""
    reasons = [result.get("stopped", "") for result in load_results("time_to_reward")]
    return "\n".join(f"Stopped early: {reason}." for reason in reasons if reason)


TABLES: Mapping[str, Callable[[], str]] = {
    "time_to_reward": curves,
    "time_stopped": stopped,
    "time_to_level": levels,
}
