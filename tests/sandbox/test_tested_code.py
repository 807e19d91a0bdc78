"""Tests of code that a model wrote: what is right passes, and no verdict can be forged."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from assay.data.formats.formats import read_rows
from assay.data.formats.problem_rows import ENTRY_POINT, PUBLIC_TESTS, SOLUTION, TESTS
from assay.data.row import Row
from assay.labs.workflows.task import human_eval
from assay.sandbox.limits import Limits
from assay.sandbox.pool import WorkerPool
from assay.sandbox.tested_code import free_names

TEST = "assert double(2) == 4"
RIGHT = "def double(x):\n    return 2 * x\n"
CODE = tomllib.loads(Path(__file__).with_name("tested_code.toml").read_text(encoding="utf-8"))
FORGERIES = CODE["forgeries"]


@pytest.fixture(scope="module")
def pool():
    limits = Limits(cpu_seconds=5, memory_bytes=1 << 30, processes=8)
    place = "tests.sandbox.hasty:run_tests"
    with WorkerPool(place, 2, limits, isolation="namespaces") as made:
        yield made


def passed(
    pool: WorkerPool, answer: str, tests: list[str], name: str = "double", deadline: float = 20.0
) -> int:
    asked = {"answer": answer, "tests": tests, "entry_point": name}
    (done,) = pool.map([asked], deadline)
    return 0 if done.failure is not None else done.value["passed"]


def test_right_code_passes_and_wrong_code_does_not(pool: WorkerPool) -> None:
    assert passed(pool, RIGHT, [TEST, "assert double(-1) == -2"]) == 2
    assert passed(pool, RIGHT.replace("2", "3"), [TEST, "assert double(0) == 0"]) == 1
    assert passed(pool, "def other(x): return 4", [TEST]) == 0
    assert passed(pool, "def double(x:", [TEST]) == 0


@pytest.mark.parametrize("attack", FORGERIES)
def test_a_verdict_cannot_be_forged(pool: WorkerPool, attack: str) -> None:
    # "replies in advance" guesses the first value; it cannot know the second.
    tests = [f"import colorsys\n{TEST}\nassert double(9) == 18"]
    deadline = 3.0 if attack == "stops the judge" else 20.0
    assert passed(pool, FORGERIES[attack], tests, deadline=deadline) == 0
    assert passed(pool, RIGHT, tests) == 1, "the next code is judged as ever"


HELPED = """
def encode(s): return s[::-1]
def check(candidate):
    for text in ("abc", "de"):
        assert candidate(encode(text)) == text
"""


def test_code_cannot_replace_the_functions_of_a_test(pool: WorkerPool) -> None:
    right, agreed = "def decode(s): return s[::-1]", "def decode(s): return s"
    assert passed(pool, right, [HELPED], "decode") == 1
    assert passed(pool, agreed + "\ndef encode(s): return s", [HELPED], "decode") == 0


def counts(pool: WorkerPool, answer: str, test: str) -> tuple[int, int, int]:
    asked = {"answer": answer, "tests": [test], "entry_point": "double"}
    (done,) = pool.map([asked], 20.0)
    return done.value["passed"], done.value["held"], done.value["asserted"]


RAISES = "from unittest import TestCase as T\n"


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("assert double(1) == 3\nassert double(2) == 4", (0, 1, 2)),
        ("for n in range(4):\n    assert double(n) == 2 * n", (1, 4, 4)),
        ("assert True, 'says nothing'\nassert double(1) == 2", (1, 1, 1)),
        ("if double(1) == 2:\n    assert False", (0, 0, 1)),
        ("for n in []:\n    assert double(n) == 2 * n", (0, 0, 1)),
        ("def check(candidate):\n    assert candidate(1) == 2\n    raise ValueError", (0, 1, 2)),
        ("try:\n    double()\n    assert False\nexcept Exception:\n    pass", (1, 1, 1)),
        ("try:\n    double(1)\nexcept ValueError:\n    pass\nelse:\n    assert False", (0, 0, 1)),
        ("def test_it():\n    assert double(1) == 7", (0, 0, 1)),
        (f"{RAISES}with T().assertRaises(TypeError):\n    double()", (1, 1, 1)),
        (f"{RAISES}with T().assertRaises(TypeError):\n    double(1)", (0, 0, 1)),
    ],
)
def test_every_assertion_that_is_reached_counts(
    pool: WorkerPool, test: str, found: tuple[int, int, int]
) -> None:
    assert counts(pool, RIGHT, test) == found


EXPECTING = """def check(candidate):
    try:
        candidate(-1)
        raised = False
    except {}:
        raised = True
    assert raised
