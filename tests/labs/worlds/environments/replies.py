"""What the policy and the judge of these environments say to what they read."""

import re
from typing import Any


def answer(text: str, tool: str) -> str | dict[str, Any]:
    """Calls a tool where there is one and tells its result; else right for even numbers, for odd
    ones once it is told."""
    a, b = re.findall(r"What is (\d+) \+ (\d+)\?", text)[-1]
    if tool:
        results = re.findall(r"tool\W+(?:.*\D)?(\d+)", text)
        call = {"name": tool, "arguments": {"a": int(a), "b": int(b)}}
        return results[-1] if results else call
    told = re.findall(r"Wrong: it is (\d+)\.", text)
    return told[-1] if told else str(2 * int(a)) if int(a) % 2 == 0 else "7"


def grade(text: str) -> str:
    """Yes to what is right."""
    said, a, b = re.findall(r"Is (\d+) right for What is (\d+) \+ (\d+)\?", text)[-1]
    return "yes" if int(said) == int(a) + int(b) else "no"
