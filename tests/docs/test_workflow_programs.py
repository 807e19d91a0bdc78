"""The page about workflow programs says what the code has."""

import re

from benchmarks.results import load_results

from assay.tasks.workflows.findings import CODES
from assay.tasks.workflows.generated_programs import STRATEGIES
from assay.tasks.workflows.operator_answers import READERS
from assay.tasks.workflows.program_names import ALLOWED, GIVEN
from assay.tasks.workflows.program_tree import MOST_CHARACTERS, MOST_DEPTH
from assay.tasks.workflows.validate import validate
from tests.docs.pages import DOCS, blocks
from tests.docs.test_tables import between
from tests.docs.workflow_tables import codes, operators

PAGE = "workflow-programs.md"
RATES = re.compile(r"validates ([\d ]+) generated|or ([\d ]+) of 1 670")
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def test_the_table_of_operators_is_made_of_the_data() -> None:
    assert between(PAGE, "<!-- operators -->") == operators()


def test_the_table_of_codes_has_every_code_and_no_other() -> None:
    assert between(PAGE, "<!-- codes -->") == codes()
    assert re.findall(r"^\| `(\w+)` ", between(PAGE, "<!-- codes -->"), re.MULTILINE) == list(CODES)


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


def test_figures_on_the_page_are_the_code_s() -> None:
    assert f"{MOST_CHARACTERS:,}".replace(",", " ") + f" characters and {MOST_DEPTH}" in TEXT
    assert f"{sum(map(len, STRATEGIES.values()))} strategies" in TEXT


def test_measured_rates_are_those_of_the_result_file() -> None:
    (result,) = load_results("validation")
    rates = {name: f"{value:.2g}" for name, value in result["per_second"].items()}
    shown = [f"{float(''.join(found).replace(' ', '')):.2g}" for found in RATES.findall(TEXT)]
    assert shown == [rates["right"], rates["published"]]
    assert min(result["per_second"].values()) >= result["wanted_per_second"]
