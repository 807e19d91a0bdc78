"""Selectors of demonstrations go through the lab: they learn, resume bit-identical after a kill,
and are not read from checkpoints of another kind or for other features.
"""

import json
import shutil
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.checkpoint_reference import BASE
from assay.experiment.read_file import read_experiment
from assay.lab.models.learner import question
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.models.weight_files import load_module
from assay.runs.metrics import read_metrics
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory, runs_of
from tests.cli.conftest import answer, assert_one_line, call
from tests.forked import forked
from tests.from_files import run_from, start
from tests.lab import selector_task
from tests.lab.run.test_dpo_runs import assay_until
from tests.lab.run.test_kill import assert_same, everything
from tests.lab.selector_task import (
    EVALUATIONS,
    HEAD,
    STAGES,
    UNTRAINED,
    WORDS,
    make_colours_lab,
    use_words,
)

pytestmark = pytest.mark.usefixtures("colour_words")
SFT = """\
[stage.imitate]
method = "sft"
data   = "train"
steps  = 40
batch  = 8
optimizer = { lr = 1e-2 }

[evaluate.test]
benchmark = "colours/test"
role   = "report"
checkpoints = ["base", "imitate.last"]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory, colour_words) -> Path:
    """A lab with a finished run of the pointer through every method."""
    return run_from(make_colours_lab(tmp_path_factory.mktemp("colours"))).root


def run_in(folder: Path) -> RunDirectory:
    (found,) = runs_of(folder, "colours")
    return found


def of(kind: str, more: str = "") -> str:
    return HEAD.replace("pointer", kind).replace("hidden = 16", f"hidden = 16\n{more}")


def means(run: RunDirectory) -> dict[str, float]:
    """The mean score of each measured checkpoint."""
    (folder,) = run.evaluations.glob("test-*")
    scores = {f.stem: read_columns(f, ["score"])["score"] for f in folder.glob("*.parquet")}
    return {name: sum(found) / len(found) for name, found in scores.items()}


def picks_of(run: RunDirectory, checkpoint: str) -> list[list[int]]:
    (folder,) = run.evaluations.glob("test-*")
    (file,) = folder.glob(f"{checkpoint}.parquet")
    return [json.loads(text) for text in read_columns(file, ["output"])["output"]]


def session_of(file: Path) -> Session:
    return Session(read_experiment(file), RunDirectory(file.parent, "colours", "none"), 7, Silent())


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("pointer", "1e-2"),
        pytest.param("lever", "1e-3", marks=pytest.mark.slow),
    ],
)
def test_a_selector_learns_which_demonstrations_help(kind, rate, tmp_path):
    stages = SFT.replace("1e-2", rate)
    file = make_colours_lab(tmp_path, of(kind, "dropout = 0.1\nvocabulary = 60"), stages)
    (run,) = start(file, root=tmp_path)
    found = means(run)
    assert found["imitate.step-000040"] > found["base"] + 0.15


@pytest.mark.slow
def test_every_method_trains_the_pointer(lab):
    run = run_in(lab)
    lines = read_metrics(run.metrics)
    assert {line["stage"] for line in lines} == {"imitate", "weigh", "rl"}
    gaps = [line["rollout_gap_mean"] for line in lines if "rollout_gap_mean" in line]
    assert gaps and max(gaps) < 1e-6, "grpo trains without dropout: the first ratio is 1"


def test_a_frozen_backbone_stays_as_it_was(lab):
    run = run_in(lab)
    before, after = (
        load_file(run.checkpoint(stage, 6) / "module.safetensors") for stage in ("weigh", "rl")
    )
    changed = {name for name in before if not before[name].equal(after[name])}
    assert changed == {name for name in before if name.startswith(("cross_attn", "attn_norm"))}


def test_records_and_manifest_say_what_was_picked_from_what(lab):
    run = run_in(lab)
    picks = picks_of(run, "base")
    rows = selector_task.benchmark(selector_task.BenchmarkOptions()).items
    for row, chosen in zip(rows, picks, strict=True):
        assert len({*chosen} & {*row.extra["pool"]}) == 2
    manifest = json.loads(run.manifest.read_text())
    assert manifest["base_weights"]["source"] == "selector:pointer"
    assert manifest["stages"]["rl"]["rendering"]["name"] == "minilm"


def test_other_features_are_other_prompts(lab, monkeypatch):
    session = session_of(lab / "colours.toml")
    encoder = session.learner.encoder(RenderingSettings())
    row = session.sets["train"].train[0]
    context, fingerprint = encoder.prompt(row, question(session.task, row)), encoder.fingerprint
    again = session_of(lab / "colours.toml").learner.encoder(RenderingSettings())
    assert again.prompt(row, question(session.task, row)) == context
    other = selector_task.TextEncoder(WORDS.width, lambda: "other", WORDS.open)
    monkeypatch.setitem(selector_task.embeddings.ENCODERS, "minilm", other)
    changed = session_of(lab / "colours.toml").learner.encoder(RenderingSettings())
    assert changed.fingerprint != fingerprint
    assert changed.prompt(row, question(session.task, row)) != context
    assert changed.plain(changed.prompt(row, question(session.task, row))) != encoder.plain(context)


def test_the_similar_and_the_random_are_measured_without_training(tmp_path):
    runs = {}
    for kind in ("similarity", "random"):
        file = make_colours_lab(tmp_path / kind, of(kind), UNTRAINED)
        (runs[kind],) = start(file, root=tmp_path / kind)
    assert means(runs["similarity"])["base"] > 0.6 > means(runs["random"])["base"]


def test_what_has_no_weights_is_not_trained(tmp_path):
    file = make_colours_lab(tmp_path, of("random"), SFT)
    result = call("check", file, "--lab", tmp_path)
    assert_one_line(result, "stage.imitate", "the selector 'random' has no weights")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('model = "selector:pinter"', ("model", "unknown selector 'pinter'", "pointer")),
        ('model = "path:model"', ("selector", "is no selector", "selector:pointer")),
    ],
)
def test_a_model_that_does_not_fit_its_table_is_refused(tmp_path, change, words):
    file = make_colours_lab(tmp_path, HEAD.replace('model = "selector:pointer"', change), UNTRAINED)
    assert_one_line(call("check", file, "--lab", tmp_path), *words)


@pytest.mark.parametrize(
    ("adapt", "words"),
    [
        ('{ kind = "lora" }', ("stage.imitate.adapt", "a selector has no adapters")),
        ('{ kind = "freeze", patterns = ["backbon"] }', ("'backbon' matches no weight",)),
    ],
)
def test_an_adaptation_that_it_does_not_have_is_refused(tmp_path, adapt, words):
    text = SFT.replace("steps  = 40", f"steps = 1\nadapt = {adapt}")
    file = make_colours_lab(tmp_path, HEAD, text)
    assert_one_line(call("run", file, "--lab", tmp_path), *words)
    assert not (tmp_path / "runs").exists()


def continued(lab: Path, head: str) -> Path:
    """An experiment that begins with the run's last checkpoint; `head` is that of a new file."""
    head = head.replace('name  = "colours"', 'name = "next"')
    head = head.replace("selector:pointer", "run:colours@rl.last")
    (lab / "next.toml").write_text(head + UNTRAINED)
    return lab / "next.toml"


