"""The task called "verifiers": environments of verifiers 0.4, in an environment of their own.

`source = "verifiers:NAME"` is what `verifiers` calls a taskset: an installed package, or a module
that lies in the lab. Its tasks are rows, and `agent = "verifiers"` plays them with its harness and
its rewards (`verifiers_program`), each episode through the gateway.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from typing import Any

from assay.data.conversation import parse_messages
from assay.data.loaded import Loaded, Record
from assay.data.row import Row
from assay.engines.environments import ask, installed
from assay.errors import InputError, RunFailure
from assay.tasks.task import BaseTask, BenchmarkOptions

NAME = "verifiers"
PROGRAM = Path(__file__).with_name("verifiers_program.py")


def command() -> tuple[str, ...]:
    """The program that plays. Raises InputError where verifiers is not installed."""
    if (python := installed(NAME)) is None:
        raise InputError(f"{NAME} is not installed", fix=f"assay engines add {NAME}")
    return (str(python), "-I", str(PROGRAM))


@lru_cache(maxsize=16)
def told(name: str, options: str, root: Path) -> list[Mapping[str, Any]]:
    """The rows of an environment as the program tells them. Raises InputError."""
    command()
    try:
        return ask(NAME, PROGRAM, {"name": name, "options": loads(options), "root": str(root)})
    except RunFailure as error:
        raise InputError(str(error), fix="install it there, or put its module here") from error


def read(name: str, options: BenchmarkOptions) -> Loaded:
    """The tasks of an environment. Raises InputError."""
    own = dict(options.values)
    rows = []
    for each in told(name, dumps(own), options.root.resolve()):
        extra = {"world": name, "options": own, "place": each["place"], "key": each["key"]}
        record = Record(f"{NAME}:{name}", each["place"] + 1, {})
        messages = parse_messages(record, each["messages"], "messages")
        rows.append(Row(f"{name}-{each['place']}", messages, extra=extra))
    return Loaded(tuple(rows))


class VerifiersTask(BaseTask):
    """Environments that others wrote for verifiers."""

    name = NAME
    sources = {NAME: read}  # noqa: RUF012

    def check_source(self, source: str, options: BenchmarkOptions) -> None:
        """See `BaseTask`."""
        read(source.partition(":")[2], options)

    programs: Mapping[str, Callable[[], tuple[str, ...]]] = {NAME: command}


TASK = VerifiersTask()