"""
"""A test that wants an exception."""
CAUGHT = ("ValueError", "Exception")
EVERYTHING = ("BaseException", "(SystemExit, KeyboardInterrupt)")
RAISING = "class Negative(ValueError): pass\ndef double(x): raise {}"


@pytest.mark.parametrize("caught", CAUGHT)
@pytest.mark.parametrize("raised", ["ValueError('below 0')", "Negative", "UnicodeError"])
def test_code_that_raises_what_is_expected_passes(
    pool: WorkerPool, caught: str, raised: str
) -> None:
    assert passed(pool, RAISING.format(raised), [EXPECTING.format(caught)]) == 1


@pytest.mark.parametrize("code", [RIGHT, RAISING.format("KeyError"), RAISING.format("Other")])
def test_code_that_raises_nothing_or_something_else_fails(pool: WorkerPool, code: str) -> None:
    assert passed(pool, code, [EXPECTING.format("ValueError")]) == 0


NOTHING = CODE["nothing"] | {"hangs": FORGERIES["hangs"]}
"""Code that neither returns nor raises."""


@pytest.mark.parametrize("code", NOTHING)
def test_no_test_that_wants_an_exception_is_content_with_less(pool: WorkerPool, code: str) -> None:
    tests = [EXPECTING.format(caught) for caught in (*CAUGHT, *EVERYTHING)]
    tests.append("try:\n    double(-1)\nexcept:\n    pass")
    assert passed(pool, NOTHING[code], tests) == 0


def test_an_exception_keeps_its_arguments_and_ends_no_loop_of_a_test(pool: WorkerPool) -> None:
    told = "try:\n    double(1)\nexcept KeyError as error:\n    told = error.args"
    told += "\nassert told == ('a', 2)"
    assert passed(pool, RAISING.format("KeyError('a', 2)"), [told]) == 1
    over = "assert all(map(lambda x: double(x) == 2 * x, [1, 2]))"
    assert passed(pool, RAISING.format("StopIteration"), [over]) == 0
    unfit = "x = UnicodeDecodeError('utf8', b'', 0, 1, 'y')\nx.args = ()\ndef double(_): raise x"
    assert passed(pool, unfit, [EXPECTING.format("Exception")]) == 1


def test_a_function_named_check_is_called_by_its_tests_alone(pool: WorkerPool) -> None:
    assert passed(pool, RIGHT.replace("double", "check"), ["assert check(2) == 4"], "check") == 1


def without_pool(code: str, test: str, first: str = "") -> int:
    """How many tests pass in a Python of its own, which begins with these statements."""
    given = f"{code!r}, [{test!r}], 'double'"
    run = f"from assay.sandbox.tested_code import run_tests\n{first}\n"
    run += f"print(run_tests({given})['passed'])"
    found = subprocess.run([sys.executable, "-c", run], capture_output=True, check=True)
    return int(found.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a call of Linux")
def test_no_process_of_the_same_user_reads_the_tests_memory() -> None:
    """Without the pool, whose processes are all so."""
    test = (
        "import ctypes\nassert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0\nassert double(2) == 4"
    )
    assert without_pool(RIGHT, test) == 1


def test_tests_import_nothing_from_a_folder_that_the_code_made(tmp_path: Path) -> None:
    """Without the pool, whose folders no code can make."""
    made = tmp_path / "made"
    code = f"""
import os
def double(x):
    os.makedirs({str(made)!r}, exist_ok=True)
    with open({str(made / "colorsys.py")!r}, "w") as file: file.write("rgb_to_hsv = 'forged'")
    return x
