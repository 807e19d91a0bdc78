"""A task whose episodes are an agent's: the agent asks, and says what the episode earned.

The gateway and the agent's processes start with the first episode, and end with the interpreter or
when the agent is closed.
"""

import copy
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.agents.environment import AgentDialogue
from assay.agents.gateway import Gateway
from assay.agents.programs import Programs
from assay.data.episode import AGENT, Completion, Reward
from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import InputError
from assay.tasks.helper_model import HelperModel
from assay.tasks.task import BaseTask
from assay.tasks.user_code import SCHEME, function_in, place_of


def agent_reward(row: Row, completion: Completion) -> Reward:
    """What the agent said that its episode earned."""
    return completion.earned or Reward(None, why="no agent ran this episode")


@dataclass(eq=False)
class Agent:
    """The agent of an experiment."""

    settings: Mapping[str, Any]
    """See `agents.host`, without the address."""
    about: Mapping[str, Any]
    """Its table."""
    concurrency: int
    helpers: Callable[[], Mapping[str, HelperModel]] = dict
    note: Callable[[str], None] = lambda line: None
    _open: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def _programs(self) -> Programs:
        gateway = self._open.enter_context(Gateway(self.helpers(), self.note).up())
        return self._open.enter_context(Programs(gateway, self.settings).running())

    @property
    def record(self) -> dict[str, Any]:
        """What the manifest says of it: its command or function, and its files' fingerprints."""
        return {**self.about, "files": agent_fingerprint(self.settings)}

    def dialogue(self, row: Row) -> AgentDialogue:
        """The episode of a row, not yet begun."""
        return AgentDialogue(row, lambda: self._programs, self.concurrency)

    def close(self) -> None:
        """End the processes and the gateway."""
        self._open.close()
        self.__dict__.pop("_programs", None)


def agent_settings(agent: Any, root: Path, task: BaseTask) -> dict[str, Any]:
    """The settings of the host of an `[agent]` table of a task. Raises InputError for a function that is not
    there or takes other arguments, and for a program that is not there."""
    made = {"deadline": agent.deadline, "kept": agent.kept, "folder": str(root.resolve())}
    if agent.command is not None:
        if (program := task.programs.get(agent.command[0])) is not None:
            return made | {"command": [*program(), *agent.command[1:]]}
        if (
            shutil.which(agent.command[0], path=None) is None
            and not (root / agent.command[0]).is_file()
        ):
            problem = f"there is no program {agent.command[0]!r}"
            raise InputError(problem, field="agent.command", fix="install it, or write its path")
        return made | {"command": list(agent.command)}
    if not agent.function.startswith(SCHEME):
        fix = f"write {SCHEME}FILE.py:FUNCTION"
        raise InputError(f"{agent.function!r} names no file", field="agent.function", fix=fix)
    function, loaded = function_in(agent.function, root)
    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount != 2:
        problem = f"{agent.function!r} does not take (row, client)"
        raise InputError(problem, file=loaded.path, fix="async def solve(row, client) -> float")
    return made | {"function": place_of(function)}


def agent_fingerprint(settings: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of an agent's source by file: what a function's file imports beside it, or the
    arguments of a command that are files."""
    if "function" in settings:
        return json.loads(settings["function"])[2]
    folder = Path(settings["folder"])
    files = [folder / each for each in settings["command"] if (folder / each).is_file()]
    return {each.name: sha256_text(each.read_text("utf-8", "replace")) for each in files}


def with_agent(
    task: BaseTask,
    agent: Any,
    root: Path,
    helpers: Callable[[], Mapping[str, HelperModel]] = dict,
    note: Callable[[str], None] = lambda line: None,
) -> BaseTask:
    """The task with the episodes and the reward of an `[agent]` table; itself where there is none.

    Raises InputError.
    """
    if agent is None:
        return task
    own: Any = copy.copy(task)
    own.agent = Agent(
        agent_settings(agent, root, task),
        agent.model_dump(mode="json", exclude_none=True),
        agent.concurrency,
        helpers,
        note,
    )
    own.dialogue = own.agent.dialogue
    own.rewards = {**task.rewards, AGENT: agent_reward}
    return own
