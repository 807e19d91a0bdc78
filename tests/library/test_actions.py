"""The library does what the verbs do, and returns what `--json` prints."""

import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import assay
from assay.cli.output import plain
from assay.cli.results import table_result
from assay.errors import InputError, RunFailure
from assay.library.actions import shown
from assay.runs.run_directory import RunDirectory, read_status, runs_of
from tests.tiny_labs import make_lab

SHORT = {"stage.sft.steps": 3, "stage.sft.checkpoint_every": 2}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with one stage of SFT, its dev items and one report."""
    file = make_lab(tmp_path_factory.mktemp("library"), until="[evaluate.sampled]")
    text = file.read_text()
    rl = text[text.index("[stage.rl]") : text.index("[evaluate.dev]")]
    file.write_text(text.replace(rl, "").replace('"sft.best", "rl.last"', '"sft.last"'))
    return file


@pytest.fixture(scope="module")
def made(lab: Path) -> assay.Run:
    return assay.run(lab, overrides=SHORT, root=lab.parent, progress=False)


class Recording(assay.Callback):
    """Keeps the names of the events, with what tells them apart."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def begin(self, run: RunDirectory) -> None:
        self.events.append(("begin", run.name))

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        self.events.append(("stage", name, method, step, steps))

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.events.append(("step", step, metrics["nll"]))

    def end(self, run: RunDirectory) -> None:
        self.events.append(("end", read_status(run.path).status))


def test_a_run_has_metrics_as_columns_checkpoints_and_the_chosen_one(made: assay.Run):
    assert (made.name, made.status, made.did) == ("tiny", "finished", "started")
    assert made.facts.status.seed == 7
    columns = made.metrics["sft"]
    lines = [json.loads(line) for line in (made.path / "metrics.jsonl").open()]
    assert columns["step"] == [1, 2, 3] and "stage" not in columns
    assert columns["nll"] == [line["nll"] for line in lines]
    assert len({len(column) for column in columns.values()}) == 1
    assert [*made.checkpoints] == ["sft.step-000002", "sft.step-000003"]
    assert all((path / "model.safetensors").exists() for path in made.checkpoints.values())
    assert made.best["sft"] in ("base", *made.checkpoints)
    assert made.experiment.stage["sft"].steps == 3
    assert made.page.exists() and made.summary and made.progress() is not None


def test_scores_are_the_rows_of_the_tables_that_json_prints(made: assay.Run):
    table = made.evaluations["test"]
    base, last = made.scores
    printed = plain(table_result(table))["lines"]
    assert (base.checkpoint, base.verdict, base.difference) == ("base", "", None)
    comparison = printed[1]["to_control"]["comparison"]
    assert last.checkpoint == "sft.step-000003" and last.control == "base"
    assert (last.score, last.verdict) == (printed[1]["score"], comparison["verdict"])
    interval = printed[1]["interval"]
    assert (last.low, last.high) == (interval["low"], interval["high"])
    assert last.difference == comparison["difference"] == last.score - base.score
    assert {look.step for look in made.facts.dev_scores("sft")} == {0, 2, 3}


def test_a_run_that_exists_is_refused_left_alone_or_made_again(lab: Path, made: assay.Run):
    with pytest.raises(InputError, match="exists"):
        assay.run(lab, overrides=SHORT, root=lab.parent, progress=False)
    known = assay.run(lab, overrides=SHORT, root=lab.parent, or_resume=True, progress=False)
    assert known.did == "left alone" and str(known) == str(made)
    with pytest.raises(assay.InputError, match="exclude each other"):
        assay.run(lab, root=lab.parent, new=True, or_resume=True)
    with pytest.raises(assay.InputError, match="is finished"):
        assay.resume(made, root=lab.parent, progress=False)


def test_values_and_a_read_experiment_run_as_their_file_does(lab: Path, made: assay.Run):
    values = tomllib.loads(lab.read_text())
    values["stage"]["sft"].update(steps=3, checkpoint_every=2)
    for spec in (values, assay.Experiment.model_validate(values)):
        known = assay.run(spec, root=lab.parent, or_resume=True, progress=False)
        assert known.did == "left alone" and known.experiment == made.experiment


def test_a_problem_in_values_names_its_field_and_no_file(lab: Path):
    values = tomllib.loads(lab.read_text())
    values["stage"]["sft"]["setps"] = 3
    with pytest.raises(
        assay.InputError, match=r"^stage\.sft\.setps: unknown key \(did you mean 'st"
    ):
        assay.check(values, root=lab.parent, progress=False)
    with pytest.raises(assay.InputError, match=r"^--set stage\.sft\.steps=.*expected an integer"):
        assay.check(lab, overrides={"stage.sft.steps": "x"}, root=lab.parent, progress=False)
    with pytest.raises(assay.InputError, match="is None"):
        assay.check(lab, overrides={"about": None}, root=lab.parent, progress=False)


