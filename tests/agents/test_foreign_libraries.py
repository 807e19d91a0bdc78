"""Agents of libraries that nobody here wrote, in an environment of their own: what each sent is
what was read, what was sampled is what it got, and a step learns the same from its record.

ASSAY_AGENT_PYTHON names the Python in which openai, openai-agents, langgraph, langchain-openai,
pydantic-ai-slim[openai] and smolagents[openai] are installed.
"""

import copy
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import grpo_step

from assay.agents import gateway
from assay.agents.protocol import read_chat
from assay.data.episode import Episode, Reward, tokens_of
from assay.data.row import Message, Row
from assay.models.precision import choose_precision
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import pack
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.records import conversation_columns, stored_turns
from assay.train.sampled_groups import rendered_anew
from assay.train.update import micro_batches
from tests.agents.scripted import Scripted, renderer, run
from tests.models.folders import tiny_model

PYTHON = os.environ.get("ASSAY_AGENT_PYTHON", "")
FOLDER = Path(__file__).parent / "libraries"
LIBRARIES = {
    "openai_sdk": 0,
    "openai_agents": 0,
    "langgraph_react": 0,
    "pydantic_agent": 0,
    "smol_agent": 1,
}
"""Library -> turns of an episode that do not go on from the one before: smolagents writes the
model's calls into text of its own."""
ROWS = tuple(Row(f"r{n}", (Message("user", f"What is {n} + {n}?"),), gold=2 * n) for n in range(20))


def adds(text: str, key: str) -> str:
    """Calls `add`, then says what it told; smolagents' `final_answer` where that is offered."""
    told = re.findall(r"<\|im_start\|>(?:tool|user)\n(?:Observation:\n)?(\d+)\s*<\|im_end\|>", text)
    if told and "final_answer" in text:
        return call("final_answer", f'{{"answer": "{told[-1]}"}}')
    if told:
        return told[-1]
    a, b = re.findall(r"What is (\d+) \+ (\d+)\?", text)[0]
    return call("add", f'{{"a": {a}, "b": {b}}}')


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def as_stored(episode: Episode) -> Episode:
    """The episode as a run's samples hold it."""
    kept = json.loads(json.dumps(conversation_columns((), episode.turns)["turns"]))
    tokens = tuple(token for turn in episode.turns for token in turn.actions)
    logps = tuple(logp for turn in episode.turns for logp in turn.behaviour_logps or ())
    return replace(episode, turns=stored_turns(kept, tokens, logps))


def gradients(model: Any, episodes: Iterable[Episode]) -> list[torch.Tensor]:
    """Of one GRPO step, by weight."""
    policy = LanguagePolicy(copy.deepcopy(model).train(), choose_precision("fp32", "cpu"), ())
    judged = list(episodes)
    packed = pack(judged, 1.0)
    packed = packed.with_tokens(
        advantage_S=grpo_step.advantages(packed, judged), weight_S=grpo_step.weights(packed)
    )
    objective = GrpoObjective()
    for micro in micro_batches(policy, packed, objective.atom, 4096):
        objective(policy.score(micro), micro).loss.backward()
    return [each.grad for each in policy.module.parameters() if each.grad is not None]


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="ASSAY_AGENT_PYTHON is not set")
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_sends_is_what_is_read(library, monkeypatch):
    made = renderer()
    policy = Scripted(made.tokenizer, adds)
    sent = []
    right = gateway.made_call

    def made_call(body):
        sent.append(body)
        return right(body)

    monkeypatch.setattr(gateway, "made_call", made_call)
    command = [PYTHON, f"{library}.py"]
    outcome = run(
        FOLDER, command, policy, ROWS, settings={"deadline": 120.0}, max_tokens=1024, together=4
    )
    assert [reward.value for reward in outcome.rewards] == [1.0] * 20, outcome.rewards
    rendered = sorted(made.tokenizer.decode(list(made.prompt(*read_chat(asked)))) for asked in sent)
    read = sorted(
        made.tokenizer.decode(list(tokens_of(turn.context)))
        for played in outcome.played
        for turn in played.turns
    )
    assert read == rendered
    drawn = {(context, actions) for _, context, actions in policy.drawn}
    turns = [turn for played in outcome.played for turn in played.turns]
    assert {(turn.context, turn.actions) for turn in turns} == drawn
    rewards = torch.arange(20).remainder(2).tolist()
    episodes = [
        Episode(f"e{n}", "r", played.turns, Reward(float(rewards[n])))
        for n, played in enumerate(outcome.played)
    ]
    model = tiny_model(vocab_size=len(made.tokenizer))
    live, stored = gradients(model, episodes), gradients(model, map(as_stored, episodes))
    assert live and all(map(torch.equal, live, stored)) and any(bool(each.any()) for each in live)
    anew = [sum(rendered_anew(played.turns)) for played in outcome.played]
    assert set(anew) == {LIBRARIES[library]}
