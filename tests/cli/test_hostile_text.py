"""Text that a model or a row wrote, fed through the verbs: it is shown, and steers no terminal."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.cli.output import BLANK_LINES, MOST_LINES, Outcome, present, quoted
from assay.cli.run import tell as tell_of_fill
from assay.errors import Finding, InputError
from assay.pages.live_display import PlainProgress
from assay.pages.safe_console import tell
from assay.pages.words import CONTROL_PICTURES
from tests.cli.conftest import TinyLab, answer, call
from tests.written import as_written

STEERING = "\x1b[2J\x1b]0;mine\x07\rassay: all is well\x9b31m\x85\u202ereversed\u2028\x7f"
SURROGATE = "half \ud800 of a pair"


def assert_harmless(text: str) -> None:
    """Nothing in it but text, line ends and tabs."""
    found = {character for character in text if ord(character) in CONTROL_PICTURES}
    assert not found, text


def poison(lab: TinyLab) -> None:
    """Put the text wherever a model, a row or an experiment may write."""
    (run,) = lab.root.glob("runs/tiny/*")
    for file in [*run.glob("evaluations/*/*.parquet"), *run.glob("samples/*/*.parquet")]:
        lines = pq.read_table(file).to_pylist()
        for line in lines:
            for key in {"output", "text", "why"} & set(line):
                line[key] = f"{STEERING}{line[key]}\n\n\n\n\n\n{STEERING}"
            line["facts"] = json.dumps({f"judge{STEERING}": STEERING})
            for key in {"item_id", "sample_id"} & set(line):
                line[key] = line[key].replace("1+1", f"1+{STEERING}1")
        pq.write_table(pa.Table.from_pylist(lines, pq.read_schema(file)), file)
        as_written(file)
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"message": STEERING}))
    for file in (lab.file, run / "spec.toml"):
        about = json.dumps(STEERING).replace("\x7f", "\\u007f")
        file.write_text(f"about = {about}\n{file.read_text()}")
    as_written(run / "spec.toml")
    rows = [json.loads(line) for line in (lab.root / "sums.jsonl").read_text().splitlines()]
    rows[0] |= {"id": STEERING}
    (lab.root / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def poisoned(finished_lab: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    import shutil

    root = tmp_path_factory.mktemp("poisoned")
    shutil.copytree(finished_lab, root, dirs_exist_ok=True)
    lab = TinyLab(root)
    poison(lab)
    return lab


VERBS = {
    "report of one": ("tiny:test/base/1+4#0",),
    "report of all": ("tiny:test/base/2+3",),
    "compare": ("tiny@base", "tiny@rl.last"),
    "report": ("tiny",),
    "runs": (),
    "runs log": ("tiny",),
    "plan": ("tiny@base", "tiny@rl.last"),
    "replay": ("tiny", "--step", "2", "--set", "advantage=dr_grpo"),
    "report of nothing": (f"tiny:test/base/{STEERING}",),
    "runs delete": (STEERING,),
    "eval": (f"tiny@{STEERING}", "--benchmark", STEERING),
}


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_lets_a_control_character_through(poisoned: TinyLab, name: str):
    verb = name.split(" ") if name.startswith("runs") else [name.partition(" ")[0]]
    result = call(*verb, *VERBS[name], "--lab", poisoned.root)
    assert result.stdout or result.stderr
    assert_harmless(result.stdout + result.stderr)


def test_an_answer_is_quoted_and_its_record_is_whole_in_json(poisoned: TinyLab):
    arguments = ("report", "tiny:test/base/1+4#0", "--lab", poisoned.root)
    shown, whole = call(*arguments), call(*arguments, "--json")
    assert_harmless(whole.stdout)
    (line,) = answer(whole)["result"]
    assert STEERING in line["text"]
    bars = [each for each in shown.stdout.splitlines() if "all is well" in each]
    assert all(each.startswith(("  │ ", "  why: ", "  fact ")) for each in bars) and len(bars) >= 2
    assert "␛[2J␛]0;mine␇␍assay: all is well" in bars[0]
    assert " blank lines]\n" in shown.stdout
    assert "\n  fact judge" in shown.stdout


def test_blank_lines_are_counted_and_long_texts_cut_where_people_read():
    assert quoted("a" + "\n" * (BLANK_LINES + 1) + "b").splitlines() == [
        "  │ a",
        *["  │ "] * BLANK_LINES,
        "  │ b",
    ]
    assert quoted("a" + "\n" * 100 + "b").splitlines() == ["  │ a", "  │ [99 blank lines]", "  │ b"]
    assert quoted("\n" * 9) == "  │ [10 blank lines]"
    for text in ("x\n" * (MOST_LINES + 1), "x" * 100_000):
        cut = quoted(text)
        assert len(cut) < 50_000 and cut.splitlines()[-1] == "  [cut here: --json has all]"
    assert "cut here" not in quoted("\n".join("x" * MOST_LINES))


def test_progress_shows_what_runs_say_without_obeying_it(capsys: pytest.CaptureFixture[str]):
    PlainProgress(tell).note(STEERING + SURROGATE)
    tell_of_fill(STEERING)
    assert_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_verb_returns_warns_or_raises_is_made_safe(
    as_json: bool, capsys: pytest.CaptureFixture[str]
):
    hostile = STEERING + SURROGATE
    finding = Finding("note", hostile, hostile, hostile)
    present("report", as_json, lambda: Outcome(hostile, [hostile], [finding], [hostile]))
    told = capsys.readouterr()
    assert_harmless(told.out + told.err)
    if as_json:
        assert json.loads(told.out)["result"] == hostile

    def fail() -> Outcome:
        raise InputError(hostile, field=hostile)

    assert present("report", as_json, fail) == 2
    told = capsys.readouterr()
    assert_harmless(told.out + told.err)
    assert told.err.count("\n") == 1


def test_an_error_of_several_problems_is_told_line_by_line(capsys: pytest.CaptureFixture[str]):
    error = InputError("first", fix="1 more problem")
    error.each = (InputError("first"), InputError("second", field="x"))

    def fail() -> Outcome:
        raise error

    assert present("check", False, fail) == 2
    assert capsys.readouterr().err == "assay: first\nassay: x: second\n"
