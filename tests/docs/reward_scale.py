"""The table of docs/rewards.md on scales; `python -m tests.docs.reward_scale` prints it."""

import torch

from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions

GROUPS = {
    "100, and 0 seven times": [100.0] + [0.0] * 7,
    "1, and 0 seven times": [1.0] + [0.0] * 7,
    "0 seven times, and -1": [0.0] * 7 + [-1.0],
    "0 seven times, and -100": [0.0] * 7 + [-100.0],
    "100 four times, 0 three times, -1": [100.0] * 4 + [0.0] * 3 + [-1.0],
    "100 eight times, less a KL of 0.1 once": [100.0] * 7 + [99.9],
}


def advantages(name: str, rewards: list[float]) -> list[float]:
    """The advantage of each completion of one group, a token each."""
    each = torch.arange(len(rewards))
    batch = AdvantageInput(
        torch.tensor(rewards, dtype=torch.float64),
        torch.zeros_like(each),
        each,
        torch.ones_like(each, dtype=torch.bool),
    )
    return ADVANTAGES[name](batch, AdvantageOptions()).tolist()


def table() -> str:
    """A line for each group."""
    lines = [
        '| rewards of the group | GRPO: best, worst | `advantage = "mean_only"`: best, worst |',
        "|---|---:|---:|",
    ]
    for said, rewards in GROUPS.items():
        found = [advantages(name, rewards) for name in ("grpo", "mean_only")]
        cells = [f"{max(each):+.3f}, {min(each):+.3f}" for each in found]
        lines.append(f"| {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
