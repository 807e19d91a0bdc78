"""Hostile programs are contained and told apart, and the next program on the same pool is unharmed.

One worker runs them all, one after the other; the slow tests do so in each way to isolate.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay.sandbox import isolation
from assay.sandbox.isolation import candidates
from assay.sandbox.limits import CallLimits, CallOutcome, Limits
from assay.sandbox.pool import WorkerPool
from tests.sandbox.hostile_programs import ATTACKS, workflow

ROOT = Path(__file__).parents[2]
SMALL = Limits(cpu_seconds=20, memory_bytes=512 << 20, file_bytes=4 << 20, processes=8)
CALLS = CallLimits(calls=32, together=4)
PARAMETERS = [{"name": n, "kind": "text", "default": None} for n in ("input", "instruction")]
OPERATORS = [{"name": "Custom", "parameters": PARAMETERS}]
HONEST = workflow('return (await self.custom(input=problem, instruction="")) ["response"]')


def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Says its name; "slow" takes its time and "large" says much."""
    time.sleep(0.3 if name == "slow" else 0)
    text = "x" * (1 << 19) if name == "large" else name
    return {"result": {"response": text}, "usage": {}}


def run(pool: WorkerPool, program: str, problem: str, deadline: float = 30.0) -> CallOutcome:
    arguments = {"program": program, "problem": problem, "entry_point": "", "operators": OPERATORS}
    return pool.run(arguments, host, deadline)


def ending(found: CallOutcome) -> str:
    if found.failure:
        return found.failure
    value = found.value
    return f"error {value['error']}" if "error" in value else f"answer {value['answer']}"


WAYS = [
    pytest.param(way, marks=[pytest.mark.slow] if n else [], id=way.tool)
    for n, way in enumerate(candidates())
]


@pytest.fixture(scope="module", params=WAYS)
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    refusal = isolation._try(request.param)
    if refusal:
        pytest.skip(f"{request.param.tool}: {refusal}")
    before = psutil.Process().children(recursive=True)
    function = "assay.labs.workflows.inside:run_workflow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_KEY", "SECRET")
        patch.setattr(isolation, "isolation_available", lambda: request.param)
        with WorkerPool(function, 1, SMALL, "namespaces", calls=CALLS) as served:
            yield served
    assert [p for p in psutil.Process().children(recursive=True) if p not in before] == []


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the attacks aim at, all of which is there and can be reached from outside."""
    folder = tmp_path_factory.mktemp("user")
    secret = folder / "gold.jsonl"
    secret.write_text("SECRET")
    secrets = [secret, folder, Path.home(), ROOT / "README.md", ROOT / "experiments"]
    assert all(path.exists() for path in secrets)
    name = f"assay-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        tcp, udp, unix, abstract = (
            stack.enter_context(socket.socket(*kind))
            for kind in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
            )
        )
        for server, address in (
            (tcp, ("127.0.0.1", 0)),
            (udp, ("127.0.0.1", 0)),
            (unix, str(folder / "socket")),
            (abstract, f"\0{name}"),
        ):
            server.bind(address)
        for server in (tcp, unix, abstract):
            server.listen()
        yield json.dumps(
            {
                "secrets": [str(path) for path in secrets],
                "writable": [str(folder / "x"), str(ROOT / "x"), str(Path.home() / "x")],
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                "unix": str(folder / "socket"),
                "abstract": name,
            }
        )


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_contained_and_told_apart_and_the_next_program_unharmed(
    pool: WorkerPool, targets: str, name: str
) -> None:
    attack = ATTACKS[name]
    found = run(pool, workflow(attack.body), targets, attack.deadline)
    assert ending(found) in attack.ends, found
    assert "SECRET" not in str(found)
    assert not [path for path in json.loads(targets)["writable"] if Path(path).exists()]
    assert ending(run(pool, HONEST, "next")) == "answer Custom"


def test_shared_memory_counts_whole_although_most_of_it_is_unmapped(pool: WorkerPool) -> None:
    """Of each 150 MiB a page stays mapped, and that without being in memory."""
    if isolation.isolation_available().tool != "unshare as root":
        pytest.skip("only root may see what is held and not mapped")
    body = """
    import mmap
    libc = ctypes.CDLL(None)
    for _ in range(6):
        kept = mmap.mmap(-1, 150 << 20)
        for at in range(0, len(kept), 1 << 20):
            kept[at : at + (1 << 20)] = b"x" * (1 << 20)
        start = ctypes.addressof(ctypes.c_char.from_buffer(kept))
        libc.munmap(ctypes.c_void_p(start + 4096), ctypes.c_size_t((150 << 20) - 4096))
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(4096), 4)
        globals().setdefault("all_of_them", []).append(kept)
        time.sleep(0.1)
    time.sleep(5)
    return "kept"
    """
    assert ending(run(pool, workflow(body), "")) == "memory"
    assert ending(run(pool, HONEST, "next")) == "answer Custom"


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 40
