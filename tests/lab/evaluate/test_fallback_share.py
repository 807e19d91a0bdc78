"""A score that a fallback metric gave is never taken for the benchmark's: its share is counted,
warned of above a tenth, and stops the evaluation above a half, with the record kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.errors import RunFailure
from assay.lab.evaluate.run_evaluation import run_evaluation
from assay.lab.monitor.observer import Silent
from assay.lab.run.resume import resume
from assay.runs.records import fallbacks, read_columns, recorded_outcomes, refuse_fallbacks
from assay.runs.run_directory import RunDirectory, read_status, runs_of
from assay.tasks.running import RewardRunner
from tests.from_files import start
from tests.lab.evaluate.scripted_answerer import ScriptedAnswerer, made_evaluation
from tests.tiny_labs import make_lab

EVALUATION = """
[evaluate.test]
benchmark = "math/gsm8k"
options = {{ path = "{path}", format = "messages" }}
role = "report"
checkpoints = ["base"]
take = {{ rows = 4, how = "first" }}
sampling = {{ max_tokens = 4 }}
"""


def scored(row: Row, completion: Completion) -> Reward:
    """The answer says which metric scores it."""
    return Reward(0.5, {"fallback": float(completion.text == "loosely")})


def recorded(folder: Path, loosely: int, answers: int = 100) -> Path:
    """A record of which so many answers were scored by a fallback metric."""
    texts = ["loosely"] * loosely + ["officially"] * (answers - loosely)
    evaluation = made_evaluation(scored, answers)
    script = ScriptedAnswerer(lambda item, _: texts[int(item.id[1:])])
    with RewardRunner(scored, 60.0) as runner:
        return run_evaluation(evaluation, script, "base", folder / "run", Silent(), runner)


@pytest.mark.parametrize("loosely", [10, 11, 50, 51])
def test_the_share_of_fallbacks_is_warned_of_and_stops(tmp_path: Path, loosely: int) -> None:
    file = recorded(tmp_path, loosely)
    assert recorded_outcomes(file).fallback == loosely
    warnings = recorded_outcomes(file).warnings
    assert len(warnings) == (loosely in (11, 50))
    assert all(f"a fallback metric scored {loosely} of 100" in each for each in warnings)
    if loosely <= 50:
        refuse_fallbacks("test", "base", file)
        return
    with pytest.raises(RunFailure, match=rf"scored 51 of 100 answers \(51.0%.*{file}") as found:
        refuse_fallbacks("test", "base", file)
    assert "\n" not in str(found.value) and found.value.exit_code == 1


def test_a_record_that_names_no_metric_has_no_share_of_fallbacks() -> None:
    assert fallbacks(["{}", '{"format": 1.0}']) is None
    assert fallbacks(["{}", '{"fallback": 0.0}', '{"sum/fallback": 1.0}']) == 1


def test_a_run_stops_at_a_record_of_fallbacks_keeps_it_and_does_not_pass_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test.jsonl"
    tables = EVALUATION.format(path=path)
    file = make_lab(tmp_path, until="[stage.sft]", tables=tables)

    def loosely(self: RewardRunner, pairs: Sequence[Any]) -> list[Reward]:
        return [Reward(0.5, {"fallback": 1.0}) for _ in pairs]

    monkeypatch.setattr(RewardRunner, "score", loosely)
    with pytest.raises(RunFailure, match="a fallback metric scored"):
        start(file, root=tmp_path, despite="it cannot be judged")
    (run,) = runs_of(tmp_path, "tiny")
    assert_kept(run)
    with pytest.raises(RunFailure, match=r"base on test: a fallback metric scored 4 of 4"):
        resume(run)
    assert_kept(run)


def assert_kept(run: RunDirectory) -> None:
    assert read_status(run.path).status == "failed"
    (record,) = run.evaluations.glob("test-*/base.parquet")
    assert read_columns(record, ["score"])["score"] == [0.5] * 4
