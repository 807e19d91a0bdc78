"""The limits of a worker's call, the system calls it may not make, and its possible outcomes.

The filter lists what is refused, not what is allowed, because any Python program has to run:
calls into other processes, new namespaces and mounts, memory beside the limits, interfaces that
have had holes in most kernels (io_uring, userfaultfd, bpf, perf, keys), the machine's clocks and
modules, and sockets of families that no network namespace holds (vsock) or that nobody needs. It
needs libseccomp 2.5 and a kernel with seccomp filters (CONFIG_SECCOMP_FILTER, in every
distribution's since Linux 3.5). `call_process` applies both; nothing is started or killed here.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

FailureKind = Literal[
    "deadline",
    "crash",
    "exception",
    "memory",
    "cpu",
    "processes",
    "output",
    "calls",
    "protocol",
    "program",
    "length",
]
"""Why a call gave no value: out of wall time; ended without an answer (signal, `os._exit`); raised;
out of address space; out of CPU time; too many processes; an answer over the size limit. Of a
program that asks the lab: too many or too large calls; abuse of the pipe on which it asks. Rewards
add: a program that a model wrote raised; a completion that is too long to be looked at."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call, for each of its processes unless noted otherwise."""

    cpu_seconds: int = 60
    """CPU time (RLIMIT_CPU). All processes of the call may take as much together, which the
    supervisor counts as often as it counts them."""
    memory_bytes: int = 2 << 30
    """Address space (RLIMIT_AS). All processes of the call may hold as much together, shared memory
    and the files of its private folders included, which the supervisor counts as often as it counts
    them."""
    file_bytes: int = 16 << 20
    """Size of one written file (RLIMIT_FSIZE); beyond it a write raises OSError."""
    open_files: int = 64
    """Open files (RLIMIT_NOFILE)."""
    processes: int = 32
    """Processes of the whole call. The supervisor counts them ten times a second and kills the call
    above the limit: RLIMIT_NPROC does nothing for root and counts a user's other processes too."""
    output_bytes: int = 1 << 20
    """Length of the answer as JSON."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of what a program may ask the lab."""

    calls: int = 32
    """Calls in all."""
    together: int = 16
    """Calls that are open at once."""
    request_bytes: int = 1 << 18
    """Length of one call as JSON."""
    reply_bytes: int = 1 << 20
    """Length of one answer as JSON; a longer one is refused, which the program is told."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of one call: a value, or the kind of failure and a sentence about it."""

    value: Any = None
    """The function's JSON value; None also when `failure` is set."""
    failure: FailureKind | None = None
    why: str = ""


if TYPE_CHECKING:
    from pyseccomp import SyscallFilter

REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp"),
    *("pidfd_getfd", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    *("move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf"),
    *("perf_event_open", "keyctl", "add_key", "request_key", "open_by_handle_at"),
    *("name_to_handle_at", "init_module", "finit_module", "delete_module", "kexec_load"),
    *("kexec_file_load", "reboot", "swapon", "swapoff", "settimeofday", "clock_settime"),
    *("clock_adjtime", "adjtimex", "acct", "quotactl", "syslog", "personality", "vhangup"),
    *("sethostname", "setdomainname", "fanotify_init", "move_pages", "migrate_pages"),
    # Memory that no limit of address space or of files counts.
    *("shmget", "semget", "msgget", "mq_open", "memfd_create", "memfd_secret"),
)
OF_A_PROCESS = {
    "prlimit64": 0,
    "setpriority": 1,
    "ioprio_set": 1,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
}
"""Calls that change a process's limits or rank, by the argument that names it: 0 is the caller. A
call in a user namespace has the user of its supervisor, so that it could change those of both."""
NEW_NAMESPACES = (
    *(0x00000080, 0x00020000, 0x02000000, 0x04000000),  # time, mount, cgroup, uts
    *(0x08000000, 0x10000000, 0x20000000, 0x40000000),  # ipc, user, pid, net
)
"""Flags of clone(2)."""
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
"""All of which reach nothing outside the call's network namespace and private folders."""


def system_call_filter() -> SyscallFilter:
    """The filter, to be loaded by each call: `load()` also holds for all that it starts.

    Raises RuntimeError without libseccomp, OSError where it is older than the calls named here.
    """
    # Here, because it looks for the library when imported: "limits-only" works without it.
    import pyseccomp

    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        rules.add_rule(refuse, name)
    for name, place in OF_A_PROCESS.items():
        rules.add_rule(refuse, name, pyseccomp.Arg(place, pyseccomp.NE, 0))
    for flag in NEW_NAMESPACES:
        rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    # Its flags lie in memory, which no filter can read; where it is missing, libc uses clone.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for call in ("socket", "socketpair"):
        for family in range(max(FAMILIES)):
            if family not in FAMILIES:
                rules.add_rule(refuse, call, pyseccomp.Arg(0, pyseccomp.EQ, family))
        rules.add_rule(refuse, call, pyseccomp.Arg(0, pyseccomp.GT, max(FAMILIES)))
    return rules
