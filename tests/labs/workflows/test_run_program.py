"""What becomes of a program: each outcome, by real programs over a scripted model."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.lab.models.metering import MeteredModel
from assay.labs.workflows.execution import ScoreTerms, facts_of, solved
from assay.labs.workflows.programs.validate import validate
from assay.labs.workflows.run_program import CODE as DIRECT_CODE
from assay.labs.workflows.run_program import FIXED, TEST_DRIVEN, RunSettings, run_all, visit_of
from assay.labs.workflows.task import TASK, fenced, human_eval
from assay.rl.policy import Sampling
from assay.tasks.helper_model import HelperAnswer, OverBudget
from assay.tasks.task import BenchmarkOptions
from tests.experiments.files import shipped
from tests.scripted_helper import ScriptedHelper, ScriptRule

QUESTION = "Allan brought two balloons and Jake four balloons. How many did they have?"
ROW = Row(
    "asdiv-4",
    (Message("user", QUESTION),),
    gold="6",
    extra={"problem": QUESTION, "problem_type": "math", "entry_point": "", "level": "1"},
)
CODE = human_eval("test").rows[0]
RULES = (
    ScriptRule(prompt="solve\\(\\)", answer="```python\ndef solve():\n    return 2 + 4\n```"),
    ScriptRule(prompt="Is the solution right", answer="False: it is not"),
    ScriptRule(prompt="better solution", answer="<solution>6</solution>"),
    ScriptRule(prompt="[Ll]etter", answer="A"),
    ScriptRule(prompt="Python function", answer=f"```python\n{CODE.extra['solution']}\n```"),
    ScriptRule(prompt="", answer="<thought>2 + 4</thought><answer>6</answer>"),
)
SCRIPT = ScriptedHelper("executor", Path("none"), RULES)
HEAD = FIXED["direct"].partition("        result =")[0]


def model(*rules: ScriptRule) -> MeteredModel:
    return MeteredModel(
        "executor", ScriptedHelper("executor", Path("none"), rules or RULES), Sampling(0.0)
    )


def program(body: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in body.splitlines())


def attempt(source: str, settings: RunSettings = RunSettings(), row=ROW, asked=None):  # noqa: B008
    text = source if source.startswith("no code") else fenced(source)
    (found,) = run_all([(row, Completion(text, id="3/a#0"))], asked or model(), settings)
    return found


@pytest.mark.parametrize("name", [name for name in FIXED if name != "custom"])
def test_fixed_workflows_are_valid_and_solve_a_problem_that_the_model_solves(name: str) -> None:
    assert validate(FIXED[name]) == ()
    found = attempt(FIXED[name])
    assert (found.outcome, found.score) == ("solved", 1.0)
    assert "6" in found.answer
    assert all(not call.error and len(call.answers) == 1 for call in found.calls)


@pytest.mark.parametrize("source", [DIRECT_CODE, TEST_DRIVEN])
def test_code_workflows_pass_the_hidden_tests(source: str) -> None:
    assert validate(source, code_problem=True) == ()
    assert attempt(source, row=CODE).score == 1.0


CASES = {
    "wrong": ('logger.error("no", exc_info=True)\nreturn "7"', "wrong", ""),
    "no program": (None, "invalid program", "no_program"),
    "raised": ('return {}["x"]', "invalid program", "raised KeyError"),
    "operator": (
        'r = await self.answer_generate(input=problem)\nreturn r["answer"]',
        "operator error",
        "operator malformed",
    ),
    "timeout": ("while True:\n    pass\nreturn problem", "timeout", "limit deadline"),
    "calls": (
        "for _ in range(9):\n    await self.answer_generate(input=problem)\nreturn problem",
        "invalid program",
        "limit calls",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_failure_has_its_outcome_and_kind(case: str) -> None:
    body, outcome, error = CASES[case]
    source = "no code at all" if body is None else program(body)
    asked = model(ScriptRule(prompt="", answer="no tags")) if case == "operator" else None
    found = attempt(source, RunSettings(seconds=1.0, calls=8), asked=asked)
    assert found.outcome == outcome, found
    assert found.error.startswith(error)
    assert (found.score is None) == (outcome != "wrong")


def test_a_model_that_fails_is_nobodys_doing() -> None:
    found = attempt(FIXED["direct"], asked=model(ScriptRule(prompt="", failure="HTTP 500")))
    assert (found.outcome, found.score) == ("executor failure", None)
    assert "HTTP 500" in found.why


def test_a_model_that_is_late_is_nobodys_doing(monkeypatch) -> None:
    answer = MeteredModel.answer
    monkeypatch.setattr(MeteredModel, "answer", lambda *own: (time.sleep(1), answer(*own))[1])
    found = attempt(FIXED["direct"], RunSettings(longest=0.3))
    assert (found.score, found.why) == (None, "the executor model did not answer in time")


class Spent(MeteredModel):
    """A model whose budget is spent."""

    def answer(self, batch) -> list[HelperAnswer]:
        raise OverBudget("the budget of the run is spent")


def test_a_spent_budget_stops_the_run() -> None:
    with pytest.raises(OverBudget, match="of the run"):
        attempt(FIXED["direct"], asked=Spent("executor", SCRIPT, Sampling(0.0)))


def test_a_fallback_answers_only_where_asked_for_and_never_earns() -> None:
    text = ScriptRule(prompt="", answer="6")
    plain = attempt("no code", asked=model(text))
    assert (plain.answer, plain.fallback) == ("", False)
    found = attempt("no code", RunSettings(fallback=True), asked=model(text))
    assert (found.answer, found.fallback) == ("6", True)
    assert (found.outcome, found.score) == ("invalid program", None)
    assert not found.calls and len(found.fallback_calls) == 1
    assert facts_of(found, ROW.extra)["operators"] == "", "of the program alone"
    wrong = attempt(program('return "7"'), RunSettings(fallback=True), asked=model(text))
    assert not wrong.fallback


class Noted(MeteredModel):
    """Keeps the keys of what it is asked."""

    keys: list = []  # noqa: RUF012

    def answer(self, batch) -> list[HelperAnswer]:
        self.keys.extend(each.key for each in batch)
        return super().answer(batch)


def test_programs_of_a_group_get_the_same_draws_and_those_of_other_steps_do_not() -> None:
    asked = Noted("executor", SCRIPT, Sampling(1.0))
    drawn = {}
    for id_ in ("3/a#0", "3/a#7", "4/a#0"):
        Noted.keys.clear()
        run_all(
            [(ROW, Completion(fenced(FIXED["self-consistency of 3"]), id=id_))],
            asked,
            RunSettings(),
        )
        drawn[id_] = list(Noted.keys)
    assert drawn["3/a#0"] == drawn["3/a#7"] != drawn["4/a#0"]
    assert len(set(drawn["3/a#0"])) == 4, "three answers are three draws"
    numbers = [(key.row, key.sample) for key in Noted.keys]
    assert len(set(numbers)) == len(numbers), "two calls of a program have draws of their own"


@pytest.mark.parametrize(("row", "completion"), [("a", "3/a#0"), ("7/x", "3/7/x#2")])
def test_a_step_and_a_repeat_are_visits_whatever_a_row_is_called(row, completion) -> None:
    assert visit_of(replace(ROW, id=row), Completion("", id=completion)) == "3"


FORGED = {
    "null": "import os\ndef solve():\n    os.write(3, b'{\"value\": null}\\n')",
    "half a pair in an error": 'def solve():\n    raise ValueError("\\ud800")',
}


@pytest.mark.parametrize("case", FORGED)
def test_code_that_writes_its_own_reply_spoils_its_own_program_alone(case: str) -> None:
    asked = model(ScriptRule(prompt="", answer=f"```python\n{FORGED[case]}\n```"))
    text, honest = fenced(FIXED["programmer"]), program('return "6"')
    pairs = [(ROW, Completion(each, id="3/a#0")) for each in (text, fenced(honest))]
    spoilt, other = run_all(pairs, asked, RunSettings())
    assert spoilt.outcome in ("operator error", "wrong"), spoilt
    assert other.outcome == "solved"


class Remembering(MeteredModel):
    """A priced model that was asked the same before."""

    remembered = False

    def answer(self, batch) -> list[HelperAnswer]:
        cost, saved = (0.0, 0.004) if self.remembered else (0.004, 0.0)
        found = super().answer(batch)
        return [replace(a, cost=cost, saved=saved, remembered=self.remembered) for a in found]


def test_a_program_earns_the_same_whether_its_answers_were_remembered_or_paid_for() -> None:
    earned, paid = [], []
    for known in (False, True):
        asked = Remembering("executor", SCRIPT, Sampling(0.0))
        Remembering.remembered = known
        found = attempt(FIXED["direct"], asked=asked)
        earned.append(solved(found, found.score, ROW, ScoreTerms()).value)
        paid.append(found.cost)
    assert earned[0] == earned[1] < 1 - 0.03
    assert paid == [0.004, 0.0]


def test_the_right_answer_of_a_row_earns_everything_and_anothers_nothing() -> None:
    ladder = shipped("workflows/problems.py").TASK
    rows = ladder.sources["asdiv"]("dev", BenchmarkOptions()).rows[:6]
    golds = [Completion(TASK.right_answer(row).content, id=f"{row.id}#0") for row in rows]
    right = run_all([*zip(rows, golds, strict=True)], model(), RunSettings())
    assert [a.score for a in right] == [1.0] * 6
    turned = [*zip(rows, [*golds[1:], golds[0]], strict=True)]
    assert sum(a.score or 0 for a in run_all(turned, model(), RunSettings())) <= 1
