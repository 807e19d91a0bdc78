"""The page about workflow programs says what the code has."""

import re

from benchmarks.results import load_results

from assay.labs.workflows.executor import READERS
from assay.labs.workflows.programs.program import GIVEN
from assay.labs.workflows.programs.validate import ALLOWED, validate
from tests.docs.pages import DOCS, blocks
from tests.docs.test_tables import between

PAGE = "workflow-programs.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def test_the_program_on_the_page_is_valid() -> None:
    assert validate(blocks(PAGE, "python")[0]) == ()


def test_the_example_prints_what_it_says(capsys) -> None:
    code = blocks(PAGE, "python")[1]
    exec(code, {})
    assert capsys.readouterr().out.strip() == code.strip().rpartition("# ")[2]


def test_imports_and_given_names_are_those_of_the_validator() -> None:
    named = set(re.findall(r"`(\w+)`", between(PAGE, "- `operator`", "AFlow's own modules")))
    assert {name for name in ALLOWED if "." not in name} <= named
    assert named <= {*ALLOWED, *GIVEN}


def test_every_operator_stands_in_the_table_of_answers() -> None:
    table = between(PAGE, "| operator | what is read", "AFlow hands on")
    assert all(name in table for name in READERS)


def test_measured_rates_are_those_of_the_result_file() -> None:
    results = load_results("validation")
    for result in results:
        rates = result["per_second"]
        right, published = (thousands(float(f"{rates[n]:.2g}")) for n in ("right", "published"))
        assert f"| {result['machine']['processor']} | {right} | {published} |" in TEXT
        assert min(rates.values()) >= result["wanted_per_second"]
    assert TEXT.count("| AMD EPYC family") == len(results)


def thousands(value: float) -> str:
    """A number as the page writes it, such as 1 500."""
    return f"{value:,.0f}".replace(",", " ")
