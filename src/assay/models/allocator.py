"""Asks the C library to keep freed memory instead of handing it back to the system.

A training step allocates and frees the same large tensors again and again. On Linux each of them
would be mapped anew and every page faulted in, which costs more than the arithmetic of the cheap
operations on it. Other systems, and other C libraries than glibc, are left as they are.
"""

import ctypes
import os
import platform
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEEP_ALL = 2**31 - 1
LARGEST = 32 << 20
"""The highest threshold that glibc takes: larger tensors are always mapped anew."""


def keep_freed_memory() -> None:
    """Serve tensors from a heap that is never trimmed, the largest in huge pages.

    Only allocations made later are concerned; calling it again changes nothing.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch at its first allocation
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST)
        libc.mallopt(M_TRIM_THRESHOLD, KEEP_ALL)
