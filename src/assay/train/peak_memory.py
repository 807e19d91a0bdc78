"""The most memory that one step held: the GPU's where there is one, else this process's.

Resident memory holds everything that was ever touched and not given back, libraries included.
Where the system does not let the peak start again, it is the peak of the process so far.
"""

import resource
from pathlib import Path

import torch

PEAK, RESET = "VmHWM:", "5"
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def start_peak() -> None:
    """Let the peak start again from what is held now."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        CLEAR.write_text(RESET)
    except OSError:
        return  # `peak_memory_mb` then counts from the start of the process.


def peak_memory_mb() -> float:
    """MiB held at most since `start_peak`."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    try:
        return int(STATUS.read_text().split(PEAK)[1].split()[0]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
