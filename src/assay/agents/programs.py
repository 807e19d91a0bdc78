"""The processes in which agents run, seen from the lab: a host that starts and ends them.

An agent is a function of the user's file or any program. What one says at its end becomes its
episode's reward in the gateway; one that raises, hangs or dies is an abstention that says why.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from assay.agents.gateway import Gateway, OpenEpisode
from assay.data.conversation import dump_messages
from assay.data.episode import Reward, row_values
from assay.data.row import Row
from assay.tasks.reward_signatures import as_value

ENDED = "the process that runs agents ended"


@dataclass(eq=False)
class Programs:
    """The host of an agent's processes, started with the first episode and anew if it dies."""

    gateway: Gateway
    settings: Mapping[str, Any]
    """See `agents.host`, without the address."""
    _host: "subprocess.Popen[bytes] | None" = None
    _lock: Any = field(default_factory=threading.Lock)
    """Evaluations of an endpoint start episodes from several threads."""

    @contextmanager
    def running(self) -> Iterator["Programs"]:
        """Until this closes, which ends all of them."""
        try:
            yield self
        finally:
            if self._host is not None and self._host.stdin is not None:
                self._host.stdin.close()
                self._host.wait()

    def start(self, episode: OpenEpisode) -> None:
        """Begin an episode."""
        line = {
            "key": episode.api_key,
            "row": row_values(episode.row),
            "shown": shown_row(episode.row),
        }
        with self._lock:
            host = self.host()
            assert host.stdin is not None
            try:
                host.stdin.write(json.dumps(line).encode() + b"\n")
                host.stdin.flush()
            except BrokenPipeError:
                self.gateway.finish(episode.api_key, Reward(None, why=ENDED))

    def host(self) -> "subprocess.Popen[bytes]":
        """The host's process."""
        if self._host is None or self._host.poll() is not None:
            settings = json.dumps({**self.settings, "url": self.gateway.url})
            self._host = subprocess.Popen(
                [sys.executable, "-m", "assay.agents.host", settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            threading.Thread(target=self.listen, args=(self._host,), daemon=True).start()
        return self._host

    def listen(self, host: "subprocess.Popen[bytes]") -> None:
        """Pass on what the host says until it ends."""
        assert host.stdout is not None
        for line in host.stdout:
            ending = json.loads(line)
            self.gateway.finish(ending["key"], reward_in(ending))
        for episode in list(self.gateway.episodes.values()):
            self.gateway.finish(episode.api_key, Reward(None, why=ENDED))


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


def reward_in(ending: Mapping[str, Any]) -> Reward:
    """The reward that an agent's last line tells; an abstention where there is none."""
    if ending.get("why"):
        return Reward(None, why=ending["why"])
    line = ending.get("line", "")
    try:
        told = json.loads(line)
        rest = {k: told[k] for k in ("parts", "why", "outcome", "facts") if k in told}
        value = told["reward"]
        if value is None:
            return Reward(None, **{"why": "the agent abstained", **rest})
        return as_value(Reward(float(value), **rest), reward_in)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"its last line of output is no reward: {line[:80]!r} ({error})"
        return Reward(None, why=f"the agent ended, and {problem}")
