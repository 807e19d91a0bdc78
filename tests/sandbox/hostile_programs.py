"""How hostile programs are written down: a body, and how it has to end.

A body stands in `async def __call__(self, problem)` unless it brings a class of its own; `problem`
is a JSON object of what a test wants attacked. `RAW` writes to the pipe on which programs speak.
"""

import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import asyncio, ctypes, gc, io, itertools, json, os, pickle, re, resource, signal, socket
import subprocess, sys, threading, time
from pathlib import Path

class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem):
"""
RAW = """
def say(text):
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(3, data):]

def call(number, arguments="{}", name='"Custom"'):
    say('?{"id": %s, "name": %s, "arguments": %s}\\n' % (number, name, arguments))

"""
HANGS = 0.3
"""Seconds for what has to be killed."""


def workflow(body: str) -> str:
    """A program with a body."""
    if "class Workflow" in body:
        return textwrap.dedent(body)
    return HEAD + textwrap.indent(textwrap.dedent(RAW + textwrap.dedent(body)), " " * 8)


@dataclass(frozen=True)
class Attack:
    """A hostile program; `ends` are the ways in which it may end, as `test_hostile_programs.ending`
    says them: a failure's kind, "error KIND" or "answer TEXT"."""

    body: str
    ends: tuple[str, ...]
    deadline: float


def _attack(body: str, ends: list[str], deadline: float | None = None) -> Attack:
    return Attack(body, tuple(ends), deadline or (HANGS if ends[0] == "deadline" else 30.0))


KINDS = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text(encoding="utf-8"))
ATTACKS = {name: _attack(**each) for kind in KINDS.values() for name, each in kind.items()}
"""By name."""
