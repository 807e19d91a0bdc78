"""Namespaces for code that a model wrote: no network, a read-only root, private /tmp and pids.

Covered, with bubblewrap or `unshare` alike: no network, nor this machine's own ports; nothing on
disk can be written but memory file systems of 64 MB that vanish with the worker; services' sockets
in /run, other processes, the real /dev and /proc are out of sight; no capability, no new privilege.
Not covered: every file that the lab's user can read can be read; the kernel's own attack surface
(no seccomp filter, no virtual machine); memory of all processes of a call taken together.
There is no silent fallback: without namespaces a worker that needs them is not started, unless the
user wrote `sandbox = "limits-only"`.
"""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import RunFailure
from assay.sandbox.namespaces import PRIVATE_FOLDERS

Mode = Literal["namespaces", "limits-only"]
"""`limits-only` keeps the limits and the killing, and none of the above."""

UNSHARE = ["--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork"]
BUBBLEWRAP = ["--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
PROBE_SECONDS = 20


class IsolationUnavailable(RunFailure):
    """Namespaces were asked for, and this machine does not give them."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """How namespaces are made here: `prefix` goes before the command; empty `tool` means not."""

    tool: Literal["bubblewrap", "unshare", ""]
    prefix: tuple[str, ...] = ()
    why: str = ""
    """Why there is none: what each tool said."""

    @property
    def private_root(self) -> bool:
        """Whether the started process must still call `namespaces.enter_private_root`."""
        return self.tool == "unshare"


def isolation_for(mode: Mode) -> Isolation:
    """What to start a worker with. Raises IsolationUnavailable, unless mode is limits-only."""
    if mode == "limits-only":
        return Isolation("")
    found = isolation_available()
    if not found.tool:
        raise IsolationUnavailable(
            f"no namespaces for untrusted code here: {found.why} "
            '(install bubblewrap, or write sandbox = "limits-only" to run without isolation)'
        )
    return found


@functools.cache
def isolation_available() -> Isolation:
    """The first tool that works when tried, bubblewrap before `unshare`; `tool` "" if neither."""
    refusals: list[str] = []
    for candidate in (bubblewrap(), unshare()):
        refusal = _try(candidate)
        if not refusal:
            return candidate
        refusals.append(f"{candidate.tool}: {refusal}")
    return Isolation("", why="; ".join(refusals))


def bubblewrap() -> Isolation:
    """The world of the module's docstring in bubblewrap's options."""
    options = [*BUBBLEWRAP, "--ro-bind", "/", "/", "--dev", "/dev"]
    # For root, bubblewrap alone leaves /proc/sys writable, core_pattern included.
    options += ["--proc", "/proc", "--remount-ro", "/proc"]
    for folder in PRIVATE_FOLDERS:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            options += ["--tmpfs", folder]
    for path in sorted(import_path()):
        if any(Path(path).is_relative_to(folder) for folder in PRIVATE_FOLDERS):
            options += ["--ro-bind-try", path, path]
    return Isolation("bubblewrap", ("bwrap", *options, "--chdir", "/", "--"))


def unshare() -> Isolation:
    """The namespaces by util-linux; the private root follows from inside."""
    return Isolation("unshare", ("unshare", *UNSHARE, "--kill-child", "--"))


def import_path() -> list[str]:
    """The lab's import path in absolute form, with the folders of the interpreter itself."""
    return [str(Path(entry).resolve()) for entry in (*sys.path, sys.prefix, sys.base_prefix)]


def python_command(code: str, folders: Sequence[str] = ()) -> list[str]:
    """A Python that ignores the environment and runs `code` with the lab's import path, at whose
    end are `folders`."""
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); {code}"
    return [sys.executable, "-I", "-X", "utf8", "-c", start, json.dumps([*import_path(), *folders])]


def _try(candidate: Isolation) -> str:
    """Sets the isolation up once for real; why it failed, or nothing."""
    if shutil.which(candidate.prefix[0]) is None:
        return f"{candidate.prefix[0]} is not installed"
    code = "pass"
    if candidate.private_root:
        code = "from assay.sandbox.namespaces import enter_private_root as go; go(sys.path)"
    command = [*candidate.prefix, *python_command(code)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_SECONDS} seconds"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
