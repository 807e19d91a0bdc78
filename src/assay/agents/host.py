"""Starts agents, each in a process of its own: `python -m assay.agents.host SETTINGS`.

SETTINGS is a JSON object: `url`, `deadline` in seconds, and either `function`, the place of a
function (`tasks.user_code.place_of`), or `command` with `kept`. Each line of standard input starts
an episode; each line of standard output says how one ended. A function is loaded once, and every
episode runs in a fork of this process, so that nothing of one reaches another; a kept command has
one episode after another. Works without torch. Ends, and kills what it started, with its input.
"""

import asyncio
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx

from assay.data.episode import Reward, row_of
from assay.tasks.user_code import as_value, function_at, in_a_line

try:
    import openai  # type: ignore[import-not-found]
except ImportError:
    openai = None

LOOPBACK: dict[str, Any] = {"verify": False, "trust_env": False}
"""The gateway is plain HTTP on this machine: no proxy, and no certificates, which take a tenth of a
second to read."""
LONGEST = 1 << 20
"""Bytes of a program's output that are kept, the last ones."""
Json = dict[str, Any]


@dataclass(eq=False)
class Running:
    """A process that has an episode, or waits for one."""

    pid: int
    output: int
    key: str = ""
    """The API key of its episode; "" between two."""
    until: float = 0.0
    program: "subprocess.Popen[bytes] | None" = None
    """The process of a command."""
    code: int | None = None
    text: bytearray = field(default_factory=bytearray)

    def wait(self) -> int:
        """The exit code when it has ended, negative for a signal."""
        if self.code is None and self.program is not None:
            self.code = self.program.wait()
        elif self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


@dataclass(eq=False)
class Host:
    """What runs, and how it is started."""

    settings: Mapping[str, Any]
    solve: Callable[..., Any] | None
    tell: Callable[[Json], None]
    running: list[Running] = field(default_factory=list)

    def start(self, episode: Json) -> None:
        """Begin an episode: `key`, `row`, and `shown`, the row as JSON for a command."""
        kept = self.settings.get("kept", False)
        idle = next((each for each in self.running if kept and not each.key), None)
        try:
            each = idle or self.spawn(episode)
        except OSError as error:
            why = f"the agent cannot be started: {error.strerror}"
            self.tell({"key": episode["key"], "why": why})
            return
        each.key, each.until = episode["key"], time.monotonic() + self.settings["deadline"]
        if kept:
            line = {"row": episode["shown"], "api_key": each.key, "base_url": self.settings["url"]}
            assert each.program is not None and each.program.stdin is not None
            try:
                each.program.stdin.write(json.dumps(line).encode() + b"\n")
                each.program.stdin.flush()
            except OSError:
                self.end(each, "the agent's process ended before its row was read")

    def spawn(self, episode: Json) -> Running:
        """A new process, of a process group of its own."""
        reading, writing = os.pipe()
        program = None
        if self.solve is not None:
            pid = os.fork()
            if pid == 0:
                run_function(self.solve, self.settings["url"], episode, writing)
        else:
            environment = {**os.environ, "OPENAI_BASE_URL": self.settings["url"]}
            environment["OPENAI_API_KEY"] = episode["key"]
            with tempfile.TemporaryFile() as row:
                row.write(json.dumps(episode["shown"]).encode())
                row.seek(0)
                program = subprocess.Popen(
                    self.settings["command"],
                    stdin=subprocess.PIPE if self.settings.get("kept") else row,
                    stdout=writing,
                    env=environment,
                    cwd=self.settings["folder"],
                    start_new_session=True,
                )
            pid = program.pid
        os.close(writing)
        each = Running(pid, reading, program=program)
        self.running.append(each)
        return each

    def read(self, each: Running) -> None:
        """Take what a process wrote; at its end, or a kept one's line, its episode is over."""
        part = os.read(each.output, 1 << 16)
        each.text += part
        del each.text[:-LONGEST]
        if self.settings.get("kept") and each.key and b"\n" in each.text:
            line, _, rest = bytes(each.text).partition(b"\n")
            each.text[:] = rest
            self.tell({"key": each.key, "line": line.decode("utf-8", "replace")})
            each.key = ""
        if not part:
            code = each.wait()
            lines = bytes(each.text).decode("utf-8", "replace").strip().splitlines()
            ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            why = "" if code == 0 else f"the agent's process ended with {ended}"
            self.end(each, why, lines[-1] if lines else "")

    def end(self, each: Running, why: str, line: str = "") -> None:
        """Kill what is left of a process and say how its episode ended."""
        for kill in (os.killpg, os.kill):  # a fork may not have its own group yet
            with suppress(ProcessLookupError):
                kill(each.pid, signal.SIGKILL)
        each.wait()
        if each in self.running:
            self.running.remove(each)
            os.close(each.output)
        if each.key:
            self.tell({"key": each.key, "why": why, "line": line})

    def expire(self) -> None:
        """End the episodes that are over their deadline."""
        for each in [r for r in self.running if r.key and r.until < time.monotonic()]:
            self.end(each, f"the agent gave no reward within {self.settings['deadline']:g} seconds")


