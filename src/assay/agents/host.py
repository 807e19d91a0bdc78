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
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx

from assay.data.conversation import dump_messages
from assay.data.episode import row_of
from assay.data.row import Row
from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control
from assay.tasks.user_code import as_value, function_at, in_a_line

try:
    import openai  # type: ignore[import-not-found]
except ImportError:
    openai = None

LOOPBACK: dict[str, Any] = {"timeout": None, "verify": False, "trust_env": False}
"""The gateway is plain HTTP on this machine: no proxy, and no certificates, which take a tenth of a
second to read."""
LONGEST = 1 << 20
"""Bytes of a program's output that are kept, the last ones."""
LOOK_SECONDS = 0.005
"""Between two looks at whether a process that writes no more has ended."""
Json = dict[str, Any]


@dataclass(eq=False)
class Process:
    """A process that plays an episode, or kept ones after another."""

    pid: int
    output: asyncio.StreamReader
    input: asyncio.WriteTransport
    reading: asyncio.BaseTransport
    text: bytes = b""
    status: int | None = None

    async def line(self, kept: bool) -> bytes:
        """Its next line where it is kept, else its last one."""
        while not (kept and b"\n" in self.text) and (part := await self.output.read(1 << 16)):
            self.text = (self.text + part)[-LONGEST:]
        if not kept:
            return self.text.strip().rpartition(b"\n")[2]
        line, _, self.text = self.text.partition(b"\n")
        return line

    async def ended(self) -> None:
        """Wait for its end."""
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            await asyncio.sleep(LOOK_SECONDS)
        self.status = ended[1]

    def end(self) -> int:
        """Kill what is left of it; its exit code, negative for a signal."""
        with suppress(ProcessLookupError, PermissionError):  # macOS refuses where all have ended
            os.killpg(self.pid, signal.SIGKILL)
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)  # a fork may not have its own group yet
            self.status = os.waitpid(self.pid, 0)[1]
        self.input.close()
        self.reading.close()
        return os.waitstatus_to_exitcode(self.status)


@dataclass(eq=False)
class Host:
    """What runs, and how it is started."""

    settings: Mapping[str, Any]
    solve: Callable[..., Any] | None
    idle: list[Process] = field(default_factory=list)
    """Kept ones between two episodes."""

    async def play(self, episode: Json) -> str:
        """Play an episode, `key` and `row`; its line."""
        kept, why, code = self.settings.get("kept", False), "", 0
        while self.idle and self.idle[-1].output.at_eof():
            self.idle.pop().end()
        process = self.idle.pop() if self.idle else await self.spawn(episode)
        line, goes_on = b"", False
        try:
            async with asyncio.timeout(self.settings["deadline"]):
                row = shown_row(row_of(episode["row"]))
                known = {"row": row, "api_key": episode["key"], "base_url": self.settings["url"]}
                process.input.write(json.dumps(known if kept else row).encode() + b"\n")
                if not kept:
                    process.input.close()
                line = await process.line(kept)
                goes_on = kept and not process.output.at_eof()
                if not goes_on:
                    await process.ended()
        except TimeoutError:
            why = f"the agent gave no reward within {self.settings['deadline']:g} seconds"
        finally:
            if goes_on:
                self.idle.append(process)
            else:
                code = process.end()
        if code and not why:
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            with suppress(ValueError):  # a real-time signal has no name
                ended = signal.Signals(-code).name
            why = f"the agent's process ended with {ended}"
        return abstention(why) if why else line.decode("utf-8", "replace")

    async def spawn(self, episode: Json) -> Process:
        """A new process, of a process group of its own."""
        (output, writing), (reading, input_) = os.pipe(), os.pipe()
        if (pid := os.fork()) == 0:
            self.run(episode, reading, writing)
        os.close(reading)
        os.close(writing)
        stream, transport = await read_from(output)
        pipe = os.fdopen(input_, "wb", 0)
        written, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, pipe)
        return Process(pid, stream, written, transport)

    def run(self, episode: Json, reading: int, writing: int) -> None:
        """Be an episode's process: the command, or the function, whose reward is its line."""
        url, key, code = self.settings["url"], episode["key"], 1
        try:
            os.setsid()
            process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
            # What a function reads is nothing: its row is handed to it.
            os.dup2(os.open(os.devnull, os.O_RDONLY) if self.solve else reading, 0)
            os.dup2(2 if self.solve else writing, 1)  # what a function prints is no reward
            solve = self.solve
            line = outcome_of(solve, url, key, episode["row"]) if solve else self.execute(url, key)
            with os.fdopen(writing, "w", encoding="utf-8") as output:
                output.write(line + "\n")
            code = 0
        finally:  # the fork must not go on as a second host
            os._exit(code)

    def execute(self, url: str, key: str) -> str:
        """Become the command; where it cannot be started, the line that says so."""
        try:
            os.chdir(self.settings["folder"])
            os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
            for each in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(each, signal.SIG_DFL)
            os.execvp(self.settings["command"][0], self.settings["command"])
        except OSError as error:
            return unstarted(error)


