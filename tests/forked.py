"""Processes of their own for tests that kill them: each is a fork of a server that has the lab
imported and has done nothing else, since a new interpreter imports for five seconds.

A fork shares nothing with the test's own process. It is its own group, so that all it starts can be
killed with it; what it prints goes to a file.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.imported"])


def forked(
    function: Callable[..., Any], *arguments: Any, log: Path, **environment: str
) -> BaseProcess:
    """A process that calls an importable function and exits as `assay` would; `log` grows."""
    process = SERVER.Process(target=_run, args=(function, arguments, str(log), environment))
    process.start()
    return process


def assay(*words: object, log: Path, **environment: str) -> BaseProcess:
    """`assay WORDS` in a process of its own."""
    return forked(_assay, *map(str, words), log=log, **environment)


def kill(process: BaseProcess) -> None:
    """SIGKILL to the process and all of its group; returns when it is gone."""
    assert process.pid is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _run(
    function: Callable[..., Any], arguments: Any, log: str, environment: dict[str, str]
) -> None:
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.update(environment)
    function(*arguments)


def _assay(*words: str) -> None:
    from assay.cli.main import app

    app(list(words))
