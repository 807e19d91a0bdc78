"""What a step costs as groups, prompts and conversations grow.

    python benchmarks/growth.py                the cells that have no result
    python benchmarks/growth.py --only turns

In one thread on SmolLM2: CPU-seconds of the rollout and of the update, medians after a warm-up.
`group`: completions of one prompt, which is read once however many they are. `prompt`: its length.
`turns`: conversations in which each turn adds an observation; what counts is how many tokens the
sampler computes for the prompts, beside the contexts laid end to end, which grow quadratically.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cells import result_file, save_result
from steps import (
    MODEL,
    Prompt,
    Trainee,
    arbitrary_tokens,
    batch_of,
    make_trainee,
    sample_groups,
    single_turns,
    timed,
    train_on,
)
from workers import machine

from assay.data.episode import Episode, Reward, Turn
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import run_episodes

NAME = "growth"
REPEATS = 3


@dataclass(frozen=True)
class Cell:
    """One step's size."""

    what: str
    """Which of the sizes grows in the series that the cell belongs to."""
    group: int
    prompt: int
    completion: int
    turns: int = 1
    observation: int = 0
    """Tokens that the environment adds after each turn but the last."""
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """Names the cell's result."""
        return f"{self.what}-{getattr(self, self.what):05d}-{self.dtype}"


def cells(dtype: str) -> list[Cell]:
    """The three series."""
    groups = [Cell("group", group, 1024, 32, dtype=dtype) for group in (1, 2, 4, 8, 16)]
    lengths = (128, 256, 512, 1024, 2048)
    prompts = [Cell("prompt", 8, length, 32, dtype=dtype) for length in lengths]
    turns = [Cell("turns", 4, 256, 32, count, 64, dtype) for count in (1, 2, 4, 8, 16)]
    return [*groups, *prompts, *turns]


@dataclass
class Conversation:
    """A world that answers every turn with arbitrary tokens; its context keeps all of them."""

    cell: Cell
    name: str
    tokens: Prompt
    turns: list[Turn] = field(default_factory=list)

    def context(self) -> Prompt | None:
        """The conversation so far; None after the last turn."""
        return None if len(self.turns) == self.cell.turns else self.tokens

    def act(self, turn: Turn) -> None:
        """Go on behind the turn."""
        self.turns.append(turn)
        answer = arbitrary_tokens(self.cell.observation, f"{self.name} {len(self.turns)}")
        self.tokens = (*self.tokens, *turn.actions, *answer)


def collect(trainee: Trainee, cell: Cell, repeat: int) -> list[Episode]:
    """One prompt's group of completions or conversations."""
    prompt = arbitrary_tokens(cell.prompt, f"growth {repeat}")
    if cell.turns == 1 and cell.what != "turns":
        turns = sample_groups(trainee, [prompt], cell.group, cell.completion, repeat)
        return single_turns(turns, cell.group)
    worlds = [Conversation(cell, f"growth {repeat} {n}", prompt) for n in range(cell.group)]
    keys = [SampleKey(repeat, "0", n) for n in range(cell.group)]
    played = run_episodes(trainee.policy, worlds, keys, Sampling(1.0, cell.completion))
    return [Episode(str(n), "0", each.turns, Reward(1.0)) for n, each in enumerate(played)]


def prefilled(trainee: Trainee) -> int:
    """Prompt tokens that the sampler has computed so far."""
    return trainee.policy.sampler.prefilled_tokens  # type: ignore[attr-defined]


def measure(cell: Cell) -> dict[str, Any]:
    """The cell's result; step 0 makes the optimizer's moments and is not counted."""
    trainee = make_trainee(cell.dtype)
    steps = [one_step(trainee, cell, repeat) for repeat in range(1 + REPEATS)][1:]
    medians = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    return {"cell": asdict(cell), "model": MODEL, **medians, "machine": machine()}


def one_step(trainee: Trainee, cell: Cell, repeat: int) -> dict[str, float]:
    """A rollout and an update, with the tokens that the rollout read."""
    before = prefilled(trainee)
    rollout, episodes = timed(lambda: collect(trainee, cell, repeat))
    read = prefilled(trainee) - before
    packed = batch_of(episodes)
    update, _ = timed(lambda: train_on(trainee, packed))
    return {
        "rollout_cpu_seconds": rollout,
        "update_cpu_seconds": update,
        "prefilled_tokens": read,
        **context_tokens(episodes),
    }


def context_tokens(episodes: Sequence[Episode]) -> dict[str, int]:
    """Tokens of all contexts laid end to end, and of those, each shared beginning once.

    The second counts the first context of the group once, and in each later turn what the
    conversation has gained since, sampled tokens included.
    """
    laid = sum(len(turn.context) for episode in episodes for turn in episode.turns)
    first = {episode.group: len(episode.turns[0].context) for episode in episodes}
    gained = sum(
        len(episode.turns[-1].context) - len(episode.turns[0].context) for episode in episodes
    )
    return {"context_tokens": laid, "distinct_tokens": sum(first.values()) + gained}


def usual_dtype() -> str:
    """What this machine trains in."""
    return {"bfloat16": "bf16", "float32": "fp32"}[
        choose_precision("auto", "cpu").record()["compute"]
    ]


def main() -> None:
    """Measure the cells that have no result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default=usual_dtype())
    arguments = parser.parse_args()
    for cell in cells(arguments.dtype):
        if arguments.only in cell.name and not result_file(NAME, cell.name).exists():
            print(save_result(NAME, cell.name, measure(cell)), flush=True)


if __name__ == "__main__":
    main()
