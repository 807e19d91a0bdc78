"""Namespaces for code that a model wrote: whether this machine has them, and how they are entered.

Covered: no network, nor this machine's own ports or sockets; of the disk only the interpreter, its
libraries and importable code can be read, so neither the user's files nor gold answers; nothing can
be written but memory file systems of each call's own (64 MB and 4,096 files each, counted against
its limit of memory), which vanish with it; other processes, the real /dev and /proc are out of
sight; no capability, no new privilege, no way into the worker's supervisor; a filter refuses system
calls that such code has no use for (`limits.system_call_filter`).
Not covered: the rest of the kernel's attack surface (no virtual machine). Where the lab is root in
a container that gives it nothing but a user namespace, the number of processes is watched and not
enforced by the kernel, which stops at `MOST_PROCESSES` of a worker since Linux 6.14 and at none
before. In a user namespace, shared memory that a call holds and has unmapped is not counted.
There is no silent fallback: without namespaces and the filter a worker that needs them is not
started, unless the user wrote `sandbox = "limits-only"`.

`unshare` makes the namespaces. `enter_private_root` is called once, by the first process of a
worker: the root becomes a list of folders that may be read. `enter_private_call` is called by every
call: its own empty /tmp, /run and /dev/shm, another user where the worker is root, no capabilities.
"""

import ctypes
import functools
import itertools
import json
import os
import re
import shutil
import site
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import RunFailure

Mode = Literal["namespaces", "limits-only"]
"""`limits-only` keeps the limits and the killing, and none of the above. Of memory it counts what a
process maps: not files, nor segments of System V, which outlive a call."""

Tool = Literal["unshare as root", "unshare --user", ""]
UNSHARE = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
USER_NAMESPACE = ["--user", "--map-root-user"]
PROBE_SECONDS = 20
FIRST_USER = 1_500_000_000
"""Ids from here on belong to nobody; every worker of a root lab takes one for its calls, so that
the kernel counts their processes apart."""

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_MOUNT_SETATTR = 442  # the same number on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION_3 = 0x20080522

PRIVATE_FOLDERS = ("/tmp", "/run", "/dev/shm")
"""Empty memory file systems of each call, which vanish with it."""
PRIVATE_SIZE = b"size=64m,nr_inodes=4096,mode=1777"
"""Bytes and files that each of them holds."""
DEVICES = ("null", "zero", "full", "random", "urandom")
"""All that is left of /dev: root may otherwise write to raw disks, which are its own files."""
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")
MOST_PROCESSES = 512
"""Process ids of a worker's namespace, threads included; far above every call's own limit."""
INSTALLED = ("site-packages", "dist-packages")
STAGE = "/tmp"
"""Where the new root is put together; it covers the real folder in the worker's sight only."""

HELP = (
    "install util-linux and libseccomp2, allow user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, "
    'kernel.apparmor_restrict_unprivileged_userns=0), or write sandbox = "limits-only", '
    "which runs without isolation"
)
"""What to do where there are no namespaces."""

_libc = ctypes.CDLL(None, use_errno=True)
_workers = itertools.count()
_chosen: list[Mode] = ["namespaces"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """How namespaces are made here: `prefix` goes before the command; empty `tool` means not."""

    tool: Tool
    prefix: tuple[str, ...] = ()
    why: str = ""
    """Why there is none: how each way failed."""

    def call_user(self) -> int:
        """The user id for the calls of one more worker; 0 where calls stay in the user namespace's
        own, whose processes the kernel counts apart anyway."""
        if self.tool != "unshare as root":
            return 0
        return FIRST_USER + (os.getpid() << 8) % (1 << 29) + next(_workers) % (1 << 8)


def choose_isolation(mode: Mode) -> None:
    """Set the isolation of the workers that all runs of this process share, the simulators'; an
    experiment passes its own `sandbox` to all others."""
    _chosen[:] = [mode]


def chosen_isolation() -> Mode:
    """The isolation of shared workers; "namespaces" unless another was chosen."""
    return _chosen[0]


def isolation_for(mode: Mode) -> Isolation:
    """How a worker is started. Raises RunFailure, unless mode is limits-only."""
    if mode == "limits-only":
        return Isolation("")
    available = isolation_available()
    if not available.tool:
        raise RunFailure(f"no namespaces for untrusted code here: {available.why} ({HELP})")
    return available


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


def python_command(code: str, folders: Sequence[str] = ()) -> list[str]:
    """A Python that ignores the environment and runs `code` with the lab's import path, at whose
    end are `folders`."""
    start = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); {code}"
    paths = [*(str(Path(entry).resolve()) for entry in sys.path), *folders]
    return [sys.executable, "-I", "-X", "utf8", "-c", start, json.dumps(paths)]


def _try(candidate: Isolation) -> str:
    """Why the isolation of a worker and of a call cannot be set up here; "" when it can."""
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


def visible_paths(folders: Sequence[str] = (), packages: Sequence[str] | None = None) -> list[str]:
    """What a worker's Python may read: the interpreter, libraries, importable code and `folders`.

    Of a folder of the import path that is no part of the interpreter only modules and packages are
    seen, not the data beside them: it may be the user's project. `packages` names those that are
    seen; None for all.
    """
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
    interpreter = [f"{p}/{name}" for p in prefixes for name in ("lib", "lib64", "pyvenv.cfg")]
    known = [*LIBRARIES, *SYSTEM_FILES, *interpreter, sys.executable, *folders]
    inside = [path for path in known if os.access(path, os.F_OK)]
    # Programs look for a linked folder under its real name, too.
    inside += [real for path in inside if (real := os.path.realpath(path)) not in inside]
    for entry in dict.fromkeys(str(Path(entry).resolve()) for entry in sys.path):
        if not any(Path(entry).is_relative_to(path) for path in inside):
            paths = _importable(Path(entry))
            inside += [each for each in paths if packages is None or Path(each).stem in packages]
    return inside


