"""Turns the namespaces that `unshare` made into a private, read-only world with system calls.

To be called once by the first process in new user, mount, pid and network namespaces (`isolation`
makes them). It makes no namespace itself and is not needed under bubblewrap, which does the same.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
SYS_MOUNT_SETATTR = 442  # the same number on every architecture
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION_3 = 0x20080522

PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/run")
"""Replaced by empty memory file systems of limited size; sockets of services live in the last."""
DEVICES = ("null", "zero", "full", "random", "urandom")
"""All that is left of /dev: root may otherwise write to raw disks, which are its own files."""
SIZE = b"size=64m,mode=1777"

_libc = ctypes.CDLL(None, use_errno=True)


def enter_private_root(keep: Sequence[str]) -> None:
    """Everything read-only, private /tmp, /dev and /proc, and no capabilities left.

    Paths in `keep` that lie in a private folder stay visible there, read-only. Raises OSError when
    the kernel refuses a step.
    """
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    kept = _open_kept(keep)
    devices = {f"/dev/{name}": os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    _make_read_only("/")
    for folder in (*PRIVATE_FOLDERS, "/dev"):
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, SIZE)
    for path, descriptor in kept.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        _bind(descriptor, path)
        _make_read_only(path)
    for path, descriptor in devices.items():
        Path(path).touch()
        _bind(descriptor, path)
    Path("/dev/shm").mkdir(mode=0o1777)
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # Root's own files in /proc, sysrq-trigger among them, need no capability to be written.
    _make_read_only("/proc")
    _drop_capabilities()


def _open_kept(keep: Sequence[str]) -> dict[str, int]:
    """Descriptors of the folders that the private ones would hide, outermost first."""
    hidden = sorted(
        path
        for path in keep
        if any(Path(path).is_relative_to(folder) for folder in PRIVATE_FOLDERS)
        and Path(path).is_dir()
    )
    outermost: dict[str, int] = {}
    for path in hidden:
        if not any(Path(path).is_relative_to(other) for other in outermost):
            outermost[path] = os.open(path, os.O_PATH)
    return outermost


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: bytes | None = None
) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), data), f"mount {target}")


def _bind(descriptor: int, target: str) -> None:
    # Through the descriptor, because the path itself is covered by now.
    _mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND | MS_REC)
    os.close(descriptor)


def _make_read_only(path: str) -> None:
    """mount_setattr(2), recursively: unlike a remount it keeps every other flag (Linux 5.12)."""
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), AT_RECURSIVE, attributes, len(attributes)
    )
    _check(result, f"mount_setattr {path}")


def _drop_capabilities() -> None:
    """With them the called code could undo all of the above."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        _check(_libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), f"capability {capability}")
    header, nothing = struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    _check(_libc.capset(header, nothing), "capset")


def _check(result: int, step: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{step}: {os.strerror(code)}")
