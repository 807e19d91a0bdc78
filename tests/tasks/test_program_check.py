"""Programs that completions hold: what one did wrong it pays for, and none says its own verdict."""

import re

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.runs.judgement_journal import JudgementJournal
from assay.sandbox.isolation import isolation_available
from assay.sandbox.limits import CallOutcome, Limits
from assay.tasks.running import RewardRunner, program_check

ROW = Row("sum", (Message("user", "Print the sum."),), gold="7", extra={"input": "3 4"})


def source(row: Row, completion: Completion) -> str | Reward:
    found = re.search(r"```python\n(.*?)```", completion.text, re.DOTALL)
    return found[1] if found else Reward(0.0, why="no program", outcome="no program")


def compare(row: Row, completion: Completion, output: str) -> Reward:
    if output == "break the comparison":
        raise RuntimeError("the lab's own fault")
    return Reward(float(output.strip() == row.gold), facts={"output": output})


def numbers(row: Row) -> str:
    return row.extra["input"]


PROGRAMS = {
    "right": ("print(sum(map(int, input().split())))", 1.0, ""),
    "wrong": ("print(8)", 0.0, ""),
    "exits": ("import sys\nprint(7)\nsys.exit()", 1.0, ""),
    "raises": ("1 / 0", 0.0, "program failed: ZeroDivisionError: division by zero"),
    "no Python": ("print(", 0.0, "program failed: SyntaxError"),
    "exits badly": ("print(7)\nraise SystemExit(3)", 0.0, "program failed: SystemExit: 3"),
    "hangs": ("while True: pass", 0.0, "timed out: still running at its deadline"),
    "catches all": (
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        *(0.0, "timed out: still running at its deadline"),
    ),
    "dies": ("import os\nos._exit(0)", 0.0, "checker crashed: ended with exit code 0"),
    "eats memory": ("x = 'x' * (1 << 33)", 0.0, "out of memory"),
    "floods": ("while True: print('x' * 100000)", 0.0, ""),
    "long": ("#" * 3000, 0.0, "too long: 3001 characters, more than 3000"),
    "forges": (
        "import os, json\n"
        "os.write(3, json.dumps({'value': {'value': 1.0}}).encode() + b'\\n')\nos._exit(0)",
        *(0.0, "checker crashed: its process answered in another form"),
    ),
    "seeks gold": (
        "import gc\nprint([o for o in gc.get_objects() if isinstance(o, dict) and 'gold' in o])",
        *(0.0, ""),
    ),
}
LIMITS = Limits(memory_bytes=400 << 20)


@pytest.mark.parametrize(
    "sandbox", [pytest.param("limits-only", marks=pytest.mark.slow), "namespaces"]
)
def test_a_program_earns_by_its_output_and_nothing_for_what_it_did_wrong(sandbox) -> None:
    if sandbox == "namespaces" and not isolation_available().tool:
        pytest.skip("no namespaces on this machine")
    check = program_check(source, compare, read=numbers, longest=3000, limits=LIMITS)
    pairs = [(ROW, Completion(f"```python\n{text}\n```")) for text, _, _ in PROGRAMS.values()]
    with RewardRunner(check, 1.0, workers=2, sandbox=sandbox) as runner:
        found = dict(zip(PROGRAMS, runner.score(pairs), strict=True))
        (again,) = runner.score(pairs[:1])
    assert {name: reward.value for name, reward in found.items()} == {
        name: value for name, (_, value, _) in PROGRAMS.items()
    }
    for name, (_, _, why) in PROGRAMS.items():
        assert found[name].why.startswith(why), name
    assert again.value == 1.0, "the next program was harmed"
    assert found["right"].facts == {"output": "7\n"}
    assert "'7'" not in str(found["seeks gold"].facts["output"])


def test_the_reward_says_what_a_failing_program_earns_and_the_lab_abstains_where_it_fails() -> None:
    def failed(row: Row, completion: Completion, failure: CallOutcome) -> Reward:
        return Reward(-0.5, why=failure.why, outcome=str(failure.failure))

    check = program_check(source, compare, failed=failed)
    texts = ["```python\n1/0\n```", "none", "```python\nprint('break the comparison', end='')\n```"]
    with RewardRunner(check, 5.0, sandbox="limits-only") as runner:
        raised, absent, broken = runner.score([(ROW, Completion(text)) for text in texts])
    assert (raised.value, raised.outcome) == (-0.5, "program")
    assert (absent.value, absent.outcome) == (0.0, "no program")
    assert (broken.value, broken.why) == (None, "exception: RuntimeError: the lab's own fault")


def test_outcomes_of_programs_are_journalled(tmp_path) -> None:
    check = program_check(source, compare, read=numbers)
    pair = (ROW, Completion("```python\nimport random\nprint(random.random())\n```", id="1/sum#0"))
    rewards = []
    for _ in range(2):
        journal = JudgementJournal(tmp_path / "j.jsonl", "hash")
        with RewardRunner(check, 5.0, sandbox="limits-only", journal=journal) as runner:
            rewards += runner.score([pair])
    assert rewards[0] == rewards[1]
