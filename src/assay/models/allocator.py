"""Asks the C library to keep freed memory instead of handing it back to the system.

A training step allocates and frees the same large tensors again and again. On Linux each of them
would be mapped anew and every page faulted in, which costs more than the arithmetic of the cheap
operations on it, and most in a virtual machine, whose host may have to find the page too. Other
systems, and other C libraries than glibc, are left as they are.
"""

import ctypes
import platform
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
KEEP_ALL = 2**31 - 1


def keep_freed_memory() -> None:
    """Serve every tensor from a heap that is never trimmed.

    Only allocations made later are concerned; calling it again changes nothing.
    """
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, KEEP_ALL)
