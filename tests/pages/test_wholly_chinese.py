"""Pages and terminal texts: no English word in the Chinese ones, no empty slot in either language.

What users and models wrote (names, what an experiment is about, answers, errors) stays as it is; so
do settings, which are told by the keys of the experiment file, and the manifest's own keys.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from assay.compare.arm import read_arms
from assay.compare.compare_names import compare_named, plan_from, typed
from assay.data.reported.read_reported import ReportFile
from assay.errors import Finding
from assay.judge.audit.rules import audit
from assay.judge.sample_size import Design
from assay.lab.monitor.progress import progress
from assay.pages.command_tables import audit_findings, plan_blocks, summary
from assay.pages.comparison_page import comparison_shown, write_comparison
from assay.pages.matrix_page import write_matrix
from assay.pages.notebook import notebook
from assay.pages.page import Block
from assay.pages.progress_content import progress_report
from assay.pages.run_page import write_progress, write_report
from assay.pages.run_terminal import ending, final_blocks, summary_line
from assay.pages.terminal import finding_text
from assay.pages.words import words
from assay.runs.run_directory import RunDirectory
from tests.judge.audit.faults import FAULTS, record
from tests.lab.watched import change_metrics, watched_run
from tests.pages.comparison.test_comparison_page import three_runs
from tests.pages.matrix.test_matrix_page import EVIL, SWEEP, make_matrix
from tests.pages.pages import printed
from tests.pages.synthetic import Shape, demo_run, write_questions

TERMS = "Wilson Holm KL McNemar Tango UTC SFT GRPO Assay assay report vary token reward baseline"
"""Names of methods, of this program and of its commands, and words that the field leaves so."""
SETTINGS = """temperature parser lenient examples batch epochs algorithm prompts group reward
sampling lr adamw full grpo egpo"""
LABS = """rl sft train dev test run demo tools base best sampled format name arguments early late
hopeful fine done trunkated cut typo"""
RECORDS = "score data calls average total part term old new beta clip table code fallback errors"
"""Names in the test labs, and in the records that are audited."""
ALLOWED = set(" ".join((TERMS, SETTINGS, LABS, RECORDS)).split())
WRITTEN = ("Function calls by SFT, then GRPO with a strict reward", "answers end by themselves")
SYNTHETIC = "no possible call"
"""A reason that only the synthetic manifest has."""
ENGLISH = re.compile(r"(?<![\w./=:@#'-])[A-Za-z][A-Za-z']+(?![\w./=:@#-])")
EMPTY = re.compile(
    r"\( *\)|（ *）|[,;:，；：] *[,;:.，；：。]|[,;，；] *$|\. \.|: *\*?\*?$|\(, |\{|\}"
)
"""Brackets around nothing, two signs in succession, a sign with nothing behind it."""


CHINESE = r"[\u3400-\u9fff”（）《》]"
NARROW = re.compile(rf"{CHINESE}\*{{0,2}} ?[,;:?!](?![\w/])|{CHINESE} ?\(|\) ?{CHINESE}")
"""Punctuation of Latin text beside Chinese."""
HYPHEN = re.compile(r"(?<![\w.\-–/#:|])-\d")
"""A hyphen in the place of a minus sign."""
SPACED = re.compile(r"\d %")


def drawn(*shown: RenderableType) -> str:
    console = Console(file=(stream := io.StringIO()), width=250)
    for each in shown:
        console.print(each, soft_wrap=True)
    return stream.getvalue()


def lines(text: str) -> Iterator[str]:
    """What a page says: without code, addresses of links, and its list of fingerprints."""
    text = re.sub(r"```text.*?```|`[^`\n]*`|<[^>\n]*>", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)|\bassay \w+ .*", "]", text.replace("\\", ""))
    text = text.partition("## 指纹与机器")[0].partition("## Fingerprints")[0]
    for written in WRITTEN:
        text = text.replace(written, "X")
    return (line for line in text.splitlines() if SYNTHETIC not in line)


@pytest.fixture(scope="module")
def labs(tmp_path_factory) -> dict[str, Any]:
    """A run, a comparison, a watched run, a matrix and foreign results, made once."""
    root = tmp_path_factory.mktemp("labs")
    for lab in ("run", "arms", "watched", "matrix"):
        (root / lab).mkdir()
    write_questions(root / "arms" / "held_out.jsonl", 20)
    watched = watched_run(root / "watched")
    change_metrics(watched, abstained_share=0.9)
    return {
        "root": root,
        "run": demo_run(root / "run", Shape(items=30, steps=6, groups=2)),
        "arms": three_runs(root / "arms"),
        "watched": watched,
        "matrix": make_matrix(root / "matrix", SWEEP.replace(EVIL, "")),
    }


@pytest.fixture(scope="module", params=["en", "zh"])
def texts(request, labs) -> tuple[str, dict[str, str]]:
    """Everything that is shown in a language."""
    lang, root, run, watched = request.param, labs["root"], labs["run"], labs["watched"]
    bare = Finding("error", "the file X" if lang == "en" else "文件 X", "", "")
    table = replace(labs["arms"], findings=(*labs["arms"].findings, bare))
    page = write_comparison(table, root / "arms", lang=lang)
    found = progress(watched)
    assert found is not None
    pilot = typed(0.2, None)
    planned = plan_from(pilot, Design(0, 2, 2, 3), 0.03, 0.8)
    pivot = write_matrix(labs["matrix"], root / "matrix", lang=lang)
    shown = {
        "run": write_report(run, lang).with_suffix(".md").read_text(encoding="utf-8"),
        "terminal": printed(without_answers(run, lang), lang) + summary_line(run, lang),
        "ending": printed([*ending([(run, "X")], lang), *ending([(run, "X")] * 2, lang)], lang),
        "notebook": notebook(root / "run", lang=lang),
        "comparison": page.with_suffix(".md").read_text(encoding="utf-8"),
        "compared": printed(comparison_shown(table, lang), lang),
        "watched": write_report(watched, lang).with_suffix(".md").read_text(encoding="utf-8"),
        "progress": printed(progress_report(found, words(lang)), lang),
        "report": write_progress(watched, "rl", 20, lang).read_text(encoding="utf-8"),
        "matrix": pivot.with_suffix(".md").read_text(encoding="utf-8"),
        "plan": printed(plan_blocks(pilot, planned, lang), lang),
    }
    shown |= foreign(root, lang)
    return lang, {**shown, **{f"audit {key}": audited(key, lang) for key in FAULTS}}


def without_answers(run: RunDirectory, lang: str) -> list[Block]:
    """What a terminal shows, but for what models wrote."""
    shown = final_blocks(run, lang)
    return [each for each in shown if getattr(each, "anchor", "") != "examples"]


def foreign(root: Path, lang: str) -> dict[str, str]:
    """Two runs of another tool, one of them with an answer without a score."""
    for name, wrong in (("m1", 12), ("m2", 9)):
        rows = [f"{i},{'' if i == 3 and name == 'm2' else int(i >= wrong)}" for i in range(30)]
        (root / f"{name}.csv").write_text("item,score\n" + "\n".join(rows) + "\n", "utf-8")
    files = [str(root / f"{name}.csv") for name in ("m1", "m2")]
    table = compare_named(files, read_arms)
    page = write_comparison(table, root / "foreign", lang)
    return {
        "foreign": page.with_suffix(".md").read_text(encoding="utf-8"),
        "foreign compared": printed(comparison_shown(table, lang), lang),
    }


def audited(key: str, lang: str) -> str:
    report = record(FAULTS[key][0])
    flaws = audit(report)
    said = [finding_text(each, words(lang)) for each in audit_findings(flaws, lang)]
    return drawn(*said, *summary(Path("f.toml"), ReportFile((report,)), flaws, lang))


def test_no_english_word_stands_on_a_chinese_page(texts):
    lang, shown = texts
    if lang == "zh":
        found = {
            (name, word, line[:80])
            for name, text in shown.items()
            for line in lines(text)
            for word in ENGLISH.findall(line)
            if word not in ALLOWED
        }
        assert found == set()


def test_no_sentence_of_a_page_has_an_empty_slot(texts):
    _, shown = texts
    found = {
        (name, match.group(), line[:160])
        for name, text in shown.items()
        for line in lines(text)
        if line.lstrip()[:1] != "|" and (match := EMPTY.search(line.rstrip()))
    }
    assert found == set()


def found_in(shown: dict[str, str], sign: re.Pattern[str]) -> set[tuple[str, str, str]]:
    return {
        (name, match.group(), line[max(0, match.start() - 40) : match.end() + 40])
        for name, text in shown.items()
        for line in lines(text)
        for match in sign.finditer(line)
    }


def test_punctuation_beside_chinese_is_full_width(texts):
    lang, shown = texts
    if lang == "zh":
        assert found_in(shown, NARROW) == set()


def test_there_is_one_minus_sign_and_one_style_of_percent(texts):
    _, shown = texts
    assert found_in(shown, HYPHEN) == set()
    assert found_in(shown, SPACED) == set()
