"""What a call in a worker may use, and what can come of it: plain frozen data.

Nothing here starts, limits or kills a process; `call_process` applies the limits.
"""

from dataclasses import dataclass
from typing import Any, Literal

FailureKind = Literal["deadline", "crash", "exception", "memory", "cpu", "processes", "output"]
"""Why a call gave no value: out of wall time; ended without an answer (signal, `os._exit`); raised;
out of address space; out of CPU time; too many processes; an answer over the size limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call. They hold for each process of the call, unless said otherwise."""

    cpu_seconds: int = 60
    """CPU time (RLIMIT_CPU)."""
    memory_bytes: int = 2 << 30
    """Address space (RLIMIT_AS). All processes of the call may hold as much together, which the
    supervisor counts as often as it counts them."""
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
class Outcome:
    """What came of one call: a value, or the kind of failure and a sentence about it."""

    value: Any = None
    """The function's JSON value; None also when `failure` is set."""
    failure: FailureKind | None = None
    why: str = ""