def test_several_seeds_are_several_runs(lab: Path):
    two = {**SHORT, "seeds": [1, 2], "name": "seeds", "evaluate": {}}
    with pytest.raises(assay.InputError, match="run_seeds"):
        assay.run(lab, overrides=two, root=lab.parent, progress=False)
    assert not runs_of(lab.parent, "seeds")
    runs = assay.run_seeds(lab, overrides=two, root=lab.parent, progress=False)
    assert [each.facts.status.seed for each in runs] == [1, 2]
    assert runs[0].metrics["sft"]["nll"] != runs[1].metrics["sft"]["nll"]


def test_check_returns_findings_and_numbers(lab: Path):
    found = assay.check(lab, overrides=SHORT, root=lab.parent, progress=False)
    assert not found.failed and found.counts["error"] == 0
    assert found.numbers["data.sums"]


def test_a_checkpoint_is_evaluated_and_an_opened_run_compared(lab: Path, made: assay.Run):
    options = {"path": str(lab.parent / "test.jsonl"), "format": "messages"}
    done = assay.evaluate(
        f"{made}@sft.step-2",
        "math/gsm8k",
        root=lab.parent,
        take=4,
        max_tokens=8,
        options=options,
        progress=False,
    )
    assert done.made and done.items == 4 and done.file.exists()
    assert done.interval.low <= done.score <= done.interval.high
    found = assay.compare(f"{made}@base", f"{made}@sft.last", root=lab.parent, on="test")
    assert found.page.exists() and list(found.verdicts) == [found.table.lines[1].name]
    assert found.scores[1].score == made.scores[1].score
    opened = assay.open_run("tiny", root=lab.parent)
    assert str(opened) == str(made) and opened.did == ""


def test_every_callback_sees_every_event_in_order(lab: Path):
    first, second = Recording(), Recording()
    short = {**SHORT, "name": "observed", "evaluate": {}}
    made = assay.run(
        lab, overrides=short, root=lab.parent, callbacks=[first, second], progress=False
    )
    losses = made.metrics["sft"]["nll"]
    assert first.events == second.events
    assert first.events == [
        ("begin", "observed"),
        ("stage", "sft", "sft", 0, 3),
        *(("step", step, loss) for step, loss in enumerate(losses, 1)),
        ("end", "finished"),
    ]


def test_a_callback_that_raises_stops_the_run_which_can_be_resumed(lab: Path):
    class Broken(assay.Callback):
        def step(self, step: int, metrics: Mapping[str, float]) -> None:
            if step == 3:
                raise ValueError("no disk")

    late, ended = {**SHORT, "name": "broken", "evaluate": {}}, Recording()
    with pytest.raises(RunFailure, match=r"Broken\.step raised ValueError: no disk") as caught:
        assay.run(lab, overrides=late, root=lab.parent, callbacks=[ended, Broken()], progress=False)
    assert isinstance(caught.value, assay.RunFailure)
    assert isinstance(caught.value.__cause__, ValueError)
    assert ended.events[-1] == ("end", "failed")
    stopped = assay.open_run("broken", root=lab.parent)
    assert stopped.status == "failed" and "Broken.step" in stopped.facts.status.message
    assert [*stopped.checkpoints] == ["sft.step-000002"]
    again = assay.resume("broken", root=lab.parent, progress=False)
    assert again.status == "finished" and again.metrics["sft"]["step"] == [1, 2, 3]


def test_what_is_no_callback_is_refused_before_anything_runs(lab: Path):
    short = {**SHORT, "name": "refused", "evaluate": {}}
    with pytest.raises(assay.InputError, match="is no callback"):
        assay.run(lab, overrides=short, root=lab.parent, callbacks=[Recording], progress=False)  # type: ignore[list-item]
    assert not runs_of(lab.parent, "refused")


def test_the_html_of_a_run_and_a_comparison_escapes_what_a_file_says(lab: Path, made: assay.Run):
    found = assay.compare(f"{made}@base", f"{made}@sft.last", root=lab.parent, on="test")
    for html in (made._repr_html_(), found._repr_html_()):
        assert html.startswith('<div class="assay">') and "<table" in html
        assert "<script" not in html and "http" not in html and "style" not in html
    assert found.table.lines[1].to_control is not None
    verdict = found.table.lines[1].to_control.comparison.verdict
    assert all(f">{verdict}</span>" in each._repr_html_() for each in (found, made))
    hostile = made.facts.experiment.model_copy(update={"about": "<script>x</script>\x1b[2J"})
    facts = replace(made.facts, experiment=hostile)
    evil = assay.Run(made.directory)
    evil.__dict__["facts"] = facts
    assert "&lt;script&gt;x" in evil._repr_html_() and "\x1b" not in evil._repr_html_()


@pytest.mark.parametrize("leave", [lambda: sys.exit(0), lambda: os._exit(0)])
def test_code_that_would_end_the_process_stops_the_command_instead(leave: Callable) -> None:
    exits = os._exit
    said = r"ended the process: SystemExit: (0|os._exit\(0\))"
    with pytest.raises(RunFailure, match=said), shown(False):
        leave()
    assert os._exit is exits


def test_a_forked_child_ends_as_it_likes_and_ctrl_c_is_the_users() -> None:
    with pytest.raises(KeyboardInterrupt), shown(False):
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        raise KeyboardInterrupt
