"""All rules over one run that has every fault of the reports: order, words, and silence."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

import assay.lab.improve
from assay.judge.health_checks import check_health
from assay.judge.improvements import ranked
from assay.lab.improve import find_improvements
from assay.lab.improve.run_evidence import RunEvidence
from assay.models.weight_files import save_module
from assay.pages.command_tables.improvement_view import improvement_values
from assay.pages.words import words
from assay.runs.checkpoints import Selection
from assay.runs.run_directory import RunDirectory
from assay.tasks.task import built_in
from tests.lab.improve.evidence_of import candidate, evidence, groups, measured, stage
from tests.tasks.demos.test_pool_rules import HOLDS, LACKS, rows

RULES = {
    **find_improvements.RULES,
    **{name: rule for lab in built_in() for name, rule in lab.rules.items()},
}
RCE, EARLY, LATE = "rce.step-000004", "rl.step-000002", "rl.step-000004"
GOOD, HALF = [1.0] * 40, [1.0, 0.0] * 20
TIED = (
    candidate(0.0, gold_probability=0.2, fallback=True),
    candidate(0.0, gold_probability=0.6),
)
KL = [0.094, 0.0885, 0.0842, 0.0813, 0.079, 0.0768, 0.0741]


def faulty(root: Path) -> RunEvidence:
    """RCE that weighs all alike, then GRPO on tied groups that ends worse than it started."""
    lines = [
        {"step": n, "seconds": 0.5, "kl": kl, "kl_coef": 0.12, "truncated_share": 0.4}
        for n, kl in enumerate(KL, 1)
    ]
    losses = [5.0, 3.0, 3.1, 3.21, 3.3, 3.39, 3.5, 3.61]
    taus = [
        {"step": n, "seconds": 1.0, "tau": 2.0, "validation_loss": loss}
        for n, loss in enumerate(losses, 1)
    ]
    rce = stage("rce", found=groups(*[[0.6, 0.62]] * 8), lines=taus)
    rce = replace(rce, selection=Selection("rce.step-000002", "base", "dev", 0.6, 2))
    rl = stage(
        found=[*[TIED] * 8, *groups([0, 2], [0, 0.02])],
        lines=lines,
        looks={0: GOOD, 2: GOOD, 4: HALF},
        changes={"kl": {"coef": 0.12}, "rewards": "normalised"},
        as_reported=True,
    )
    pools = [HOLDS] * 20 + [LACKS] * 20
    right = [*[1.0] * 18, 0.0, 0.0, *[1.0] * 4, *[0.0] * 16]
    same = [pool[:1] for pool in pools]
    picked = measured({EARLY: right, LATE: right}, {EARLY: same, LATE: same}, name="train.dev")
    run = RunDirectory(root, "demos", "20260101T000000Z-000000")
    for name, layers in (("rce", 2), ("rl", 1)):
        folder = run.checkpoint(name, 4)
        folder.mkdir(parents=True)
        save_module(nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))), folder)
    tests = [measured({RCE: GOOD, LATE: HALF}), picked, measured({RCE: HALF, LATE: HALF}, name="b")]
    nearly = [*HALF[:39], 1.0]
    tests.append(measured({RCE: HALF, LATE: nearly}, name="c"))
    data = {"train": rows(pools), "other": rows([[0, 1]] * 9)}
    whole = evidence(
        rce,
        replace(rl, health=check_health(lines).findings),
        measured=tests,
        rows=data,
        as_reported=True,
    )
    return replace(whole, run=run)


def listed(found: RunEvidence):
    return ranked(each for rule in RULES.values() for each in rule(found))


def test_report_004_is_ranked_as_its_author_ranked_it_by_hand(tmp_path):
    """3.1 RCE alone, 3.2 strict loading, 3.3 the fallback, 3.4 raw or normalised rewards; then what
    the report calls exploration: 4.2 other rewards, 3.5.2 frozen weights."""
    order = list(dict.fromkeys(each.rule for each in listed(faulty(tmp_path))))
    by_hand = ["keep_start", "load_strictly", "fallback_scores", "flat_weights", "freeze"]
    assert [rule for rule in order if rule in by_hand] == by_hand
    assert order[0] in ("keep_start", "stop_early") and {*order[-2:]} == {"break_ties", "freeze"}


SILENT = {"nothing_changed"}
"""It says something where no evaluation shows a change; here one does."""


def test_every_rule_says_something_of_a_run_with_every_fault(tmp_path):
    found = faulty(tmp_path)
    said = {name for name, rule in RULES.items() if [*rule(found)]}
    assert said == RULES.keys() - SILENT


def test_a_sound_run_is_told_nothing():
    sound = groups(*[[2, 0, 1, 0]] * 8)
    rl = stage(found=sound, selection=Selection(LATE, RCE, "dev", 0.6, 2))
    better = measured({"base": [0.0] * 40, RCE: HALF, LATE: GOOD})
    found = evidence(stage("rce", found=sound), rl, measured=[better])
    assert not listed(found)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_figure_of_every_improvement_finds_its_words(tmp_path, lang):
    made = [improvement_values(each, words(lang)) for each in listed(faulty(tmp_path))]
    texts = [
        text for each in made for text in (each["change"], *(e["text"] for e in each["evidence"]))
    ]
    assert texts and not [text for text in texts if "{" in text or not text]
    if lang == "zh":
        sentence = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}")
        assert not [text for text in texts if sentence.search(text)]


def test_the_catalogue_has_what_the_rules_say_and_nothing_else():
    folder = Path(assay.lab.improve.__file__).parent
    files = [*folder.glob("*_rules.py"), *folder.parents[1].glob("tasks/*/rules.py")]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    sections = words("en").sections
    said = set(re.findall(r"improve_evidence\.(\w+)", source))
    assert said == sections["improve_evidence"].keys()
    named = set(re.findall(r'"improve_what\.(\w+)"', source))
    named |= set(re.findall(r'\.improvement\(\s*"(\w+)"', source))
    named -= {"tied_groups", "nothing_changed", "flat_weights"}
    made = {"tied_low", "tied_high", "normalise", "lower_tau", "loosen_kl", "larger_steps"}
    assert named | made == sections["improve_what"].keys()


def test_the_manual_names_every_rule():
    page = Path(__file__).parents[3] / "docs" / "improve.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == RULES.keys() - {"health"}
