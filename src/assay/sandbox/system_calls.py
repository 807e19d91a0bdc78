"""The system calls that code a model wrote may not make, as a seccomp filter.

A list of what is refused, not of what is allowed: any Python program has to run. Refused are calls
into other processes, new namespaces and mounts, memory beside the limits, interfaces that have had
holes in most kernels (io_uring, userfaultfd, bpf, perf, keys), the machine's clocks and modules,
and sockets of families that no network namespace holds (vsock) or that nobody needs. Needs
libseccomp 2.5 and a kernel with seccomp filters (CONFIG_SECCOMP_FILTER, in every distribution's
since Linux 3.5).
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

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

    found = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        found.add_rule(refuse, name)
    for name, place in OF_A_PROCESS.items():
        found.add_rule(refuse, name, pyseccomp.Arg(place, pyseccomp.NE, 0))
    for flag in NEW_NAMESPACES:
        found.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    # Its flags lie in memory, where no filter sees them; told that it is missing, libc uses clone.
    found.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for call in ("socket", "socketpair"):
        for family in range(max(FAMILIES)):
            if family not in FAMILIES:
                found.add_rule(refuse, call, pyseccomp.Arg(0, pyseccomp.EQ, family))
        found.add_rule(refuse, call, pyseccomp.Arg(0, pyseccomp.GT, max(FAMILIES)))
    return found
