"""The validator and the world of programs agree: what passes runs, what cannot run fails."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence

from assay.labs.workflows.inside import stand_ins
from assay.labs.workflows.programs.program import GIVEN
from assay.labs.workflows.programs.validate import ALLOWED, validate
from tests.experiments.files import shipped
from tests.labs.workflows.programs.bad_programs import BAD, BAD_CODE, LATE, expected
from tests.labs.workflows.programs.good_programs import CODE, TEXT, text

WARM_UP = shipped("workflows/warm_up.py")
FATAL = frozenset(
    {"unknown_operator", "not_instantiated", "unset_attribute", "unknown_key", "undefined_name"}
    | {"unknown_parameter", "repeated_parameter", "missing_parameter", "syntax", "no_return"}
    | {"too_many_arguments", "llm_attribute", "no_call", "no_init", "not_async", "call_arguments"}
)
"""Codes of what Python itself refuses when it gets there; the others are the lab's rules."""
Program = tuple[str, str]
"""A source, and the entry point of a code problem or ""."""


def results(programs: Sequence[Program]) -> list[dict[str, str]]:
    """What becomes of programs, in a process of their own."""
    command = [sys.executable, "-m", "tests.labs.workflows.world"]
    told = json.dumps(programs)
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_names_that_need_no_import_are_those_of_the_world() -> None:
    assert stand_ins({}, object).keys() == GIVEN


def test_what_the_validator_lets_pass_runs() -> None:
    generated = [
        (WARM_UP.draw_one(name, kind, random.Random(0))[0].source, "f" if kind == "code" else "")
        for kind, names in WARM_UP.STRATEGIES.items()
        for name in names
    ]
    written = [(source, "") for source in TEXT.values()] + [(s, "f") for s in CODE.values()]
    programs = [*generated, *written]
    for result, (source, _) in zip(results(programs), programs, strict=True):
        assert "answer" in result, (result, source)


def test_what_python_refuses_does_not_run() -> None:
    wrong = {
        name: (source, "f" if "entry_point" in source or name in BAD_CODE else "")
        for name, source in (BAD | BAD_CODE).items()
        if {code for code, _ in expected(source)} <= FATAL and name != "unknown key by get"
    }
    assert len(wrong) > 20
    for name, result in zip(wrong, results(list(wrong.values())), strict=True):
        assert "error" in result, (name, result)


def test_what_the_validator_does_not_see_ends_in_the_sandbox_and_is_told_apart() -> None:
    programs = [(text(body), "") for body, _ in LATE.values()]
    assert not any(validate(source) for source, _ in programs)
    for (name, (_, error)), result in zip(LATE.items(), results(programs), strict=True):
        assert result.get("error", "").startswith(error), (name, result)


def test_every_module_that_may_be_imported_is_there() -> None:
    names = [name for name in ALLOWED if name != "__future__"]
    (result,) = results([("".join(f"import {n}\n" for n in names) + text("return 'x'"), "")])
    assert result == {"answer": "x"}
