"""One damaged run is listed with its reason, and hides no other from any list or comparison."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.runs.registry import apart
from assay.runs.run_directory import RunDirectory, all_runs
from tests.cli.conftest import answer, call
from tests.few import few
from tests.pages.synthetic import add_scores, empty_run

Damage = Callable[[RunDirectory], None]


def text(name: str, content: bytes | str) -> Damage:
    """A file of the run with another content."""
    raw = content if isinstance(content, bytes) else content.encode()

    def write(run: RunDirectory) -> None:
        (run.path / name).write_bytes(raw)

    return write


def changed(name: str, /, **values: Any) -> Damage:
    """A JSON file of the run with other values."""

    def change(run: RunDirectory) -> None:
        (file,) = run.path.glob(name)
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


DAMAGE: dict[str, tuple[str, Damage]] = {
    "status, empty": ("status.json", text("status.json", "")),
    "status, half a pair": ("status.json", changed("status.json", message="\ud800")),
    "manifest, torn": ("manifest.json", text("manifest.json", '{"seed": 4')),
    "manifest, no table": ("manifest.json", changed("manifest.json", stages=[])),
    "manifest, adapt of text": (
        "manifest.json",
        changed("manifest.json", stages={"a": {"start": "base", "adapt": "lora"}}),
    ),
    "spec, not UTF-8": ("spec.toml", text("spec.toml", b"\xff")),
    "record outside": (
        "evaluation.json",
        changed("evaluations/*/evaluation.json", name="../../../x"),
    ),
}


@pytest.fixture
def lab(tmp_path: Path) -> tuple[Path, RunDirectory]:
    """Two measured runs, and one that shares its name with one of them and is to be damaged."""
    broken = empty_run(tmp_path, "one")
    for run in (broken, after(broken), empty_run(tmp_path, "two")):
        add_scores(run, "base", [float(index % 3 > 0) for index in range(60)])
        add_scores(run, "rl.step-000040", [float(index % 5 > 0) for index in range(60)])
    return tmp_path, broken


def after(first: RunDirectory) -> RunDirectory:
    """A later run of the name, with another seed."""
    return empty_run(first.root, first.name, seed=43)


def damaged(lab: tuple[Path, RunDirectory], kind: str) -> tuple[str, set[str]]:
    """The file that is damaged now, and the runs that are sound."""
    file, damage = DAMAGE[kind]
    sound = {str(run) for run in all_runs(lab[0])} - {str(lab[1])}
    damage(lab[1])
    return file, sound


@few("kind", DAMAGE, fast=6)
def test_a_damaged_run_is_listed_with_its_reason_and_the_others_as_they_are(
    lab: tuple[Path, RunDirectory], kind: str
) -> None:
    root, broken = lab
    file, sound = damaged(lab, kind)
    listed = call("runs", "--rebuild", "--lab", root, "--json")
    assert listed.exit_code == 0, listed.stderr
    rows = {f"{row['name']}/{row['id']}": row for row in answer(listed)["result"]}
    assert {name for name in rows if rows[name]["status"] == "finished"} >= sound
    assert str(broken) in rows
    (found,) = apart(all_runs(root))[1]
    assert found.run == broken and file in found.why and "\n" not in found.why
    assert len(found.why) < 400


@few("kind", ["manifest, adapt of text", "record outside", "status, empty", "spec, not UTF-8"])
def test_a_damaged_run_is_named_and_hides_no_other_from_any_verb(
    lab: tuple[Path, RunDirectory], kind: str
) -> None:
    root, broken = lab
    file, sound = damaged(lab, kind)
    pair = ("compare", "one@base", "two@base", "--lab", root)
    compared = call(*pair)
    assert "Traceback" not in compared.stderr and compared.exit_code == 0, compared.stderr
    page = root / answer(call(*pair, "--json"))["result"]["page"]
    for text in (compared.stdout, page.read_text(), page.with_suffix(".md").read_text()):
        assert f"{broken} is left out" in text and file in text
    assert call("report", "one", "--lab", root).exit_code == 0
    assert call("report", "one:simple_python_0", "--lab", root).exit_code == 0
    notebook = call("runs", "log", "--lab", root)
    assert notebook.exit_code == 0 and all(name in notebook.stdout for name in (*sound, file))


def test_folders_that_no_run_can_be_named_after_are_named_and_left_out(
    lab: tuple[Path, RunDirectory],
) -> None:
    root, _ = lab
    before = {str(run) for run in all_runs(root)}
    for name in (b"a b", b"\x1b[31mred", b"\xff\xfe", b"new\nline", b"-x"):
        place = root / "runs" / os.fsdecode(name) / "20260101T000000Z-000000"
        place.mkdir(parents=True)
        (place / "status.json").write_text("{}")
    assert {str(run) for run in all_runs(root)} == before
    shown = call("runs", "--rebuild", "--lab", root)
    assert shown.exit_code == 0 and shown.stderr.count("left out") == 5
    assert "\x1b" not in shown.stderr and "\\x1b[31mred" in shown.stderr
