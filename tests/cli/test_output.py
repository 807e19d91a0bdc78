"""What reaches the user, whatever happens inside a verb."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import Mock

import pytest
import typer
from typer.testing import CliRunner

from assay.cli import start
from assay.cli.main import common
from assay.cli.output import Common, Outcome, executing, plain, present, unexpected, verb
from assay.errors import AssayError, Finding, InputError, RunFailure
from assay.runs.run_directory import create_run, stored_status, write_status

TROUBLE: dict[str, BaseException] = {
    "input": InputError("is odd", file="a.toml", line=3, field="x.y", fix="make it even"),
    "failure": RunFailure("the run stopped"),
    "bug": ZeroDivisionError("first\nsecond"),
    "stop": KeyboardInterrupt(),
}


def work(root: Path, trouble: Annotated[str, typer.Argument()] = "", odd: bool = False) -> Outcome:
    """A verb."""
    if trouble:
        raise TROUBLE[trouble]
    finding = Finding("warning", "it leaks", "3 rows", "drop them")
    return Outcome({"root": root, "nan": float("nan")}, ["shown"], [finding], ["careful"], odd)


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()

    made.callback()(common)
    made.command("work")(verb(work))
    return made


def invoke(app: typer.Typer, *arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_json_is_one_object_with_the_five_fields_and_nothing_else_on_stdout(app: typer.Typer):
    result = invoke(app, "work", "--json", "--lab", "/lab")
    assert json.loads(result.stdout) == {
        "schema": 1,
        "command": "work",
        "result": {"root": "/lab", "nan": None},
        "findings": [
            {"severity": "warning", "what": "it leaks", "evidence": "3 rows", "fix": "drop them"}
        ],
        "warnings": ["careful"],
    }
    assert result.exit_code == 0 and not result.stderr


def test_people_get_the_text_the_findings_and_warnings_on_stderr(app: typer.Typer):
    result = invoke(app, "work")
    assert "shown" in result.stdout and "drop them" in result.stdout
    assert result.stderr == "warning: careful\n"


def test_common_options_work_before_the_verb_and_after_it_wins(app: typer.Typer):
    before = invoke(app, "--json", "--lab", "/one", "work")
    assert json.loads(before.stdout)["result"]["root"] == "/one"
    both = invoke(app, "--json", "--lab", "/one", "work", "--lab", "/two")
    assert json.loads(both.stdout)["result"]["root"] == "/two"


def test_the_environment_names_the_lab_where_no_option_does(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("ASSAY_LAB", "/named")
    assert json.loads(invoke(app, "work", "--json").stdout)["result"]["root"] == "/named"
    monkeypatch.delenv("ASSAY_LAB")
    monkeypatch.chdir(tmp_path)
    assert json.loads(invoke(app, "work", "--json").stdout)["result"]["root"] == str(tmp_path)


@pytest.mark.parametrize(
    ("trouble", "code", "line"),
    [
        ("input", 2, "assay: a.toml:3: x.y: is odd (make it even)"),
        ("failure", 1, "assay: the run stopped"),
        ("bug", 1, "assay: ZeroDivisionError: first second (traceback in "),
        ("stop", 130, "assay: interrupted"),
    ],
)
def test_an_error_is_one_line_and_a_finding(app: typer.Typer, trouble: str, code: int, line: str):
    result = invoke(app, "work", trouble)
    assert result.exit_code == code
    assert result.stderr.startswith(line) and result.stderr.count("\n") == 1
    assert not result.stdout
    told = invoke(app, "work", trouble, "--json")
    value = json.loads(told.stdout)
    assert value["result"] is None and value["findings"][0]["severity"] == "error"
    assert f"assay: {value['findings'][0]['what']}".startswith(line) and told.exit_code == code


def test_the_traceback_of_a_bug_is_kept_in_the_file_that_the_line_names(app: typer.Typer):
    line = invoke(app, "work", "bug").stderr
    file = Path(line.partition("traceback in ")[2].strip().rstrip(")"))
    text = file.read_text()
    file.unlink()
    assert "Traceback" in text and "in work" in text and "ZeroDivisionError" in text


def test_where_no_disk_takes_the_traceback_the_line_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = str(unexpected(ValueError("x"), tmp_path / "absent")).partition("traceback in ")[2]
    Path(kept.rstrip(")")).unlink()
    monkeypatch.setattr("tempfile.mkstemp", Mock(side_effect=OSError(28, "No space left")))
    line = str(unexpected(ValueError("odd\nvalue"), tmp_path))
    assert line.startswith("ValueError: odd value (traceback not kept: ") and "\n" not in line


@pytest.mark.parametrize("raised", [KeyError("bad"), SystemExit(0), SystemExit(), GeneratorExit()])
def test_no_end_passes_for_a_result_or_loses_its_traceback(raised: BaseException, tmp_path: Path):
    def work() -> Outcome:
        raise raised

    assert present("demo", False, work) == 1
    run = create_run(tmp_path, "demo", seed=1, spec="")
    with pytest.raises(RunFailure, match=type(raised).__name__), executing(tmp_path, "demo"):
        raise raised
    (file,) = run.path.glob("traceback-*.txt")
    assert type(raised).__name__ in file.read_text()


def test_values_that_json_has_not_become_ones_that_it_has():
    value = {1: (Path("a"), float("inf"), -0.5, True, None), "d": Common(Path("b"), True)}
    assert plain(value) == {"1": ["a", None, -0.5, True, None], "d": {"lab": "b", "json": True}}


def test_ctrl_c_names_the_run_only_where_one_is_to_be_resumed(tmp_path):
    def message(status):
        if status:
            run = create_run(tmp_path, "demo", seed=0, spec="", new=True)
            write_status(run.path, replace(stored_status(run.path), status=status))
        with pytest.raises(AssayError) as caught, executing(tmp_path, "demo"):
            raise KeyboardInterrupt
        assert caught.value.exit_code == 130
        return str(caught.value)

    again = "interrupted; call the same command again to go on"
    assert message("") == again  # before a run is made
    assert message("interrupted") == "interrupted; continue with 'assay resume demo'"
    assert message("finished") == again


def test_ctrl_c_before_a_verb_works_says_how_to_go_on_too(monkeypatch, capsys):
    def stopped() -> None:
        raise KeyboardInterrupt

    swallows = typer.Typer()  # Ctrl-C while it reads what was typed
    swallows.callback(invoke_without_command=True)(stopped)
    monkeypatch.setattr("sys.argv", ["assay"])
    again = "assay: interrupted; call the same command again to go on\n"
    told = Mock(side_effect=SystemExit(130))
    for program, written in ((stopped, again), (swallows, again), (told, "")):
        monkeypatch.setattr("assay.cli.main.app", program)
        with pytest.raises(SystemExit) as end:
            start()
        assert (end.value.code, capsys.readouterr().err) == (130, written)