def abstention(why: str) -> str:
    """The line of an episode without a reward."""
    return json.dumps({"reward": None, "why": why})


def unstarted(error: OSError) -> str:
    """The line of an episode whose process cannot be had."""
    return abstention(f"the agent cannot be started: {error.strerror}")


async def read_from(
    descriptor: int, longest: int = LONGEST
) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """A stream of what is written into a pipe, of lines up to so many bytes."""
    stream = asyncio.StreamReader(longest)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", 0)
    )
    return stream, transport


async def main(settings: Json) -> None:
    """Start episodes as lines come, until there are no more."""
    answers = os.dup(1)
    os.dup2(2, 1)
    solve = None
    if "function" in settings:
        solve = function_at(settings["function"])
        await warm(settings["url"])
    host, playing = Host(settings, solve), set[asyncio.Task[None]]()

    async def play(episode: Json) -> None:
        try:
            line = await host.play(episode)
        except OSError as error:
            line = unstarted(error)
        except Exception as error:  # an episode without a line would be waited for without end
            line = abstention(f"the agent cannot be played: {in_a_line(error)}")
        os.write(answers, json.dumps({"key": episode["key"], "line": line}).encode() + b"\n")

    lines, _ = await read_from(0, 1 << 30)
    while line := await lines.readline():
        playing.add(task := asyncio.create_task(play(json.loads(line))))
        task.add_done_callback(playing.discard)
    for each in host.idle:
        each.end()
    # The rest is cancelled, and killed by that, as this returns.


def shown_row(row: Row) -> dict[str, Any]:
    """A row as programs of any language read it: OpenAI's messages and tools, and its columns."""
    return {
        **row.columns,
        **row.extra,
        "id": row.id,
        "messages": dump_messages(row.messages),
        "tools": [dict(tool) for tool in row.tools],
        "gold": row.gold,
    }


def outcome_of(solve: Callable[..., Any], url: str, key: str, row: Any) -> str:
    """Run an agent on a row: the line of its reward, or why there is none where it raises."""
    try:
        kind = "Async" if inspect.iscoroutinefunction(solve) else ""
        earned = solve(row_of(row), client_of(url, key, kind))
        reward = as_value(asyncio.run(earned) if kind else earned, solve)
    except BaseException as error:  # SystemExit too is the agent's
        return abstention(f"the agent raised {' '.join(in_a_line(error).split())}")
    return json.dumps({"reward": reward.value} | asdict(reward))


async def warm(url: str) -> None:
    """Import here what a client's first request takes, which each fork would do again."""
    _ = client_of(url, "none", "Async").chat.completions
    async with httpx.AsyncClient(**LOOPBACK) as http:
        await http.get(f"{url}/models")


def client_of(url: str, key: str, kind: str) -> Any:
    """A client, of the kind "Async" for coroutines, else "" for plain functions."""
    if openai is not None:
        own = getattr(openai, f"Default{kind}HttpxClient")(**LOOPBACK)
        client = getattr(openai, f"{kind}OpenAI")
        return client(base_url=url, api_key=key, max_retries=0, http_client=own)
    headers = {"authorization": f"Bearer {key}"}
    http = getattr(httpx, f"{kind}Client")(base_url=url, headers=headers, **LOOPBACK)

    async def later(sent: Any) -> Any:
        return read(await sent)

    def endpoint(route: str) -> SimpleNamespace:
        answered = later if kind else read
        return SimpleNamespace(create=lambda **body: answered(http.post(route, json=body)))

    chat = SimpleNamespace(completions=endpoint("chat/completions"))
    return SimpleNamespace(base_url=url, chat=chat, completions=endpoint("completions"))


class RefusedRequest(Exception):
    """An error that the endpoint answered with."""


def read(answer: httpx.Response) -> Any:
    """The body of an answer with attributes. Raises RefusedRequest."""
    body = answer.json(object_hook=with_attributes)
    if answer.status_code != 200:
        raise RefusedRequest(body.error.message)
    return body


def with_attributes(value: Json) -> SimpleNamespace:
    """An object of JSON with attributes; an absent call or content is None."""
    absent = {"content": None, "tool_calls": None} if "role" in value else {}
    return SimpleNamespace(**absent | value)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
