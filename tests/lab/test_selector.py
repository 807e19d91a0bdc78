"""A learner that is no language model goes through every command: what it records is its own, a
kill changes nothing, and what needs a tokenizer is refused in one line.
"""

import itertools
import json
import os
import shutil
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from assay.data.episode import Episode
from assay.data.row import Message
from assay.errors import Finding, InputError
from assay.experiment.read_file import read_experiment
from assay.lab.check import work
from assay.lab.check.subject import Number, Subject
from assay.lab.monitor.observer import Silent
from assay.lab.run.runner import start
from assay.lab.setup.learner import question
from assay.lab.setup.session import Session
from assay.rl.packed import pack
from assay.rl.policy import SampleKey, Sampling
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory, runs_of
from tests.cli.conftest import answer, assert_one_line, call
from tests.forked import forked
from tests.lab import selector
from tests.lab.run.test_kill import everything
from tests.lab.selector import CANDIDATES, LinearScorer, PickEncoder, PickPolicy, make_picks_lab
from tests.models.folders import save_tiny_model
from tests.sample_lines import read_samples

FEATURES = {id_: tuple(map(float, values)) for id_, values in CANDIDATES.items()}
ENCODER = PickEncoder(FEATURES, "")
NEAR = 1e-6
HELPED = """
[model.frozen]
source = "scripted:frozen.jsonl"

[stage.rl]
method = "grpo"
data   = "train"
steps  = 8
prompts = 6
group  = 6
reward = "helped"
optimizer = { lr = 1e-1 }
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with a finished run."""
    file = make_picks_lab(tmp_path_factory.mktemp("picks"))
    start(file, root=file.parent)
    return file.parent


@pytest.fixture(scope="module")
def run(lab: Path) -> RunDirectory:
    (found,) = runs_of(lab, "picks")
    return found


def scorer(seed: int = 0) -> LinearScorer:
    module = LinearScorer(3)
    torch.manual_seed(seed)
    with torch.no_grad():
        module.weight.normal_()
    return module


def choice(index: int = 0) -> selector.Choice:
    row = selector.picks_row(index, "train")
    return ENCODER.prompt(row, question(selector.TASK, row))


def episode(actions: tuple[int, ...], index: int = 0) -> Episode:
    row = selector.picks_row(index, "train")
    messages = (*row.prompt, Message("assistant", json.dumps(actions)))
    return Episode("a", "a", ENCODER.turns(row, messages, "last"))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_probabilities_of_all_ordered_picks_add_up_to_one(temperature):
    """Plackett-Luce without replacement: 6 * 5 ordered pairs."""
    pairs = list(itertools.permutations(choice().pool, 2))
    packed = pack([episode(pair) for pair in pairs], temperature)
    logps_S = PickPolicy(scorer()).score(packed).logps_S
    assert float(logps_S.view(-1, 2).sum(1).exp().sum().detach()) == pytest.approx(1)
    scores_K = scorer()([choice()])[0].detach() / temperature
    assert float(logps_S.detach()[0].exp()) == pytest.approx(float(scores_K.softmax(0)[0]))
    assert float(logps_S.detach()[1].exp()) == pytest.approx(float(scores_K[1:].softmax(0)[0]))


def test_what_is_sampled_has_the_scored_probability_and_depends_on_its_key_alone():
    policy, sampling = PickPolicy(scorer()), Sampling(1.0)
    keys = [SampleKey(0, "a", sample) for sample in range(4000)]
    turns = policy.sample([choice()] * len(keys), keys, sampling)
    assert all(len({*turn.actions}) == 2 for turn in turns)
    (again,) = policy.sample([choice()], keys[77:78], sampling)
    assert again.actions == turns[77].actions
    logps_S = policy.score(pack([Episode("a", "a", (turn,)) for turn in turns])).logps_S
    behaviour_S = torch.tensor([x for turn in turns for x in turn.behaviour_logps or ()])
    torch.testing.assert_close(logps_S.detach(), behaviour_S)
    first = turns[0].actions
    share = sum(turn.actions == first for turn in turns) / len(turns)
    expected = float(logps_S.detach()[:2].sum().exp())
    assert abs(share - expected) < 4 * (expected * (1 - expected) / len(turns)) ** 0.5


def test_entropy_is_that_of_the_candidates_that_are_left():
    scores = PickPolicy(LinearScorer(3)).score(pack([episode(choice().pool[:2])]), entropy=True)
    assert scores.entropy_S is not None
    expected = torch.tensor([6.0, 5.0]).log()
    torch.testing.assert_close(scores.entropy_S.detach(), expected)