def run_function(solve: Callable[..., Any], url: str, episode: Json, writing: int) -> None:
    """Run an agent's function in this fork, write its reward as a line, and exit."""
    os.setsid()
    os.close(0)
    os.dup2(2, 1)  # what it prints is no reward
    code = 0
    try:
        line = outcome_of(solve, url, episode["key"], episode["row"])
        with os.fdopen(writing, "w", encoding="utf-8") as output:
            output.write(json.dumps(line) + "\n")
    except BaseException:  # the fork must not go on as a second host
        code = 1
    finally:
        os._exit(code)


def main(settings: Json) -> None:
    """Start episodes as lines come, until there are no more."""
    answers = os.dup(1)
    os.dup2(2, 1)

    def tell(value: Json) -> None:
        with suppress(BrokenPipeError):  # at the end nobody may listen any more
            os.write(answers, json.dumps(value).encode() + b"\n")

    solve = None
    if "function" in settings:
        solve = function_at(settings["function"])
        asyncio.run(warm(settings["url"]))
    host = Host(settings, solve, tell)
    lines = bytearray()
    while True:
        by_output = {each.output: each for each in host.running}
        for ready in select.select([0, *by_output], [], [], 1.0)[0]:
            if ready != 0:
                host.read(by_output[ready])
                continue
            part = os.read(0, 1 << 20)
            if not part:
                for each in list(host.running):
                    host.end(each, "")
                return
            *whole, rest = bytes(lines + part).split(b"\n")
            lines[:] = rest
            for line in whole:
                host.start(json.loads(line))
        host.expire()


def outcome_of(solve: Callable[..., Any], url: str, key: str, row: Any) -> dict[str, Any]:
    """Run an agent on a row: its reward in JSON; an abstention with the reason where it raises."""
    try:
        kind = "Async" if inspect.iscoroutinefunction(solve) else ""
        earned = solve(row_of(row), client_of(url, key, kind))
        reward = as_value(asyncio.run(earned) if kind else earned, solve)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too is the agent's
        reward = Reward(None, why=f"the agent raised {' '.join(in_a_line(error).split())}")
    return {"reward": reward.value} | {k: v for k, v in asdict(reward).items() if k != "value"}


async def warm(url: str) -> None:
    """Import here what a client's first request takes, which each fork would do again."""
    _ = client_of(url, "none", "Async").chat.completions
    async with httpx.AsyncClient(timeout=None, **LOOPBACK) as http:
        await http.get(f"{url}/models")


def client_of(url: str, key: str, kind: str) -> Any:
    """A client, of the kind "Async" for coroutines, else "" for plain functions."""
    if openai is not None:
        own = getattr(openai, f"Default{kind}HttpxClient")(timeout=None, **LOOPBACK)
        client = getattr(openai, f"{kind}OpenAI")
        return client(base_url=url, api_key=key, max_retries=0, http_client=own)
    return SmallClient(url, key, getattr(httpx, f"{kind}Client")(timeout=None, **LOOPBACK))


class RefusedRequest(Exception):
    """An error that the endpoint answered with."""


class SmallClient:
    """`client.chat.completions.create(...)` and `client.completions.create(...)`, whose answers
    have OpenAI's attributes."""

    def __init__(self, url: str, key: str, http: httpx.AsyncClient | httpx.Client) -> None:
        self._url, self._http = url, http
        self._headers = {"authorization": f"Bearer {key}"}
        chat = SimpleNamespace(create=lambda **body: self._create("chat/completions", body))
        self.chat = SimpleNamespace(completions=chat)
        self.completions = SimpleNamespace(create=lambda **body: self._create("completions", body))

    def _create(self, route: str, body: dict[str, Any]) -> Any:
        sent = self._http.post(f"{self._url}/{route}", json=body, headers=self._headers)
        if not inspect.isawaitable(sent):
            return read(sent)

        async def wait() -> Any:
            return read(await sent)

        return wait()


def read(answer: httpx.Response) -> Any:
    """The body of an answer with attributes. Raises RefusedRequest."""
    body = answer.json()
    if answer.status_code != 200:
        raise RefusedRequest(body["error"]["message"])
    return with_attributes(body)


def with_attributes(value: Any) -> Any:
    """Objects of JSON as objects with attributes; an absent call or content is None."""
    if isinstance(value, dict):
        absent = {"content": None, "tool_calls": None} if "role" in value else {}
        return SimpleNamespace(**absent | {k: with_attributes(v) for k, v in value.items()})
    return [with_attributes(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
