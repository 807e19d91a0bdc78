"""Gold conversations of rows that are dialogues, played again: what rewards make of them, and of
silence, of messages cut in half, and of another row's conversation.

No model is run: the messages are handed to the row's own world, one at each of its turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.data.episode import Completion, Ended, Reward
from assay.data.renderings.rendering import Renderer
from assay.data.row import Row
from assay.lab.check.gold_trials import (
    CONTROLS,
    Runner,
    Trial,
    Tried,
    begun_length,
    exchanged_pairs,
)
from assay.lab.check.subject import target_messages
from assay.lab.setup.evaluation import decode_with
from assay.lab.setup.prepare import make_renderer
from assay.lab.setup.session import Session
from assay.tasks.running import WeightedReward
from assay.tasks.task import Dialogue, RewardFunction

LONGEST = 100
"""Turns after which a world that goes on asking is left alone."""

World = Callable[[Row], Dialogue | None]
Script = tuple[str, ...]
"""What the model says at each turn; nothing once it is through."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A row, what its gold conversation says turn by turn, and what came of it."""

    row: Row
    script: Script
    played: Completion | Reward
    """The conversation, or the abstention of a world that failed."""


def scripted(session: Session, rows: Sequence[Row], rendering: str, world: World) -> list[Scripted]:
    """The gold conversations of at most CONTROLS rows that are dialogues, evenly spread."""
    chosen = rows[:: -(-len(rows) // CONTROLS)] if rows else ()
    renderer = make_renderer(session.base.tokenizer, rendering)
    found = []
    for row in chosen:
        messages = target_messages(session.task, row)
        if messages is not None and world(row) is not None:
            script = script_of(renderer, messages, row, session.base.end_tokens)
            found.append(Scripted(row, script, play(world, row, script)))
    return found


def script_of(renderer: Renderer, messages: Sequence, row: Row, ends: frozenset[int]) -> Script:
    """Every assistant message as the model would write it. Raises RenderingError."""
    decode = decode_with(renderer, ends)
    return tuple(
        decode(renderer.turns(messages[: index + 1], row.tools, "last")[0].actions)
        for index, message in enumerate(messages)
        if message.role == "assistant"
    )


def play(world: World, row: Row, script: Script, ended: Ended = "stop") -> Completion | Reward:
    """The conversation that comes of a script, or an abstention where the world fails."""
    said = []
    try:
        dialogue = world(row)
        assert dialogue is not None
        while len(said) < LONGEST and dialogue.asks() is not None:
            said.append(script[len(said)] if len(said) < len(script) else "")
            dialogue.hears(said[-1], ended)
        return Completion("\n".join(said), ended=ended, messages=dialogue.messages)
    except Exception as error:  # what a world cannot do is what this check is to find
        return Reward(None, why=f"the world fails: {type(error).__name__}: {error}")


def try_dialogues(
    name: str,
    function: RewardFunction | WeightedReward,
    most: float,
    golds: Sequence[Scripted],
    world: World,
    runner_of: Runner,
) -> Trial:
    """Score gold conversations and wrong ones."""
    swaps = exchanged_pairs(golds, lambda one, other: one.script == other.script)
    cut = [tuple(text[: len(text) // 2] for text in gold.script) for gold in golds]
    begun = [tuple(text[: begun_length(text)] for text in gold.script) for gold in golds]
    with runner_of(function) as runner:

        def score(played: Sequence[tuple[Row, Completion | Reward]]) -> list[Reward]:
            return judged(runner.score, played)

        rewards = score([(gold.row, gold.played) for gold in golds])
        empty = score([(gold.row, play(world, gold.row, ())) for gold in golds])
        short, shortest = (
            score([(g.row, play(world, g.row, c, "length")) for g, c in zip(golds, s, strict=True)])
            for s in (cut, begun)
        )
        swapped = score([(one.row, play(world, one.row, other.script)) for one, other in swaps])
    home = {gold.row.id: r.value for gold, r in zip(golds, rewards, strict=True)}
    return Trial(
        name,
        most,
        tuple((gold.row.id, r) for gold, r in zip(golds, rewards, strict=True)),
        tuple(Tried(g.row.id, r.value, None) for g, r in zip(golds, empty, strict=True)),
        tuple(Tried(g.row.id, r.value, None) for g, r in zip(golds, short, strict=True)),
        tuple(Tried(g.row.id, r.value, None) for g, r in zip(golds, shortest, strict=True)),
        tuple(
            Tried(one.row.id, r.value, home[other.row.id])
            for (one, other), r in zip(swaps, swapped, strict=True)
        ),
    )


def judged(
    score: Callable[[Sequence[tuple[Row, Completion]]], list[Reward]],
    played: Sequence[tuple[Row, Completion | Reward]],
) -> list[Reward]:
    """The reward of each conversation; an abstention stays what it is."""
    fresh = [(row, said) for row, said in played if isinstance(said, Completion)]
    rewards = iter(score(fresh))
    return [said if isinstance(said, Reward) else next(rewards) for _, said in played]