@pytest.mark.parametrize("text", ["[0, 0]", "[0]", "[99, 0]"])
def test_an_answer_that_cannot_be_picked_is_refused(text):
    row = selector.picks_row(0, "train")
    with pytest.raises(InputError, match="are not 2 of"):
        ENCODER.turns(row, (*row.prompt, Message("assistant", text)), "last")


def test_every_method_trains_it_and_the_scores_rise(run):
    (folder,) = run.evaluations.glob("test-*")
    means = {
        name: sum(scores) / len(scores)
        for name in ("base", "imitate.step-000004", "rl.step-000006")
        for scores in [read_columns(folder / f"{name}.parquet", ["score"])["score"]]
    }
    assert means["base"] + 0.1 < means["imitate.step-000004"]
    assert means["base"] + 0.1 < means["rl.step-000006"]
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert {line["stage"] for line in lines} == {"imitate", "weigh", "explore", "rl"}
    assert all(line["rollout_gap_mean"] < NEAR for line in lines if "rollout_gap_mean" in line)


def test_records_hold_the_picks_as_actions_and_as_text(run):
    for line in read_samples(run.samples("rl", 1)):
        assert json.loads(line["text"]) == list(line["tokens"]) and len(line["tokens"]) == 2
    (folder,) = run.evaluations.glob("sampled-*")
    columns = read_columns(folder / "rl.step-000006.parquet", ["tokens", "output", "prompt_tokens"])
    assert set(columns["prompt_tokens"]) == {6}
    assert [json.loads(o) for o in columns["output"]] == [list(t) for t in columns["tokens"]]


def test_the_manifest_names_candidates_weights_and_prompts(run):
    manifest = json.loads(run.manifest.read_text())
    assert manifest["base_weights"]["source"] == "linear:features.json"
    assert manifest["stages"]["rl"]["rendering"]["name"] == "features"
    assert len(manifest["evaluation"]["test"]["prompts_sha256"]) == 64


def test_another_feature_is_another_run(lab, tmp_path):
    shutil.copytree(lab, tmp_path, dirs_exist_ok=True)
    changed = {**CANDIDATES, 0: [5, 5, 5]}
    (tmp_path / "features.json").write_text(json.dumps(changed))
    again = call("resume", "picks", "--from", "rl.step-0", "--lab", tmp_path)
    assert_one_line(again, "is now", "--new")


def test_it_is_checked_reported_compared_and_measured_again(lab, run):
    checked = call("check", lab / "picks.toml", "--lab", lab, "--json")
    assert checked.exit_code == 0, checked.output
    numbers = answer(checked)["result"]["numbers"]
    assert numbers["model"]["weights"] == 9, "the learner's own check is asked"
    measured = call("eval", "picks@rl.step-2", "--benchmark", "picks/test", "--lab", lab)
    assert measured.exit_code == 0, measured.output
    words = ("linear:features.json", "--benchmark", "picks/test", "--task", "path:picks_task.py")
    source = call("eval", *words, "--lab", lab)
    assert source.exit_code == 0, source.output
    assert call("report", "picks", "--lab", lab).exit_code == 0
    compared = call("compare", "picks@base", "picks@rl.last", "--lab", lab)
    assert compared.exit_code == 0 and "not comparable" not in compared.output
    shown = call(
        "report", f"picks:{read_samples(run.samples('rl', 1))[0]['sample_id']}", "--prompt"
    )
    assert shown.exit_code == 2, "without its lab nothing is found"
    one = read_samples(run.samples("rl", 1))[0]["sample_id"]
    shown = call("report", f"picks:{one}", "--prompt", "--lab", lab)
    assert "query [" in shown.output


def test_a_replay_of_its_own_settings_finds_no_difference(lab):
    for stage in ("rl", "explore"):
        words = ("replay", "picks", "--stage", stage, "--step", 2, "--lab", lab)
        result = call(*words, "--json")
        assert result.exit_code == 0, result.output
        assert not answer(result)["result"]["proof"]["rewards"]
        assert not answer(result)["result"]["proof"]["advantages"]


