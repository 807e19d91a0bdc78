"""pydantic-ai's agent with one plain tool."""

import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

row = json.load(sys.stdin)
agent = Agent(OpenAIChatModel("policy"))


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


output = agent.run_sync(row["messages"][0]["content"]).output
print(json.dumps({"reward": float(str(row["gold"]) == output.strip())}))
