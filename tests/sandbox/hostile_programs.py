"""How hostile programs are written down: a body, and how it has to end.

A body stands in `async def __call__(self, problem)` unless it brings a class of its own; `problem`
is a JSON object of what a test wants attacked. `RAW` writes to the pipe on which programs speak.
"""

import textwrap
from dataclasses import dataclass

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
    deadline: float = 30.0


def attack(body: str, *ends: str, deadline: float = 30.0) -> Attack:
    return Attack(body, ends, deadline)


def hangs(body: str, *others: str) -> Attack:
    """Has to be killed at its deadline, unless it fails in one of the other ways before."""
    return Attack(body, ("deadline", *others), HANGS)
