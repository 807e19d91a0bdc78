"""Agents of libraries that nobody here wrote, in an environment of their own: what each sent is
what was read, what was sampled is what it got.

ASSAY_AGENT_PYTHON names the Python in which openai, openai-agents, langgraph, langchain-openai,
pydantic-ai-slim[openai] and smolagents[openai] are installed.
"""

import os
import re
from pathlib import Path

import pytest

from assay.agents import gateway
from assay.agents.protocol import read_chat
from assay.data.episode import tokens_of
from assay.data.row import Message, Row
from assay.train.sampled_groups import rendered_anew
from tests.agents.scripted import Scripted, renderer, run

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
    anew = [sum(rendered_anew(played.turns)) for played in outcome.played]
    assert set(anew) == {LIBRARIES[library]}
