"""Programs rebuilt from what is known of published ones: the validator says what the facts imply.

Facts only are stored, no sources: imports, operators and where they are kept, calls, prompts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.labs.workflows.programs.operators import OPERATORS
from assay.labs.workflows.programs.program import AFLOW
from assay.labs.workflows.programs.validate import ALLOWED, validate
from tests.json_lines import json_lines

INDEX = "data/workflow/workflow_index.jsonl"
COUNT = 37
Facts = Mapping[str, Any]


@pytest.fixture
def rows(shared: Path) -> list[dict[str, Any]]:
    return json_lines(shared / INDEX)


def rebuilt(facts: Facts) -> str:
    """A minimal program with the facts of a published one."""
    lines = [import_line(module) for module in facts["imports"]]
    lines += ["", "class Workflow:", "    def __init__(self, name, llm_config, dataset):"]
    lines += ["        self.llm = create_llm_instance(llm_config)"]
    for attribute, name in facts["operators_instantiated"].items():
        lines += [f"        self.{attribute} = operator.{name}(self.llm)"]
    lines += ["", f"    async def __call__({', '.join(facts['call_args'])}):"]
    if not facts["call_is_async"]:
        lines[-1] = lines[-1].replace("async ", "")
    for call in facts["self_calls"]:
        lines += [f"        r = await self.{call}({arguments(call.split('.')[0], facts)})"]
    for prompt in facts["prompt_names"]:
        lines += [f"        p = prompt_custom.{prompt}"]
    returned = ", ".join(["'x'", "0.0"][: facts["returns"][-1]])
    lines += ["        if problem:", f"            return {returned}"] * (len(facts["returns"]) - 1)
    return "\n".join([*lines, f"        return {returned}", ""])


def import_line(module: str) -> str:
    last = module.split(".")[-1]
    names = {"operator": "operator", "prompt": "prompt_custom"}
    if last in names:
        return f"import {module} as {names[last]}"
    held = {"async_llm": "create_llm_instance", "evaluator": "DatasetType", "logs": "logger"}
    if module.startswith("scripts."):
        return f"from {module} import {held.get(last, 'WorkflowMemory')}"
    return f"import {module}"


def arguments(attribute: str, facts: Facts) -> str:
    name = facts["operators_instantiated"].get(attribute, "")
    if name not in OPERATORS:
        return "problem"
    value = {"text": "problem", "texts": "[problem]", "count": "1"}
    return ", ".join(f"{p.name}={value[p.kind]}" for p in OPERATORS[name].parameters if p.required)


def implied(facts: Facts) -> set[str]:
    """The codes that the facts of a program imply."""
    codes: set[str] = set()
    held = facts["operators_instantiated"]
    if any(name not in OPERATORS for name in held.values()):
        codes.add("unknown_operator")
    if facts["awaited_but_not_instantiated"]:
        codes.add("not_instantiated")
    if facts["prompt_names"]:
        codes.add("unknown_prompt")
    if len(facts["call_args"]) > (3 if is_code(facts) else 2):
        codes.add("call_arguments")
    if any(m not in ALLOWED and m.split(".")[0] not in AFLOW for m in facts["imports"]):
        codes.add("import_not_allowed")
    if any("." in call for call in facts["self_calls"]):
        codes.add("unknown_attribute")
    return codes


def is_code(facts: Facts) -> bool:
    return "entry_point" in facts["call_args"]


def found(source: str, facts: Facts) -> set[str]:
    return {each.code for each in validate(source, code_problem=is_code(facts))}


@pytest.mark.parametrize("number", range(COUNT))
def test_the_validator_says_what_the_facts_of_a_program_imply(
    rows: list[Facts], number: int
) -> None:
    facts = rows[number]
    assert found(rebuilt(facts), facts) == implied(facts)


def test_the_facts_are_those_of_all_programs_and_of_several_kinds(rows: list[Facts]) -> None:
    assert len(rows) == COUNT
    right = [facts for facts in rows if implied(facts) <= {"unknown_prompt"}]
    # 10 use an operator that AFlow does not have, 2 read files, one calls an operator's attribute.
    assert len(right) == COUNT - 13