def test_another_experiment_begins_with_its_checkpoint_and_its_settings(lab):
    head = "".join(HEAD.partition("[selector]")[0::2]).replace("\nhidden = 16\n", "\n")
    assert "selector]" not in head
    file = continued(lab, head)
    learner = session_of(file).learner
    base = learner.base()  # type: ignore[attr-defined]
    again = learner.base()  # type: ignore[attr-defined]
    load_module(again, run_in(lab).checkpoint("rl", 6))
    pairs = zip(base.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(one.equal(other) for one, other in pairs)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "answers = true",
            "mismatch: trained on minilm of width 11, the model reads .* 11 with answers",
        ),
        ("gate = true", r"2 missing: gate\.bias, gate\.weight"),
    ],
)
def test_a_checkpoint_for_other_settings_is_refused(lab, more, words):
    file = continued(lab, HEAD.replace("hidden = 16", f"hidden = 16\n{more}"))
    with pytest.raises(InputError, match=words):
        session_of(file).learner.sampler(RunDirectory(lab, "next", "none"), BASE)


def test_a_checkpoint_of_another_selector_is_named(lab, tmp_path):
    shutil.copytree(lab, tmp_path, dirs_exist_ok=True)
    run = run_in(tmp_path)
    for file in run.path.rglob("selector.json"):
        file.write_text(file.read_text().replace('"pointer"', '"lever"'))
    file = continued(tmp_path, HEAD)
    with pytest.raises(InputError, match="another selector: lever, the model is pointer"):
        session_of(file).learner.sampler(RunDirectory(tmp_path, "next", "none"), BASE)


