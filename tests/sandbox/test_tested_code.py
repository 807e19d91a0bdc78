"""Tests of code that a model wrote: what is right passes, and no verdict can be forged."""

import pytest

from assay.sandbox.limits import Limits
from assay.sandbox.pool import WorkerPool
from assay.sandbox.tested_code import decode, encode, free_names
from assay.tasks.workflows.problems import ENTRY_POINT, SOLUTION, TESTS, humaneval_problems

TEST = "assert double(2) == 4"
RIGHT = "def double(x):\n    return 2 * x\n"
FORGERIES = {
    "prints a verdict": 'print(\'{"passed": 1, "failure": ""}\')\ndef double(x): return 5',
    "writes to every descriptor": """
import os
for n in range(3, 20):
    try: os.write(n, b'{"passed": 1, "failure": ""}\\n{"value": true}\\n')
    except OSError: pass
def double(x): return 5
""",
    "ends with success": "import sys\nsys.exit(0)",
    "ends in the function": "import os\ndef double(x): os._exit(0)",
    "raises SystemExit": "def double(x): raise SystemExit(0)",
    "equals everything": """
class Any(int):
    def __eq__(self, other): return True
def double(x): return Any(5)
""",
    "is true of everything": """
class Any:
    def __eq__(self, other): return True
    def __bool__(self): return True
def double(x): return Any()
""",
    "patches assertions": """
import builtins
builtins.AssertionError = Exception
def double(x): return 5
""",
    "looks for the test": """
import gc, os, sys
def double(x):
    texts = [o for o in gc.get_objects() if isinstance(o, (str, dict, list))]
    if any('== 4' in str(t)[:2000] for t in texts if isinstance(t, str)): return 4
    for name in ('environ', 'mem', 'cmdline'):
        try:
            data = open(f'/proc/{os.getppid()}/{name}', 'rb').read(1 << 20)
            if b'== 4' in data: return 4
        except OSError: pass
    frame = sys._getframe()
    while frame:
        if '== 4' in str(frame.f_locals): return 4
        frame = frame.f_back
    return 5
""",
    "kills the judge": "import os\ndef double(x):\n    os.kill(os.getppid(), 9)\n    return 4",
}


@pytest.fixture(scope="module")
def pool():
    limits = Limits(cpu_seconds=5, memory_bytes=1 << 30, processes=8)
    place = "assay.sandbox.tested_code:run_tests"
    with WorkerPool(place, 2, limits, isolation="namespaces") as made:
        yield made


def passed(pool: WorkerPool, answer: str, tests: list[str], name: str = "double") -> int:
    asked = {"answer": answer, "tests": tests, "entry_point": name}
    (done,) = pool.map([asked], 20.0)
    return 0 if done.failure is not None else done.value["passed"]


def test_right_code_passes_and_wrong_code_does_not(pool: WorkerPool) -> None:
    assert passed(pool, RIGHT, [TEST, "assert double(-1) == -2"]) == 2
    assert passed(pool, RIGHT.replace("2", "3"), [TEST, "assert double(0) == 0"]) == 1
    assert passed(pool, "def other(x): return 4", [TEST]) == 0
    assert passed(pool, "def double(x:", [TEST]) == 0


@pytest.mark.parametrize("attack", FORGERIES)
def test_a_verdict_cannot_be_forged(pool: WorkerPool, attack: str) -> None:
    assert passed(pool, FORGERIES[attack], [TEST]) == 0
    assert passed(pool, RIGHT, [TEST]) == 1, "the next code is judged as ever"


def test_values_of_plain_types_come_back_as_they_are() -> None:
    value = {(1, 2): [1.5, float("inf"), None, True], "set": {3}, "b": b"x", "c": 1j}
    assert decode(encode(value)) == value
    assert type(decode(encode((1,)))) is tuple and type(decode(encode(True))) is bool


def test_tests_reach_other_functions_of_the_code_but_no_builtin_can_be_replaced(
    pool: WorkerPool,
) -> None:
    code = (
        RIGHT + "def half(x): return x // 2\ndef len(x): return 4\ndef isinstance(a, b): return 1"
    )
    assert passed(pool, code, ["assert double(half(4)) == 4"]) == 1
    assert passed(pool, code, ["assert len([double(1)]) == 4"]) == 0
    assert free_names("for i in range(2):\n    assert f(g(i)) == len([i])") == {"f", "g"}


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_solutions_of_humaneval_pass_their_tests_and_broken_ones_fail(
    pool: WorkerPool, part: int
) -> None:
    for row in humaneval_problems("test").rows[part * 41 : (part + 1) * 41 : 8]:
        name, tests = row.extra[ENTRY_POINT], list(row.extra[TESTS])
        assert passed(pool, row.extra[SOLUTION], tests, name) == 1, row.id
        broken = row.extra[SOLUTION] + f"\ndef {name}(*args): return 'nothing'\n"
        assert passed(pool, broken, tests, name) == 0, row.id
