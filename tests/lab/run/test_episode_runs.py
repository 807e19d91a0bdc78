"""Runs of several turns: killed and resumed to the last bit, replayed from their records."""

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from assay.data.episode import tokens_of
from assay.lab.evaluate import local_answerer
from assay.lab.monitor.observer import Silent
from assay.lab.replay import replay
from assay.lab.run.recorder import RunRecorder
from assay.lab.run.resume import resume
from assay.runs.history import History
from assay.runs.records import RecordWriter
from assay.runs.run_directory import RunDirectory, runs_of
from assay.tasks import task as registry
from tests import from_files
from tests.docs.pages import as_module
from tests.lab.run.test_kill import assert_same, everything
from tests.lengths import MODULE, make_lengths_lab


class Killed(BaseException):
    """Ends the process at an instant, as far as a run can tell."""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with the skill of docs/episodes.md, whose records come in small chunks."""
    as_module("episodes.md", MODULE, tmp_path, monkeypatch)
    monkeypatch.setitem(cast(dict[str, str], registry.TASKS), "lengths", MODULE)
    monkeypatch.setattr(local_answerer, "CHUNK", 2)
    make_lengths_lab(tmp_path)
    return tmp_path


def finished(lab: Path) -> RunDirectory:
    return from_files.run_from(lab / "lengths.toml")


def killing(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, at: int) -> None:
    """Let `method` do its work and end everything when it is called the `at`-th time."""
    kept, calls = getattr(owner, method), []

    def deadly(*given: Any) -> Any:
        done = kept(*given)
        calls.append(given)
        if len(calls) == at:
            raise Killed
        return done

    monkeypatch.setattr(owner, method, deadly)


@pytest.mark.slow
def test_killed_between_journal_and_update_and_between_chunks_a_run_ends_bit_identical(lab):
    expected = everything(finished(lab).path)
    shutil.move(lab / "runs", lab / "unbroken")
    (lab / "lab.sqlite").unlink()
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, RunRecorder, "samples", 2)
        with pytest.raises(Killed):
            finished(lab)
    (run,) = runs_of(lab, "lengths")
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, RecordWriter, "write_chunk", 2)
        with pytest.raises(Killed):
            resume(run)
    resume(run)
    assert_same(everything(run.path), expected)


def test_stored_turns_are_those_that_were_sampled_and_replays_are_exact(lab):
    run = finished(lab)
    for step in (1, 2, 3):
        done = replay(run, step, observer=Silent())
        assert done.proof.exact, done.proof
        samples = list(History(run).samples("rl", step, tokens=True))
        assert [s.reward_after for s in done.samples] == [s.reward for s in samples]
        for sample in samples:
            turns = sample.turns
            assert sum((t.actions for t in turns), ()) == sample.tokens
            assert sum((t.behaviour_logps or () for t in turns), ()) == sample.logps
            for before, after in pairwise(turns):
                # The last token may be another that ends a turn; the template's follows then.
                whole = tokens_of(before.context) + before.actions[: len(before.actions) - 1]
                assert tokens_of(after.context)[: len(whole)] == whole
            assert len([m for m in sample.messages if m.role == "assistant"]) == len(turns)


def test_dialogues_of_the_same_prompts_share_no_answers(lab):
    """The same items under two names are answered twice: later prompts are not on record."""
    file = lab / "lengths.toml"
    text = file.read_text()
    stage, tests = text.index("[data.words]"), text.index("[evaluate.test]")
    text = text[:stage] + text[tests:].replace(', "rl.last"', "")
    again = text[text.index("[evaluate.test]") :].replace("evaluate.test", "evaluate.again")
    file.write_text(text + "\n" + again.replace("repeats   = 3", "repeats   = 2"))
    run = finished(lab)
    tables = {
        name: pq.read_table(next(run.evaluations.glob(f"{name}-*/base.parquet"))).to_pylist()
        for name in ("test", "again")
    }
    first = {(line["item_id"], line["repeat"]): line for line in tables["test"]}
    for line in tables["again"]:
        twin = first[line["item_id"], line["repeat"]]
        assert (line["tokens"], line["messages"]) == (twin["tokens"], twin["messages"])
        assert line["turns"] == twin["turns"]
