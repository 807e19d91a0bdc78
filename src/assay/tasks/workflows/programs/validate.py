"""Checks a workflow program without running it: structure, names, operators, results.

Only the syntax tree is read. Whatever a text is, hostile or not, it gets findings, never an
exception; what passes may still fail when it runs. Codes are those of `findings.CODES`.
"""

from collections.abc import Collection, Mapping
from itertools import islice

from assay.tasks.workflows.programs.findings import CODES as CODES
from assay.tasks.workflows.programs.findings import Finding, found
from assay.tasks.workflows.programs.operators import OPERATORS, Operator
from assay.tasks.workflows.programs.program_tree import UnreadableProgram, read_program
from assay.tasks.workflows.programs.program_values import read_values
from assay.tasks.workflows.programs.validate_calls import check_calls
from assay.tasks.workflows.programs.validate_class import check_class
from assay.tasks.workflows.programs.validate_names import check_names
from assay.tasks.workflows.programs.validate_results import check_results

MOST_FINDINGS = 20
MOST_LOOKED_AT = 200
"""Findings of one check before they are ordered: a hostile text may have thousands."""
UNREADABLE = {
    "syntax": "write one complete class in plain Python",
    "too_long": "write a short program",
    "too_deep": "write it with less nesting",
}


def validate(
    source: str,
    *,
    operators: Mapping[str, Operator] = OPERATORS,
    code_problem: bool = False,
    prompts: Collection[str] = (),
) -> tuple[Finding, ...]:
    """What is wrong with a program, by line; none where nothing is, the first 20 otherwise.

    `operators` are those that it may use, by name. `code_problem` says that `__call__` takes an
    entry point as well. `prompts` are the names in the prompt module that goes with the program;
    what a policy writes is one file and has none.
    """
    try:
        program = read_program(source)
    except UnreadableProgram as error:
        return (found(error.code, error.line, error.problem, UNREADABLE[error.code]),)
    values = read_values(program)
    checks = (
        check_class(program, code_problem),
        check_names(program, values.names, prompts),
        check_calls(values, operators),
        check_results(values, operators),
    )
    findings = {each for check in checks for each in islice(check, MOST_LOOKED_AT)}
    ordered = sorted(findings, key=lambda each: (each.line, each.code, each.problem))
    return tuple(ordered[:MOST_FINDINGS])
