"""Answers staff.py's questions with openai-agents: one line of input an episode, one of output."""

import asyncio
import json
import sys

from openai import AsyncOpenAI

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)


async def solve(row, client):
    """1 where the last answer names the room, else 0; 0 too for an agent that never ends."""
    facts, (system, question) = row["facts"], row["messages"][:2]

    @function_tool
    def manager_of(name: str) -> str:
        """The name of the manager of a person."""
        return facts["manager_of"].get(name, "nobody of this name")

    @function_tool
    def room_of(name: str) -> str:
        """The number of the room in which a person sits."""
        return facts["room_of"].get(name, "nobody of this name")

    agent = Agent(
        name="staff",
        instructions=system["content"],
        tools=[manager_of, room_of],
        model=OpenAIChatCompletionsModel(model="policy", openai_client=client),
        model_settings=ModelSettings(max_tokens=64),
    )
    try:
        result = await Runner.run(agent, question["content"], max_turns=4)
    except Exception as problem:  # the policy called what is not there, or too often
        return 0.0, type(problem).__name__
    return float(row["gold"] in str(result.final_output)), ""


async def play(episode):
    """The line that tells an episode's end."""
    async with AsyncOpenAI(
        base_url=episode["base_url"], api_key=episode["api_key"], max_retries=0
    ) as client:
        reward, gave_up = await solve(episode["row"], client)
    parts = {"gave_up": float(bool(gave_up))}
    return json.dumps({"reward": reward, "parts": parts, "facts": {"end": gave_up}})


for line in sys.stdin:
    print(asyncio.run(play(json.loads(line))), flush=True)
