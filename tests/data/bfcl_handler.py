"""BFCL's own handler for Qwen3 in function-calling mode, taken out of the wheel's source text,
and chat templates that other packages ship.

Its module imports vLLM clients and more; its methods need none of them.
"""

import ast
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.data.row import Message, ToolCall
from assay.data.wheels import wheel_directory
from assay.engines.environments import folder_of

FILE = "bfcl_eval/model_handler/local_inference/qwen_fc.py"


@cache
def source() -> str:
    """The text of the handler's module."""
    return (wheel_directory("bfcl-eval") / FILE).read_text(encoding="utf-8")


@cache
def methods() -> dict[str, Any]:
    """The handler's methods by name, as plain functions."""
    (handler,) = [n for n in ast.parse(source()).body if isinstance(n, ast.ClassDef)]
    functions: list[ast.stmt] = []
    for function in handler.body:
        if isinstance(function, ast.FunctionDef):
            function.decorator_list = []
            functions.append(function)
    names: dict[str, Any] = {"json": json, "re": re, "Any": Any}
    exec(compile(ast.Module(functions, []), FILE, "exec"), names)
    return names


def chat_template() -> str:
    """Qwen3's public chat template, which the handler quotes above the code that follows it."""
    text = source()
    start = text.index("{%- if tools %}")
    return text[start : text.index('"""', start)].strip()


def trl_template(name: str) -> str:
    """A chat template that ships inside TRL; the test is skipped where TRL is not installed."""
    return trl_templates()[name]


def trl_templates() -> dict[str, str]:
    """All chat templates that ship inside TRL, here or in the environment of its own."""
    found = find_spec("trl")
    here = [Path(place) for place in (found and found.submodule_search_locations) or ()]
    there = folder_of("trl").glob("lib/python*/site-packages/trl")
    files = [file for home in (*here, *there) for file in home.glob("chat_templates/*.jinja")]
    if not files:
        pytest.skip("TRL is not installed")
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def format_prompt(messages: list[dict[str, Any]], tools: list[Any]) -> str:
    """What the handler sends for a conversation."""
    return methods()["_format_prompt"](None, messages, tools)


def heard(text: str) -> dict[str, Any]:
    """The message that the handler keeps in its history of what a model wrote."""
    usage = SimpleNamespace(prompt_tokens=0, completion_tokens=0)
    answer = SimpleNamespace(choices=[SimpleNamespace(text=text)], usage=usage)
    owner = SimpleNamespace(_extract_tool_calls=methods()["_extract_tool_calls"])
    parsed = methods()["_parse_query_response_prompting"](owner, answer)
    return parsed["model_responses_message_for_chat_history"]


def stored(message: Message) -> dict[str, Any]:
    """A message in the form in which the handler stores messages, text next to calls included."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        value["reasoning_content"] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [_call(call) for call in message.tool_calls]
    return value


def _call(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": dict(call.arguments)}
