"""The progress of workflow programs on pages, in Markdown, in terminals and for programs."""

import json
import random
import re

import pytest

from assay.cli.output import plain
from assay.cli.results import progress_result
from assay.lab.monitor.progress import Progress, progress
from assay.pages.progress_content import progress_report
from assay.pages.run_page import ProgressSpan, write_progress, write_report
from assay.pages.words import words
from assay.runs.run_directory import RunDirectory
from tests.lab.monitor.program_runs import Made, add_calls, call, program_run
from tests.pages.pages import Page, printed
from tests.pages.test_wholly_chinese import ALLOWED, EMPTY, ENGLISH, lines

HOSTILE = "no 'x' <script>alert(1)</script> | \x1b[31m [a](b)"
TABLES = """
[milestone.above]
about = "step 10 above baseline"
stage = "rl"
step = 10
evaluation = "dev"
verdict = "better"

[milestone.form]
stage = "rl"
step = 20
metric = "format_share"
above = 0.95

[guard.cut]
metric = "format_share"
below = 0.3
"""
NAMES = """AnswerGenerate Programmer Custom Workflow def self init name dataset operator async await
raised KeyError TypeError operator malformed model above form cut dev class return input problem
answer llm and step baseline forbidden memory limit unknown HTTP rl flows script alert Bonferroni
executor kl"""
"""Names in programs, operators, kinds of errors and this run."""


def of(step: int, prompt: int, number: int) -> Made:
    draw = random.Random(f"{step}-{prompt}-{number}").random()
    if step > 5 and number == 0:
        return Made("llm_attribute", (), why=HOSTILE)
    kinds = ("no_program", "forbidden_name", "raised KeyError", "raised TypeError", "model")
    if draw < 0.25:
        return Made(kinds[int(draw * 20)], ("Custom",), variable=f"v{number}")
    return Made(solved=draw < 0.7, fallback=draw > 0.95, variable=f"v{number}")


def row_of(step: int, prompt: int) -> str:
    """The two steps that are shown side by side ask the same rows."""
    return f"row_{prompt}" if step in (5, 10) else f"row_{step}_{prompt}"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    metrics = {
        "helper/executor/cost": lambda step: 0.001 + 0.0001 * (step % 3),
        "format_share": lambda step: 0.9,
        "tokens_per_second": lambda step: 20.0,
        "kl": lambda step: 0.1,
    }
    made = program_run(
        tmp_path_factory.mktemp("lab"),
        of,
        10,
        head='budget = { "helper/executor/cost" = 0.5 }',
        tables=TABLES,
        metrics=metrics,
        rows=row_of,
    )
    calls = []
    for step in range(1, 11):
        for prompt in range(4):
            failed = {"status": "failed", "why": "endpoint: HTTP 429", "cost": 0}
            row = row_of(step, prompt)
            calls += [call(step, row, 1), call(step, row, 2)]
            calls += [call(step, row, 3, **(failed if prompt == 0 else {}))]
    add_calls(made, calls)
    return made


def told(run: RunDirectory) -> Progress:
    found = progress(run, "rl", 5)
    assert found is not None
    return found


def texts(run: RunDirectory, lang: str) -> dict[str, str]:
    page = write_report(run, lang, ProgressSpan("rl", 5))
    return {
        "page": page.with_suffix(".md").read_text("utf-8"),
        "report": write_progress(run, "rl", 10, lang).read_text("utf-8"),
        "terminal": printed(progress_report(told(run), words(lang)), lang),
    }


def test_the_page_has_every_table(run):
    page = Page(write_report(run, "en", ProgressSpan("rl", 5)))
    heads = ("Errors by family", "Operators called", "API errors by type", "Costs")
    for head in (*heads, "Form and fallback", "Conditions"):
        assert head in page.source
        assert head in (run.path / "report.md").read_text("utf-8")
    assert "llm_attribute" in page.source


def test_every_condition_stands_in_a_table_with_its_figure(run):
    section = texts(run, "en")["page"].partition("### Milestones")[2]
    found = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", section, re.M)
    by_name = {row[1]: row for row in found}
    assert by_name["form"][0] == "to come"
    assert by_name["cut"][0] == "armed" and by_name["cut"][3].endswith("90.0%")
    assert by_name["above"][0] == "not recorded"


def test_one_table_says_what_changed_since_a_step(run):
    page = Page(write_report(run, "en", ProgressSpan("rl", 5)))
    assert page.row("Completions in all")[1:] == ["80", "160", "+80", "–"]
    attribute = page.row("Use of what the llm does not have")
    assert attribute[1:3] == ["0/80 = 0.0%", "20/80 = 25.0%"] and attribute[4] == "rise"
    fallbacks = [
        sum(of(step, prompt, n).fallback for step in steps for prompt in range(4) for n in range(4))
        for steps in (range(1, 6), range(6, 11))
    ]
    shares = [f"{count}/80 = {count / 80:.1%}" for count in fallbacks]
    assert page.row("Fallback used", *shares)[4] == "no change shown"
    # Three calls for each of four prompts in ten steps, of which one a step failed and is free.
    each = 0.0055 / (5 * 11)
    assert page.row("Total cost")[1:] == ["0.0055", "0.011", "+0.0055", "–"]
    assert page.row("Cost of a call")[1] == f"{each * 11 / 12:.3g}"
    assert page.row("Mean reward")[4] == "no change shown"
    order = ["Right form", "Completions", "Use of", "Fallback", "Total", "Cost of", "Mean reward"]
    places = [page.visible.index(name) for name in order]
    assert places == sorted(places)


def test_programs_for_programs_are_whole_json(run):
    told_values = json.loads(json.dumps(plain(progress_result(told(run))), allow_nan=False))
    assert {row["rule"] for row in told_values["conditions"]} >= {"truncated", "form", "cut"}
    tables = {table["name"]: table["rows"] for table in told_values["facts"]["tables"]}
    errors = {row["name"]: row for row in tables["errors"]}
    assert errors["llm attribute"]["after"]["count"] == 20
    assert tables["api_errors"][0]["name"] == "HTTP 429"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_pages_of_programs_have_no_empty_slot_and_are_wholly_in_their_language(run, lang):
    allowed = ALLOWED | set(NAMES.split())
    shown = texts(run, lang)
    for name in ("report", "terminal"):
        text = shown[name].replace("step 10 above baseline", "X")
        for line in lines(text):
            if "alert" in line or line.startswith("    "):
                continue  # What programs and a finding's evidence say.
            if line.lstrip()[:1] != "|":
                assert not EMPTY.search(line.rstrip()), (name, line)
            if lang == "zh":
                found = [word for word in ENGLISH.findall(line) if word not in allowed]
                assert not found, (name, found, line)
