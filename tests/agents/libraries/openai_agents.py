"""openai-agents' runner with one function tool."""

import json
import sys

from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)


@function_tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


row = json.load(sys.stdin)
model = OpenAIChatCompletionsModel(model="policy", openai_client=AsyncOpenAI())
agent = Agent(name="sums", instructions="Use the tool.", tools=[add], model=model)
output = Runner.run_sync(agent, row["messages"][0]["content"], max_turns=4).final_output
print(json.dumps({"reward": float(str(row["gold"]) == str(output).strip())}))
