"""Answered elsewhere, recorded here: the records are those of one process whatever dies, a paid
call is sent once, and what a node would answer otherwise is no answer. Without Ray."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import assay
from assay.errors import InputError, RunFailure
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from assay.lab.evaluate import local_answerer
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.observer import Silent
from assay.lab.run import evaluate_again
from assay.lab.session import validate
from assay.lab.session.session import Session
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.runs.records import RecordWriter
from assay.runs.registry import check_same
from assay.runs.run_directory import RunDirectory, create_run
from assay.tasks import task as registry
from tests.docs.pages import as_module
from tests.engines.local_pool import AFTER, BEFORE, TWO, LocalPool
from tests.from_files import start
from tests.lab.run.test_kill import everything
from tests.lengths import MODULE, make_lengths_lab
from tests.rollout.engines.endpoint.test_client import fake, said
from tests.tiny_labs import make_lab

RAY = "engine.evaluate='ray'"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The lab of docs/episodes.md, whose records come in small chunks."""
    as_module("episodes.md", MODULE, tmp_path, monkeypatch)
    monkeypatch.setitem(cast(dict[str, str], registry.TASKS), "lengths", MODULE)
    monkeypatch.setattr(local_answerer, "CHUNK", 2)
    monkeypatch.setattr(validate, "need_ray", lambda address, name: None)
    make_lengths_lab(tmp_path)
    yield tmp_path
    local_answerer._KEPT.clear()
    local_answerer._opened.cache_clear()


def spread_over(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `ray` be this pool."""
    for module in (local_answerer, evaluate_again):
        monkeypatch.setattr(module, "connect", lambda address, name: pool)
    monkeypatch.setattr(local_answerer, "look_at_nodes", lambda pool, root: None)


def at_random(deaths: int, among: int) -> Callable[[int], str]:
    """So many processes die, each before or after it has done its work."""
    chance = random.Random(among)
    dying = chance.sample(range(2, among), deaths)
    return {number: chance.choice([BEFORE, AFTER]) for number in dying}.get  # type: ignore[return-value]


EVALUATION = """
[evaluate.NAME]
benchmark = "math/gsm8k"
options = { path = PATH, format = "messages" }
role = "report"
checkpoints = ["base"]
sampling = { temperature = 1.0, max_tokens = 6 }
"""
EVALUATIONS = EVALUATION.replace("NAME", "whole") + "repeats = 2\n"
EVALUATIONS += EVALUATION.replace("NAME", "more") + "repeats = 3\n"
EVALUATIONS += 'take = { rows = 3, how = "first" }\n'


def test_a_runs_records_are_those_of_one_process_whatever_dies(lab, monkeypatch):
    tables = EVALUATIONS.replace("PATH", f"'{lab / 'test.jsonl'}'")
    file = make_lab(lab, until="[stage.sft]", tables=tables)
    batches: list[int] = []
    sample = LocalSampler.sample

    def counted(self: LocalSampler, contexts: Any, *given: Any) -> Any:
        batches.append(len(contexts))
        return sample(self, contexts, *given)

    monkeypatch.setattr(local_answerer, "CHUNK", 4)
    monkeypatch.setattr(LocalSampler, "sample", counted)
    (own,) = start(file, root=lab)
    alone = batches.copy()
    pool = LocalPool(at_random(3, 8), TWO[:1])
    spread_over(pool, monkeypatch)
    (run,) = start(file, ["name='spread'", RAY], root=lab)
    found, expected = everything(run.path), everything(own.path)
    assert len([name for name in expected if name.endswith("base.parquet")]) == 2
    for name in expected.keys() - {"spec.toml"}:
        assert found[name] == expected[name], f"{name} is other than that of one process"
    assert not Counter(alone) - Counter(batches[len(alone) :]), "the same batches"


def test_a_killed_evaluation_keeps_the_chunks_that_came_in_whatever_order(lab, monkeypatch):
    class Killed(BaseException):
        pass

    pool, write, kept = LocalPool(there=TWO[:1]), RecordWriter.write_chunk, []
    spread_over(pool, monkeypatch)

    def deadly(writer: RecordWriter, index: int, lines: Any) -> None:
        write(writer, index, lines)
        kept.append(index)
        if len(kept) == 2:
            raise Killed

    def measured(**changes: Any) -> assay.EvaluationResult:
        told = {"task": "lengths", "repeats": 5, "max_tokens": 6, "progress": False, "on": "ray"}
        return assay.evaluate("path:model", "lengths/test", root=lab, **{**told, **changes})

    monkeypatch.setattr(RecordWriter, "write_chunk", deadly)
    with pytest.raises(RunFailure, match="Killed"):
        measured()
    assert {*pool.dropped, *pool.idle} == {*pool.hosts}, "no process is left at work"
    monkeypatch.setattr(RecordWriter, "write_chunk", write)
    before = len(pool.done)
    done = measured()
    chunks = {told[2] for told in pool.done[before:] if told}
    assert len(chunks) == 3, "two of five chunks were there"
    assert done.made and done.items == 2 and not measured(on=None).made


def test_an_endpoint_is_asked_from_here_and_this_is_said(lab, monkeypatch):
    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda self, words: notes.append(words))
    spread_over(LocalPool(), monkeypatch)
    with fake(said("no")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.endpoint().url)
        told = {"task": "lengths", "progress": False, "on": "ray"}
        done = assay.evaluate("openai:m", "lengths/test", root=lab, **told)
    assert done.items == 2 and any("Ray has nothing to spread" in words for words in notes)


def test_a_node_that_would_answer_otherwise_fails_the_evaluation(lab, monkeypatch):
    spread_over(LocalPool(there=TWO[:1]), monkeypatch)
    opened = local_answerer.fingerprint
    seen: list[str] = []

    def other(*given: Any) -> str:
        seen.append(opened(*given))
        return seen[-1] if len(seen) == 1 else "other weights"

    monkeypatch.setattr(local_answerer, "fingerprint", other)
    with pytest.raises(RunFailure, match="a node has other items, prompts, weights or checkers"):
        assay.evaluate("path:model", "lengths/test", root=lab, task="lengths", on="ray")
    assert len(seen) == 2


def test_where_evaluations_are_answered_makes_no_other_run_and_arms_refuse(lab, monkeypatch):
    experiment = read_experiment(lab / "lengths.toml")
    run = create_run(lab, experiment.name, seed=3, spec=experiment_toml(experiment))
    check_same(run, read_experiment(lab / "lengths.toml", [RAY]))
    with pytest.raises(InputError, match=r"engine.sample"):
        check_same(run, read_experiment(lab / "lengths.toml", ["engine.sample='vllm'"]))
    told = ["stage={}", "data={}", "evaluate={}", "task='workflows'", "model='workflow:direct'"]
    experiment = read_experiment(lab / "lengths.toml", [*told, RAY])
    session = Session(experiment, RunDirectory(lab, "x", "y"), 1, Silent())
    with pytest.raises(InputError, match=r"engine.evaluate: workflow:direct is no model"):
        answerer_of(session)
