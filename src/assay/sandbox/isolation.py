"""Namespaces for code that a model wrote: what they cover, and whether this machine has them.

Covered: no network, nor this machine's own ports or sockets; of the disk only the interpreter, its
libraries and importable code can be read, so neither the user's files nor gold answers; nothing can
be written but memory file systems of each call's own (64 MB and 4,096 files each), which vanish
with it; other processes, the real /dev and /proc are out of sight; no capability, no new privilege,
no way into the worker's supervisor; a filter refuses system calls that such code has no use for
(`system_calls`).
Not covered: the rest of the kernel's attack surface (no virtual machine). Where the lab is root in
a container that gives it nothing but a user namespace, the number of processes is watched and not
enforced by the kernel.
There is no silent fallback: without namespaces and the filter a worker that needs them is not
started, unless the user wrote `sandbox = "limits-only"`.
"""

import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import RunFailure
from assay.sandbox.namespaces import visible_paths

Mode = Literal["namespaces", "limits-only"]
"""`limits-only` keeps the limits and the killing, and none of the above."""

Tool = Literal["unshare as root", "unshare --user", ""]
UNSHARE = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
USER_NAMESPACE = ["--user", "--map-root-user"]
PROBE_SECONDS = 20
FIRST_USER = 1_500_000_000
"""Ids from here on belong to nobody; every worker of a root lab takes one for its calls, so that
the kernel counts their processes apart."""

_workers = itertools.count()
_chosen: list[Mode] = ["namespaces"]


class IsolationUnavailable(RunFailure):
    """Namespaces were asked for, and this machine does not give them."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """How namespaces are made here: `prefix` goes before the command; empty `tool` means not."""

    tool: Tool
    prefix: tuple[str, ...] = ()
    why: str = ""
    """Why there is none: what each way said."""

    def call_user(self) -> int:
        """The user id for the calls of one more worker; 0 where calls stay in the user namespace's
        own, whose processes the kernel counts apart anyway."""
        if self.tool != "unshare as root":
            return 0
        return FIRST_USER + (os.getpid() << 8) % (1 << 29) + next(_workers) % (1 << 8)


def choose_isolation(mode: Mode) -> None:
    """Says what workers of this process get that no experiment passes its `sandbox` to: those of
    the simulators, which all runs of a process share."""
    _chosen[:] = [mode]


def chosen_isolation() -> Mode:
    """What was chosen; "namespaces" until then."""
    return _chosen[0]


def isolation_for(mode: Mode) -> Isolation:
    """What to start a worker with. Raises IsolationUnavailable, unless mode is limits-only."""
    if mode == "limits-only":
        return Isolation("")
    found = isolation_available()
    if not found.tool:
        raise IsolationUnavailable(
            f"no namespaces for untrusted code here: {found.why} "
            '(`assay doctor` says what helps; sandbox = "limits-only" runs without isolation)'
        )
    return found


@functools.cache
def isolation_available() -> Isolation:
    """The first way that works when tried; `tool` "" if none does."""
    refusals: list[str] = []
    for candidate in candidates():
        refusal = _try(candidate)
        if not refusal:
            return candidate
        refusals.append(f"{candidate.tool}: {refusal}")
    return Isolation("", why="; ".join(refusals))


def candidates() -> list[Isolation]:
    """The ways to try: for root without a user namespace first, since only then can calls run as
    another user."""
    in_user_namespace = Isolation("unshare --user", (*UNSHARE, *USER_NAMESPACE, "--"))
    if os.geteuid() != 0:
        return [in_user_namespace]
    return [Isolation("unshare as root", (*UNSHARE, "--")), in_user_namespace]


def import_path() -> list[str]:
    """The lab's import path in absolute form."""
    return [str(Path(entry).resolve()) for entry in sys.path]


def python_command(code: str, folders: Sequence[str] = ()) -> list[str]:
    """A Python that ignores the environment and runs `code` with the lab's import path, at whose
    end are `folders`."""
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); {code}"
    return [sys.executable, "-I", "-X", "utf8", "-c", start, json.dumps([*import_path(), *folders])]


def _try(candidate: Isolation) -> str:
    """Sets the isolation of a worker and of a call up once for real; why it failed, or nothing."""
    if shutil.which(candidate.prefix[0]) is None:
        return f"{candidate.prefix[0]} is not installed"
    code = "from assay.sandbox.call_process import rehearse; rehearse(json.loads(sys.argv[2]))"
    setup = {"visible": visible_paths(), "user": candidate.call_user()}
    command = [*candidate.prefix, *python_command(code), json.dumps(setup)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_SECONDS} seconds"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
