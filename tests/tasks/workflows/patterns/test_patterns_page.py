"""The page of patterns: harmless whatever programs hold, whole in both languages, honest cells."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from assay.pages.terminal import blocks_shown
from assay.pages.words import words
from assay.pages.write_page import write_page
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory
from assay.tasks.workflows.patterns_page import (
    MOST_CHARACTERS,
    Patterns,
    find_patterns,
    page_of,
    signed_number,
)
from assay.tasks.workflows.programs.operators import OPERATORS
from assay.tasks.workflows.reward_patterns import PatternRequest
from assay.tasks.workflows.rewards import Terms, solved
from tests.pages.pages import Page
from tests.pages.test_wholly_chinese import EMPTY, ENGLISH, lines
from tests.tasks.workflows.patterns.program_lab import (
    CUSTOM,
    PROGRAMMER,
    Drawn,
    empty_run,
    even_chance,
    execution,
    problem_row,
    program_run,
    rewarded,
    sample_line,
)

HOSTILE = (
    "<script>alert(1)</script>",
    "```\n# heading\n| a | b |\n</pre></main><img src=x onerror=alert(1)>",
    "\x1b[2J\x1b]0;mine\x07 \u202e",
    "x" * 200_000,
    "",
)
TYPE = '<b onclick="x">math|qa</b>'
NAMES = {*OPERATORS, *["rl", "math", "qa", "flows", "Assay", "Holm", "level", "operations"]}


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> "tuple[Patterns, Page, str]":
    return written(program_run(tmp_path_factory.mktemp("lab")))


def written(run: RunDirectory, lang: str = "en") -> tuple[Patterns, Page, str]:
    found = find_patterns(run, PatternRequest())
    return found, *shown_in(run, found, lang)


def shown_in(run: RunDirectory, found: Patterns, lang: str) -> tuple[Page, str]:
    html = write_page(page_of(found, words(lang)), run.path / "patterns.html")
    return Page(html), html.with_suffix(".md").read_text(encoding="utf-8")


def printed(found: Patterns, lang: str = "en") -> str:
    console = Console(file=(stream := io.StringIO()), width=250)
    for each in blocks_shown(page_of(found, words(lang)).blocks, words(lang)):
        console.print(each, soft_wrap=True)
    return stream.getvalue()


def hostile_run(root: Path, texts: Sequence[str] = HOSTILE) -> RunDirectory:
    """Groups in which every text is a program that cannot be read, and stands in one that can."""
    run, samples = empty_run(root), []
    for n, text in enumerate(texts):
        row = problem_row(f"r{n}", TYPE)
        program = CUSTOM.replace("Solve.", repr(text)[1:-1].replace('"', "'")[:5000])
        done = replace(execution("x", "invalid program"), program=text, error=f"raised {text[:80]}")
        invalid = solved(done, None, row, Terms())
        rewards = [rewarded(row, program, True), invalid, invalid, rewarded(row, PROGRAMMER, False)]
        samples += [sample_line(1, row.id, i, text, r) for i, r in enumerate(rewards)]
    write_samples(run.samples("rl", 1), samples)
    return run


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_hostile_programs_and_types_stay_text(tmp_path, text: str, lang: str):
    found, page, markdown = written(hostile_run(tmp_path, [text] * 6), lang)
    assert not {"script", "img", "b onclick"} & set(page.elements)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    terminal = printed(found, lang)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", page.source + markdown + terminal)
    assert "Content-Security-Policy" in page.source
    assert page.elements.count("main") == page.source.count("</main>") == 1
    fences = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", markdown)
    assert not re.search(r"(?m)^# heading|(?<!\\)<[a-z/]", fences)


def test_a_huge_program_is_cut_and_its_length_told(tmp_path):
    huge = "<i>" + "y" * 50_000
    found, page, markdown = written(hostile_run(tmp_path, [huge] * 3))
    assert found.rewards.low.program == huge
    assert max(map(len, page.blocks)) == MOST_CHARACTERS
    said = "Cut here; the whole text has 50,003 characters."
    assert said in page.source and said in markdown


@pytest.mark.parametrize("drawn", [Drawn(), Drawn(even_chance, prompts=3, group=4)])
def test_the_page_is_whole_in_both_languages(tmp_path, drawn: Drawn):
    run = program_run(tmp_path, drawn)
    found = find_patterns(run, PatternRequest())
    for lang in ("en", "zh"):
        whole_in(lang, found, *shown_in(run, found, lang))


def whole_in(lang: str, found: Patterns, page: Page, markdown: str) -> None:
    assert f'<html lang="{lang}">' in page.source
    terminal = re.sub("|".join(sorted(OPERATORS, key=len, reverse=True)), "X", printed(found, lang))
    for text in (markdown, terminal):
        said = [line for line in lines(text) if str(found.run) not in line]
        if lang == "zh":
            foreign = {w for line in said for w in ENGLISH.findall(line)} - NAMES
            assert foreign == set()
        empty = [line for line in said if line.lstrip()[:1] != "|" and EMPTY.search(line.rstrip())]
        assert empty == []
    assert "{" not in re.sub(r"<style>.*</style>|<pre>.*?</pre>", "", page.source, flags=re.DOTALL)


def test_the_two_sides_stand_beside_each_other_with_their_programs(planted):
    found, page, _ = planted
    high, low = page.blocks
    assert (high, low) == (found.rewards.high.program, found.rewards.low.program)
    assert page.row("Completions")[1:] == [
        str(found.rewards.high.completions),
        str(found.rewards.low.completions),
    ]


def test_every_pattern_has_its_counts_difference_and_verdict(planted):
    found, page, markdown = planted
    for each in found.rewards.patterns:
        if each.kind != "operator":
            continue
        row = page.row(each.value, str(each.high), str(each.low))
        assert row[3] == str(each.programs) and row[7] == each.effect.verdict
        difference = f"{each.effect.contrast.difference:+.3f}".replace("-", "−")
        assert row[5].startswith(difference) and f"`{each.value}` | {each.high} |" in markdown


def test_planted_verdicts_stand_at_the_head_with_their_sign(planted):
    found, _, markdown = planted
    head = markdown.partition("## What is shown")[2].partition("##")[0]
    assert "math: Programmer: +0.3" in head and "qa: Programmer: −0.2" in head
    assert "adjusted p" in printed(found).partition("Patterns  ")[0]


def test_a_difference_that_rounds_to_nothing_has_no_sign():
    assert [signed_number(value) for value in (-0.0001, 0.0, 0.0004, -0.1, None)] == [
        *("0", "0", "0", "−0.100", "–"),
    ]


def test_a_page_without_verdicts_says_undecided_and_what_it_takes(tmp_path):
    found, page, markdown = written(program_run(tmp_path, Drawn(even_chance, prompts=2, group=4)))
    head = markdown.partition("## What is shown")[2].partition("##")[0]
    assert "undecided" in head and "better" not in markdown and "worse" not in markdown
    more = [row[-1] for row in page.rows if len(row) == 9 and row[7] == "undecided"]
    assert more and all(re.fullmatch(r"[1-9]\d* prompts", cell.strip()) for cell in more)
    assert "is undecided: adjusted p 1" in printed(found)


def test_cells_without_data_are_absent_and_never_0(tmp_path):
    run = program_run(tmp_path, Drawn(lambda *_: 1.0, prompts=4))
    found, page, markdown = written(run)
    assert not any("hard" in row.cells for row in found.choice.by_difficulty.rows)
    (row, *_) = [row for row in page.rows if row[0].startswith("Programmer") and len(row) == 4]
    assert row[1].strip() == row[2].strip() == "–" and "%" in row[3]
    assert "there are not two levels and two choices" in printed(found)
    difficulty = markdown.partition("## Operators by difficulty")[2]
    assert "(operator) | – | – |" in difficulty