def test_check_says_how_much_is_trained_and_warns_of_dropout_in_ratios(lab):
    result = call("check", lab / "colours.toml", "--lab", lab, "--json")
    numbers = answer(result)["result"]["numbers"]
    assert numbers["model"]["weights"] == 16 * 11 + 2 * 256 + 1088 + 32
    assert numbers["stage.rl"]["trained_share"] == pytest.approx(1120 / 1808)
    assert "computed with dropout" not in result.output
    settings = ("--set", "as_reported=true", "--set", "stage.rl.dropout=true")
    reported = call("check", lab / "colours.toml", "--lab", lab, *settings)
    assert "likelihoods are computed with dropout" in " ".join(reported.output.split())


@pytest.mark.parametrize("command", [("serve",), ("export", "out")])
def test_what_needs_a_tokenizer_is_refused_in_one_line(lab, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    verb, *rest = command
    result = call(verb, "colours@rl.last", *rest, "--lab", lab)
    assert_one_line(result, "needs a language model", "selector")
    assert not (tmp_path / "out").exists()


def test_a_replay_of_its_own_settings_finds_no_difference(lab):
    words = ("replay", "colours", "--stage", "rl", "--step", 2, "--lab", lab)
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    assert not answer(result)["result"]["proof"]["rewards"]
    assert not answer(result)["result"]["proof"]["advantages"]


def test_demonstrations_without_words_are_found_before_a_run(tmp_path):
    file = make_colours_lab(tmp_path, of("lever", "vocabulary = 59"), SFT)
    result = call("check", file, "--lab", tmp_path)
    assert result.exit_code != 0
    assert "set selector.vocabulary = 60" in " ".join(result.output.split())


def colours_until(folder: str, kill_at: int, *words: str) -> None:
    """As with `assay_until`, with the made-up features in this process."""
    use_words(pytest.MonkeyPatch(), Path(folder))
    assay_until(kill_at, *words)


def ran(folder: Path, kill_at: int) -> BaseProcess:
    words = ("run", str(folder / "colours.toml"), "--or-resume", "--lab", str(folder))
    process = forked(colours_until, str(folder), kill_at, *words, log=folder / "log.txt")
    process.join(120)
    return process


@pytest.mark.slow
def test_killed_in_every_stage_and_resumed_it_ends_bit_identical(lab, tmp_path):
    """With dropout in sft and rce: a repeated step drops what it dropped before."""
    make_colours_lab(tmp_path, HEAD, STAGES, EVALUATIONS)
    log = tmp_path / "log.txt"
    for kill_at in (2, 6, 5):
        assert ran(tmp_path, kill_at).exitcode == -signal.SIGKILL, log.read_text()
    assert ran(tmp_path, 0).exitcode == 0, log.read_text()
    after, before = (everything(run_in(folder).path) for folder in (tmp_path, lab))
    extra = {name for name in before if "test-" in name and name not in after}
    assert_same(after, {name: before[name] for name in before.keys() - extra})
