"""Answers staff.py's questions with langgraph: one line of input an episode, one of output."""

import json
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


def solve(row, address, key):
    """1 where the last answer names the room, else 0; 0 too for an agent that never ends."""
    facts, (system, question) = row["facts"], row["messages"][:2]

    @tool
    def manager_of(name: str) -> str:
        """The name of the manager of a person."""
        return facts["manager_of"].get(name, "nobody of this name")

    @tool
    def room_of(name: str) -> str:
        """The number of the room in which a person sits."""
        return facts["room_of"].get(name, "nobody of this name")

    model = ChatOpenAI(
        model="policy", base_url=address, api_key=key, max_retries=0, max_completion_tokens=64
    )
    agent = create_react_agent(model, [manager_of, room_of], prompt=system["content"])
    asked = {"messages": [("user", question["content"])]}
    try:
        state = agent.invoke(asked, {"recursion_limit": 8})
    except Exception as problem:  # the policy called too often
        return 0.0, type(problem).__name__
    return float(row["gold"] in str(state["messages"][-1].content)), ""


for line in sys.stdin:
    episode = json.loads(line)
    reward, gave_up = solve(episode["row"], episode["base_url"], episode["api_key"])
    parts = {"gave_up": float(bool(gave_up))}
    print(json.dumps({"reward": reward, "parts": parts, "facts": {"end": gave_up}}), flush=True)
