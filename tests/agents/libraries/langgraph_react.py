"""langgraph's prebuilt agent over langchain's client."""

import json
import os
import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


row = json.load(sys.stdin)
model = ChatOpenAI(model="policy", base_url=os.environ["OPENAI_BASE_URL"])
state = create_react_agent(model, [add]).invoke(
    {"messages": [("user", row["messages"][0]["content"])]}, {"recursion_limit": 9}
)
print(json.dumps({"reward": float(str(row["gold"]) == state["messages"][-1].content.strip())}))
