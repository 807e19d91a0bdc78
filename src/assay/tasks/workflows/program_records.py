"""How the recorded facts of workflow programs are read: families of errors, and trees of programs.

The facts are made in `facts`; reports count them (`lab.monitor`) and word the families.
"""

from assay.tasks.fact_reading import FactReading
from assay.tasks.workflows.programs.shapes import shape_of

FORMAT, SYNTAX, INTERFACE = "format", "syntax", "llm attribute"
MISUSE, FORBIDDEN, NAMES = "operator misuse", "forbidden", "undefined name"
RAISED, TIMEOUT, LIMIT = "raised", "timeout", "limit"
OPERATOR, BUDGET, EXECUTOR, OTHER = "operator error", "over budget", "executor failure", "other"
FAMILIES = (
    *(FORMAT, SYNTAX, INTERFACE, MISUSE, FORBIDDEN, NAMES),
    *(RAISED, TIMEOUT, LIMIT, OPERATOR, BUDGET, EXECUTOR, OTHER),
)
"""In the order in which a program meets them."""
CODES = {
    FORMAT: "no_program no_workflow no_init no_call not_async call_arguments no_return return_shape"
    " result_returned no_answer",
    SYNTAX: "syntax too_long too_deep",
    INTERFACE: "llm_attribute llm_called unknown_attribute",
    MISUSE: "unknown_operator operator_setup not_instantiated not_awaited needless_await"
    " unknown_parameter repeated_parameter missing_parameter too_many_arguments wrong_type"
    " unknown_key unknown_prompt",
    FORBIDDEN: "forbidden_name import_not_allowed dunder",
    NAMES: "undefined_name unset_attribute",
    TIMEOUT: "deadline cpu",
    BUDGET: "budget",
    EXECUTOR: "model judge lab",
}
"""Codes of the validator and of runs, those that the validator once had among them."""
FAMILY_OF = {code: family for family, codes in CODES.items() for code in codes.split()}
REFUSED = (FORMAT, SYNTAX, INTERFACE, MISUSE, FORBIDDEN, NAMES)
"""Families of programs that did not run, but for "no_answer", which a run finds."""
KINDS = {"raised": RAISED, "operator": OPERATOR, "limit": LIMIT}
"""By the first of two words, such as "raised KeyError"."""


def family_of(error: str) -> str:
    """The family of a fact `error`, such as "raised KeyError" or "llm_attribute"."""
    kind, _, what = error.partition(" ")
    if kind == "limit" and FAMILY_OF.get(what) == TIMEOUT:
        return TIMEOUT
    return KINDS.get(kind) or FAMILY_OF.get(error, OTHER)


def tree_of(program: str) -> str:
    """The fingerprint of a program's syntax tree; "" for one that cannot be read."""
    shape = shape_of(program) if program else None
    return shape.fingerprint if shape else ""


READING = FactReading(
    FAMILIES, family_of, frozenset({FORMAT, SYNTAX}), frozenset({INTERFACE}), tree_of
)
