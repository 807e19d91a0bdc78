"""Distill stages through `assay run`: teachers here and behind an endpoint, kills, refusals."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.lab.run.resume import resume
from assay.rollout.engines.endpoint import client
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.cost_ledger import read_calls
from assay.runs.history import History
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, read_manifest, runs_of
from tests.cli.conftest import assert_one_line, call
from tests.from_files import run_from, start
from tests.lab.run.teacher_server import TeacherServer, teacher_server
from tests.tiny_labs import make_lab

EXPERIMENT = """\
name  = "tiny"
task  = "math"
seeds = [7]

[model]
policy = "path:model"

[model.teacher]
source = "path:teacher"
dtype  = "float32"

[data.sums]
source = "path:sums.jsonl"
format = "messages"

[stage.distilled]
method = "distill"
data   = "sums"
steps  = 4
prompts  = 4
group  = 2
lmbda  = 0.5
beta   = 0.5
sampling = { temperature = 1.0, max_tokens = 8 }
optimizer = { lr = 1e-2 }
checkpoint_every = 2
"""
LEFT_OUT = ("stage", "peak_memory_mb")
TOKENS = re.compile("helper/.*tokens")
"""An endpoint counts a context for each of its words that it is asked about."""
K = ("--set", "stage.distilled.loss_top_k=20")


def make_distill_lab(folder: Path, text: str = EXPERIMENT) -> Path:
    """The tiny lab with a teacher whose weights are the model's and some noise."""
    file = make_lab(folder, text)
    shutil.copytree(folder / "model", folder / "teacher")
    weights = folder / "teacher" / "model.safetensors"
    torch.manual_seed(5)
    state = {name: each + 0.2 * torch.randn_like(each) for name, each in load_file(weights).items()}
    save_file(state, weights, metadata={"format": "pt"})
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_distill_lab(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run that nothing broke, which tests only read."""
    return run_from(make_distill_lab(tmp_path_factory.mktemp("finished")))


def lines(run: RunDirectory) -> list[dict[str, Any]]:
    """The steps' metrics, but for times."""
    return [
        {n: v for n, v in line.items() if n not in LEFT_OUT and "seconds" not in n}
        for line in read_metrics(run.metrics)
    ]


def weights(run: RunDirectory, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint("distilled", step) / "model.safetensors")


def test_a_run_records_its_teacher_its_cost_and_how_near_the_student_came(
    finished: RunDirectory,
) -> None:
    run, found = finished, lines(finished)
    assert found[-1]["divergence"] < found[0]["divergence"]
    assert 0 < sum(line["on_policy_share"] for line in found) < 4
    assert "reward_mean" not in found[0] and "abstained_share" not in found[0]
    (table,) = read_manifest(run)["helpers"].values()
    assert len(table["fingerprint"].split()[0]) == 64
    asked = [each for each in read_calls(run.path) if each.model == "teacher"]
    assert [(each.kind, each.stage, each.step) for each in asked] == [
        ("read", "distilled", step) for step in range(1, 5)
    ]
    samples = list(History(run).samples("distilled", 1))
    assert samples and all(each.reward is None for each in samples)
    again = ("replay", "tiny", "--step", 1, "--lab", run.root)
    assert_one_line(call(*again), "0 stages of GRPO that sample")
    page = call("report", "tiny", "--lab", run.root, "--full")
    assert "Divergence from the teacher" in (run.path / "report.html").read_text()
    assert page.exit_code == 0


def test_a_teacher_behind_an_endpoint_tells_what_one_here_does(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)
    (here,) = start(file, K[1::2], root=file.parent)
    with teacher_server(file.parent / "teacher") as server:
        server.failing = 3
        change = there(server)
        (run,) = start(file, [*K[1::2], *change, "name=there"], root=file.parent)
        asked = len(server.asked)
    alike = [
        [{n: v for n, v in line.items() if not TOKENS.fullmatch(n)} for line in lines(each)]
        for each in (here, run)
    ]
    for one, other in zip(*alike, strict=True):
        gap = one.pop("divergence_gap")
        assert gap > 0 and 0 < one["teacher_tail"] < 1
        assert other == pytest.approx(one, rel=2e-4, abs=2e-6)
    calls = [each for each in read_calls(run.path) if each.model == "teacher"]
    assert sum(each.attempts for each in calls) == asked and server.tried == 1
    assert all(each.prompt_tokens and each.completion_tokens == 1 for each in calls)


def there(server: TeacherServer) -> list[str]:
    source = f'{{ source = "openai:m", endpoint = "{server.url}", price = "unknown" }}'
    return [f"model.teacher={source}"]


class Killed(BaseException):
    """Ends a step between its journal and its update."""


@pytest.mark.parametrize("behind", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_run_ends_as_an_unbroken_one_and_asks_nothing_twice(
    file: Path, finished: RunDirectory, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    root = file.parent
    with teacher_server(root / "teacher") as server:
        words = [*K[1::2], *there(server)] if behind else []
        (whole,) = start(file, words, root=root) if behind else (finished,)
        asked, updates, right = len(server.asked), [0], LanguagePolicy.score

        def score(self: LanguagePolicy, *given: Any, **named: Any) -> Any:
            updates[0] += 1
            if updates[0] == 3:
                raise Killed
            return right(self, *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(LanguagePolicy, "score", score)
            with pytest.raises(Killed):
                start(file, [*words, "name=broken"], root=root)
        (broken,) = runs_of(root, "broken")
        assert len(lines(broken)) == 2, "the step that was killed is not recorded"
        resume(broken)
        assert len(server.asked) == 2 * asked
    found, expected = lines(broken), lines(whole)
    again = [line.pop("helper/teacher/remembered") for line in found]
    assert any(again) == behind, "an endpoint's answers are remembered, not asked for again"
    assert not any(line.pop("helper/teacher/remembered") for line in expected)
    assert found == expected
    for name, tensor in weights(whole, 4).items():
        assert torch.equal(weights(broken, 4)[name], tensor), name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["stage.distilled.teacher=tutor"], "no helper model 'tutor'"),
        (
            ["model.teacher.source=openai:m", "model.teacher.price=unknown"],
            "tells its likeliest words alone",
        ),
        (["stage.distilled.loss_top_k=259"], "the vocabulary has 259 words"),
        (["engine.ranks=2"], "in one process"),
    ],
)
def test_what_a_distill_stage_cannot_be_is_refused_in_one_line(
    file: Path, changes: list[str], said: str
) -> None:
    words = [word for change in changes for word in ("--set", change)]
    file.write_text(file.read_text().replace('dtype  = "float32"\n', ""))
    assert_one_line(call("run", file, "--lab", file.parent, *words), said)
    assert not (file.parent / "runs").exists()


def test_a_teacher_with_another_word_is_refused_and_the_token_named(file: Path) -> None:
    tokenizer = file.parent / "teacher" / "tokenizer.json"
    text = tokenizer.read_text(encoding="utf-8")
    assert '"!":0,"\\"":1' in text.replace(" ", "").replace("\n", "")
    held = json.loads(text)
    words = held["model"]["vocab"]
    words["A"], words["B"] = words["B"], words["A"]
    tokenizer.write_text(json.dumps(held), encoding="utf-8")
    first = min(words["A"], words["B"])
    result = call("run", file, "--lab", file.parent)
    said = f"token {first} is 'A' to the student path:model and 'B' to the teacher path:teacher"
    assert_one_line(result, said)
    checked = call("check", file, "--lab", file.parent)
    assert checked.exit_code != 0 and "token" in checked.output
    assert not (file.parent / "runs").exists()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"silent": True}, "tells no prompt_logprobs"),
        ({"other": 16}, "to the student path:model and '!' to the teacher openai:m"),
    ],
)
def test_a_server_that_cannot_teach_is_refused_before_the_run_or_stops_it_in_one_line(
    file: Path, fault: dict[str, Any], said: str, late: bool
) -> None:
    with teacher_server(file.parent / "teacher") as server:
        for name, value in {**fault, "late": late}.items():
            setattr(server, name, value)
        words = [word for change in there(server) for word in ("--set", change)]
        result = call("run", file, "--lab", file.parent, *K, *words)
        assert server.tried == 1
    assert_one_line(result, said, code=1 if late and server.silent else 2)
    assert (file.parent / "runs").exists() == late