@pytest.mark.parametrize("command", [("serve",), ("export", "out")])
def test_what_needs_a_tokenizer_is_refused_in_one_line(lab, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    verb, *rest = command
    result = call(verb, "picks@rl.last", *rest, "--lab", lab)
    assert_one_line(result, "needs a language model", "linear selector")
    assert not (tmp_path / "out").exists()


def test_a_stage_that_it_cannot_train_is_refused_before_a_run(tmp_path):
    file = make_picks_lab(tmp_path)
    result = call("run", file, "--lab", tmp_path, "--set", "stage.rl.adapt.kind=lora")
    assert_one_line(result, "stage.rl.adapt", "trained whole")
    assert not (tmp_path / "runs").exists()


def test_a_kind_that_no_learner_opens_is_named(tmp_path):
    file = make_picks_lab(tmp_path)
    result = call("run", file, "--lab", tmp_path, "--set", "model=liner:features.json")
    assert_one_line(result, "unknown kind of model source 'liner'", "linear")


def test_another_experiment_begins_with_its_checkpoint(lab, run):
    text = (lab / "picks.toml").read_text().partition("[stage.imitate]")[0]
    text = text.replace('"picks"\nabout', '"next"\nabout').replace(
        "linear:features.json", "run:picks@rl.last"
    )
    text += '[stage.sft]\nmethod = "sft"\ndata = "train"\nsteps = 1\noptimizer = { lr = 1e-30 }\n'
    (lab / "next.toml").write_text(text)
    result = call("run", lab / "next.toml", "--lab", lab)
    assert result.exit_code == 0, result.output
    (later,) = runs_of(lab, "next")
    manifest = json.loads(later.manifest.read_text())
    assert manifest["base_weights"]["checkpoint"].endswith("checkpoints/rl/step-000006")
    weights = [
        everything(folder)["module.safetensors"]
        for folder in (run.checkpoint("rl", 6), later.checkpoint("sft", 1))
    ]
    assert weights[0] == weights[1]


def test_a_frozen_model_that_reads_the_picks_can_be_its_reward(tmp_path):
    """It is sure of the answer where the first pick is one of the gold ones."""
    file = make_picks_lab(tmp_path)
    data = file.read_text().partition("[stage.imitate]")[0]
    text = data.replace("model =", "model.policy =")
    text += HELPED
    rules = [{"prompt": r"\[(\d+), \d+\] for .*\b\1\b", "logps": 0.0}, {"logps": -5.0}]
    (tmp_path / "frozen.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    file.write_text(text)
    (found,) = start(file, root=tmp_path)
    lines = [json.loads(line) for line in found.metrics.read_text().splitlines()]
    assert lines[-1]["reward_mean"] > lines[0]["reward_mean"] + 0.2
    assert "frozen" in json.loads(found.manifest.read_text())["helpers"]


@pytest.mark.parametrize(("free", "severity"), [(1e12, None), (1e4, "warning")])
def test_the_memory_of_its_frozen_model_is_checked(tmp_path, monkeypatch, free, severity):
    file = make_picks_lab(tmp_path)
    save_tiny_model(tmp_path / "model")
    data = file.read_text().partition("[stage.imitate]")[0].replace("model =", "model.policy =")
    file.write_text(data + HELPED.replace("scripted:frozen.jsonl", "path:model"))
    monkeypatch.setattr(work, "available_memory", lambda device: free)
    session = Session(read_experiment(file), RunDirectory(tmp_path, "picks", "none"), 7, Silent())
    number, *findings = work.helper_memory(Subject(session))
    assert isinstance(number, Number) and number.place == "model.frozen" and number.value > 0
    assert [f.severity for f in findings if isinstance(f, Finding)] == [severity] * bool(severity)


def assay_until(kill_at: int, *words: str) -> None:
    """`assay WORDS` in this process, which is killed before the metrics of its nth step."""
    from assay.cli.main import app
    from assay.lab.run import recorder

    written, seen = recorder.append_metrics, itertools.count(1)

    def append(*given: object, **values: object) -> None:
        if next(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        written(*given, **values)  # type: ignore[arg-type]

    recorder.append_metrics = append
    app(list(words))


def ran(folder: Path, kill_at: int) -> BaseProcess:
    words = ("run", str(folder / "picks.toml"), "--or-resume", "--lab", str(folder))
    process = forked(assay_until, kill_at, *words, log=folder / "log.txt")
    process.join(120)
    return process


@pytest.mark.slow
def test_killed_in_every_stage_and_resumed_it_ends_bit_identical(run, lab, tmp_path):
    make_picks_lab(tmp_path)
    log = tmp_path / "log.txt"
    for kill_at in (2, 7, 3, 6):
        assert ran(tmp_path, kill_at).exitcode == -signal.SIGKILL, (
            tmp_path / "log.txt"
        ).read_text()
    assert ran(tmp_path, 0).exitcode == 0, log.read_text()
    (found,) = runs_of(tmp_path, "picks")
    after, before = everything(found.path), everything(run.path)
    extra = {name for name in before if "test-" in name and "rl.step-000002" in name}
    assert after.keys() == before.keys() - extra
    for name, value in after.items():
        assert value == before[name], name
