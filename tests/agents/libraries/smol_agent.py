"""smolagents' agent that calls tools."""

import contextlib
import json
import os
import sys

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """Adds two integers.

    Args:
        a: One of them.
        b: The other.
    """
    return a + b


row = json.load(sys.stdin)
model = OpenAIServerModel(
    "policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
)
with contextlib.redirect_stdout(sys.stderr):
    agent = ToolCallingAgent([add], model, max_steps=4)
    output = agent.run(row["messages"][0]["content"])
print(json.dumps({"reward": float(str(row["gold"]) == str(output).strip())}))