"""
    test = "double(1)\nimport colorsys\nassert colorsys.rgb_to_hsv == 'forged'"
    first = f"import sys\nsys.path.insert(0, {str(made)!r})"
    assert without_pool(code, test, first) == 0 and made.exists()


def test_a_call_that_hangs_fails_what_comes_after_it_and_keeps_what_came_before(
    pool: WorkerPool,
) -> None:
    code = RIGHT + "_double = double\ndef double(x):\n    while x == 2: pass\n    return _double(x)"
    test = "assert double(1) == 2\nassert double(2) == 4\nassert double(3) == 6"
    assert counts(pool, code, test) == (0, 1, 3)


@pytest.mark.parametrize("what", CODE["passes"])
def test_what_passes_in_one_process_passes_and_what_returns_nothing_does_not(
    pool: WorkerPool, what: str
) -> None:
    code, test = CODE["passes"][what].values()
    names: dict = {"__name__": "one_process"}
    exec(code, names)
    exec(test, names)
    assert passed(pool, code, [test], "f") == 1
    assert passed(pool, code + "\ndef f(*a, **k): return None", [test], "f") == 0


ALIKE = """
class Alike:
    def __getattr__(self, name): return lambda *a: True
    __eq__ = __lt__ = __gt__ = __ge__ = __le__ = __contains__ = lambda *a: True
    __sub__ = __rsub__ = __abs__ = __round__ = __mod__ = __xor__ = lambda *a: 0
    __truediv__ = __rfloordiv__ = lambda *a: 1
    __hash__ = lambda self: hash(4)
    __index__ = __int__ = lambda self: 5
def f(x): return Alike()
"""


@pytest.mark.parametrize(
    "assertion",
    [
        *("f(2) == 4", "4 == f(2)", "not f(2) != 4", "f(2) in [4]", "f(2) in {4}", "[f(2)] == [4]"),
        *("abs(f(2) - 4) < 1e-6", "f(2) < 5", "f(2) >= 4", "round(f(2)) == 4", "int(f(2)) == 4"),
        *("isinstance(f(2), int)", "{'a': f(2)} == {'a': 4}", "max(f(2), 3) == 4"),
        *("(f(2),) == (4,)", "f(2) - 4 == 0", "4 - f(2) == 0", "{4: 1}.get(f(2))"),
        *("f(2) / 4 == 1", "f(2) % 4 == 0", "f(2) ^ 4 == 0", "4 // f(2) == 1"),
    ],
)
def test_no_object_of_the_code_equals_what_a_test_expects(pool: WorkerPool, assertion: str) -> None:
    assert passed(pool, ALIKE, [f"assert {assertion}"], "f") == 0


def test_a_module_never_leaves_the_tests(pool: WorkerPool) -> None:
    assert passed(pool, "def f(m): return 1", ["import math\nassert f(math) == 1"], "f") == 0


def test_tests_reach_other_functions_of_the_code_but_no_builtin_can_be_replaced(
    pool: WorkerPool,
) -> None:
    code = (
        RIGHT + "def half(x): return x // 2\ndef len(x): return 4\ndef isinstance(a, b): return 1"
    )
    assert passed(pool, code, ["assert double(half(4)) == 4"]) == 1
    assert passed(pool, code, ["assert len([double(1)]) == 4"]) == 0
    assert free_names("for i in range(2):\n    assert f(g(i)) == len([i])") == {"f", "g"}


def judged(pool: WorkerPool, row: Row, code: str, tests: str = TESTS) -> bool:
    asked = list(row.extra[tests])
    return passed(pool, code, asked, row.extra[ENTRY_POINT]) == len(asked)


def broken(row: Row) -> str:
    """The solution with its function's value replaced by another one of the same type."""
    name = row.extra[ENTRY_POINT]
    return (
        row.extra[SOLUTION]
        + f"""
_right = {name}
def {name}(*args):
    value = _right(*args)
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float)): return value + abs(value) + 1
    if isinstance(value, (str, list, tuple)): return value + type(value)(['x'])
    return 'nothing'
""".replace("type(value)(['x'])", "('x' if isinstance(value, str) else type(value)(['x']))")
    )


@pytest.mark.slow
def test_all_solutions_of_humaneval_and_mbpp_pass_and_all_broken_ones_fail(
    pool: WorkerPool, shared: Path
) -> None:
    file = shared / "data" / "workflow" / "aflow_mbpp_validate.jsonl"
    rows = [*human_eval("test").rows, *read_rows(file, "mbpp")]
    assert len(rows) == 164 + 43
    assert [r.id for r in rows if not judged(pool, r, r.extra[SOLUTION])] == []
    assert [r.id for r in rows if not judged(pool, r, r.extra[SOLUTION], PUBLIC_TESTS)] == []
    assert [r.id for r in rows if judged(pool, r, broken(r))] == []
    assert [r.id for r in rows if judged(pool, r, "")] == []
    turned = zip(rows, [*rows[1:], rows[0]], strict=True)
    assert [r.id for r, other in turned if judged(pool, r, other.extra[SOLUTION])] == []
