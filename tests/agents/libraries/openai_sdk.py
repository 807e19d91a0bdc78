"""OpenAI's own client in a tool loop."""

import json
import sys

from openai import OpenAI

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two integers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]
row, client = json.load(sys.stdin), OpenAI()
messages = list(row["messages"])
for _ in range(4):
    message = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
    message = message.choices[0].message
    if not message.tool_calls:
        break
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        value = sum(json.loads(call.function.arguments).values())
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(value)})
print(json.dumps({"reward": float(str(row["gold"]) == message.content)}))
