"""Turns the namespaces that `unshare` made into a private world with system calls.

`enter_private_root` is called once, by the first process of a worker: the root becomes a list of
folders that may be read, and nothing else of the machine is there. `enter_private_call` is called
by every call: its own empty /tmp, /run and /dev/shm, another user where the worker is root, and no
capabilities. `visible_paths` says what a worker's Python needs. Makes no namespaces of the worker
(`isolation`) and filters no system calls (`system_calls`).
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

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
STAGE = "/tmp"
"""Where the new root is put together; it covers the real folder in the worker's sight only."""

_libc = ctypes.CDLL(None, use_errno=True)


def visible_paths(folders: Sequence[str] = ()) -> list[str]:
    """What a worker's Python may read: the interpreter, libraries, importable code and `folders`.

    Of a folder of the import path that is no part of the interpreter only modules and packages are
    seen, not the data beside them: it may be the user's project.
    """
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
    interpreter = [f"{p}/{name}" for p in prefixes for name in ("lib", "lib64", "pyvenv.cfg")]
    known = [*LIBRARIES, *SYSTEM_FILES, *interpreter, sys.executable, *folders]
    inside = [path for path in known if Path(path).exists()]
    # Programs look for a linked folder under its real name, too.
    inside += [real for path in inside if (real := os.path.realpath(path)) not in inside]
    for entry in dict.fromkeys(str(Path(entry).resolve()) for entry in sys.path):
        if not any(Path(entry).is_relative_to(path) for path in inside):
            inside += _importable(Path(entry))
    return inside


def _importable(entry: Path) -> Iterator[str]:
    """The modules and packages of one folder of the import path; the file itself for an archive."""
    if entry.is_file():
        yield str(entry)
    elif entry.is_dir():
        found = sorted(entry.iterdir())
        yield from (str(path) for path in found if path.suffix in (".py", ".so"))
        yield from (str(path) for path in found if (path / "__init__.py").is_file())


def enter_private_root(visible: Sequence[str]) -> None:
    """A root that holds `visible` read-only, /proc, five devices and empty private folders.

    The capabilities stay, because calls make mounts of their own. Raises OSError when the kernel
    refuses a step.
    """
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    sources = _open_outermost(visible)
    devices = {f"/dev/{name}": os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    _mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, b"size=4m,nr_inodes=8192,mode=755")
    for folder in ("/proc", *PRIVATE_FOLDERS):
        Path(STAGE + folder).mkdir(parents=True, exist_ok=True)
    for path, descriptor in sources.items():
        _bind(descriptor, STAGE + path)
        _restrict(STAGE + path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    for path, descriptor in devices.items():
        _bind(descriptor, STAGE + path)
    _mount("proc", f"{STAGE}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
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
    kept = _open_outermost([path for path in visible if _is_private(path)])
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


def _is_private(path: str) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in PRIVATE_FOLDERS)


def _open_outermost(paths: Sequence[str]) -> dict[str, int]:
    """Descriptors by path, without paths inside of others."""
    opened: dict[str, int] = {}
    for path in sorted(set(paths)):
        if not any(Path(path).is_relative_to(other) for other in opened):
            opened[path] = os.open(path, os.O_PATH)
    return opened


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