def installed_paths(packages: Sequence[str]) -> tuple[list[str], list[str]]:
    """The folders where packages are installed, and what of them belongs to `packages`.

    A benchmark that the user installed has its answers there.
    """
    folders = [*sys.path, *site.getsitepackages([sys.prefix, sys.base_prefix])]
    folders += ["/usr/lib/python3/dist-packages", "/usr/local/lib/python3/dist-packages"]
    real = dict.fromkeys(str(Path(folder).resolve()) for folder in folders)
    hidden = [each for each in real if Path(each).name in INSTALLED and os.access(each, os.X_OK)]
    inside = [path for each in hidden for path in _importable(Path(each))]
    return hidden, [path for path in inside if Path(path).stem in packages]


def _importable(entry: Path) -> Iterator[str]:
    """The modules and packages of one folder of the import path, with what belongs to them: their
    metadata, by which some look up versions, and libraries; the file itself for an archive.

    What the lab may not read, or a link to nothing, can be imported by nobody and is left out.
    """
    if not os.access(entry, os.R_OK):
        return
    if entry.is_file():
        yield str(entry)
    elif os.access(entry, os.X_OK):
        entries = sorted(entry.iterdir())
        modules = [path for path in entries if path.suffix in (".py", ".so")]
        yield from (str(path) for path in modules if os.access(path, os.R_OK))
        yield from (str(path) for path in entries if os.access(path / "__init__.py", os.R_OK))
        yield from (str(path) for path in entries if path.suffix in (".dist-info", ".libs"))


def enter_private_root(
    visible: Sequence[str], hidden: Sequence[str] = (), shown: Sequence[str] = ()
) -> None:
    """A root that holds `visible` read-only, /proc, five devices and empty private folders; of the
    folders `hidden` in it only what is `shown`.

    The capabilities stay, because calls make mounts of their own. Raises OSError when the kernel
    refuses a step.
    """
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    sources, kept = _open_outermost(visible), _open_outermost(shown)
    devices = {f"/dev/{name}": os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    _mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, b"size=4m,nr_inodes=8192,mode=755")
    for folder in ("/proc", *PRIVATE_FOLDERS):
        Path(STAGE + folder).mkdir(parents=True, exist_ok=True)
    for path, descriptor in sources.items():
        _bind(descriptor, STAGE + path)
        _restrict(STAGE + path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    for folder in hidden:
        if Path(STAGE + folder).is_dir():
            _mount("tmpfs", STAGE + folder, "tmpfs", MS_NOSUID | MS_NODEV, b"size=1m,mode=755")
    for path, descriptor in (devices | kept).items():
        _bind(descriptor, STAGE + path)
    _mount("proc", f"{STAGE}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (6, 14):
        # The namespace's own since then; before, it would be the machine's.
        Path(f"{STAGE}/proc/sys/kernel/pid_max").write_text(str(MOST_PROCESSES))
    os.chdir(STAGE)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2 of the old root")
    os.chdir("/")
    # Root's own files in /proc, sysrq-trigger among them, need no capability to be written.
    _restrict("/", MOUNT_ATTR_RDONLY)


def enter_private_call(user: int, visible: Sequence[str]) -> None:
    """Private folders of this call's own, then neither capabilities nor a way to new ones.

    `user` is the id that the call runs as where the worker is root outside of any user namespace,
    otherwise 0. What of `visible` lies in a private folder is shown there again. Raises OSError
    when the kernel refuses a step.
    """
    _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWIPC), "unshare")
    inside = (p for p in visible if any(Path(p).is_relative_to(f) for f in PRIVATE_FOLDERS))
    kept = _open_outermost([*inside])
    for folder in PRIVATE_FOLDERS:
        _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, PRIVATE_SIZE)
    for path, descriptor in kept.items():
        _bind(descriptor, path)
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        _check(_libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), f"capability {capability}")
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header, nothing = struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    _check(_libc.capset(header, nothing), "capset")


def _open_outermost(paths: Sequence[str]) -> dict[str, int]:
    """Descriptors by path, without paths inside of others."""
    every = {Path(path) for path in paths}
    outermost = sorted(path for path in every if every.isdisjoint(path.parents))
    return {str(path): os.open(path, os.O_PATH) for path in outermost}


def _bind(descriptor: int, target: str) -> None:
    """Shows what a descriptor stands for at `target`, which is made for it."""
    # Through the descriptor, because the path itself may be covered by now.
    source = f"/proc/self/fd/{descriptor}"
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    _mount(source, target, None, MS_BIND | MS_REC)
    os.close(descriptor)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: bytes | None = None
) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), data), f"mount {target}")


def _restrict(path: str, attributes: int) -> None:
    """mount_setattr(2), recursively: unlike a remount it keeps every other flag (Linux 5.12)."""
    packed = struct.pack("=QQQQ", attributes, 0, 0, 0)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), AT_RECURSIVE, packed, len(packed)
    )
    _check(result, f"mount_setattr {path}")


def _check(result: int, step: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{step}: {os.strerror(code)}")
