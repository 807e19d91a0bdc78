"""What an agent's function is called with, and what it may return.

The client is the real `openai.AsyncOpenAI` (`openai.OpenAI` for a function that is no coroutine),
or a small one of the same shape where that is not installed.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import httpx

from assay.data.episode import Reward, row_of
from assay.tasks.reward_signatures import as_value
from assay.tasks.user_code import in_a_line

try:
    import openai  # type: ignore[import-not-found]
except ImportError:
    openai = None


def outcome_of(solve: Callable[..., Any], url: str, key: str, row: Any) -> dict[str, Any]:
    """Run an agent on a row: its reward in JSON; an abstention with the reason where it raises."""
    try:
        if inspect.iscoroutinefunction(solve):
            earned = asyncio.run(solve(row_of(row), async_client(url, key)))
        else:
            earned = solve(row_of(row), sync_client(url, key))
        reward = as_value(earned, solve)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too is the agent's
        reward = Reward(None, why=f"the agent raised {' '.join(in_a_line(error).split())}")
    return {"reward": reward.value} | {k: v for k, v in asdict(reward).items() if k != "value"}


def async_client(url: str, key: str) -> Any:
    """A client for coroutines."""
    if openai is not None:
        return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=None)
    return SmallClient(url, key, httpx.AsyncClient(timeout=None))


def sync_client(url: str, key: str) -> Any:
    """A client for plain functions."""
    if openai is not None:
        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=None)
    return SmallClient(url, key, httpx.Client(timeout=None))


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
