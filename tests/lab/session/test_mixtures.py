"""Mixtures, conditions and orders of [data.NAME]: the rows of a stage, the manifest, refusals."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.data.renderings.rendering import Renderer
from assay.data.splits import visits
from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.lab.data.prepare import DataSet, describe, find_order, find_part, prepare_set
from assay.lab.models.language_encoder import LanguageEncoder
from assay.lab.monitor.observer import Silent
from assay.lab.session.manifest import make_manifest
from assay.lab.session.session import Session
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory
from assay.tasks.task import task
from tests.data.chat import tokenizer
from tests.from_files import run_from
from tests.judge.test_confounds import confounds
from tests.lab.sound_lab import found, look, make_sound_lab, silent
from tests.models.folders import save_tiny_model
from tests.tiny_labs import make_lab

ENCODER = LanguageEncoder(Renderer(tokenizer("chatml"), "hermes"), frozenset())
HEAD = 'name = "x"\nmodel = "path:model"\ntask = "math"\n'
SETS = """
[data.easy]
source = "path:easy.jsonl"
format = "prompt_answer"
split = { dev = 2, by = "conversation" }

[data.hard]
source = "path:hard.jsonl"
format = "prompt_answer"
"""
MIX = "\n[data.mix]\nmix = { easy = 0.7, hard = 0.3 }\n"
STAGE = """
[stage.sft]
method = "sft"
data = "mix"
epochs = 1
batch = 2
"""


def lines(file: Path, count: int, of: str) -> None:
    rows = [
        {"id": str(n), "prompt": f"{of} {n}?", "answer": str(n), "level": (n * 7) % count}
        for n in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    lines(tmp_path / "easy.jsonl", 12, "easy")
    lines(tmp_path / "hard.jsonl", 9, "hard")
    return tmp_path


def read(lab: Path, text: str) -> Experiment:
    (lab / "x.toml").write_text(HEAD + text)
    return read_experiment(lab / "x.toml")


def made(lab: Path, text: str, name: str = "mix") -> DataSet:
    return prepare_set(read(lab, text), name, task("math"), lambda _: ENCODER, lab)


def refusal(lab: Path, text: str) -> str:
    with pytest.raises(InputError) as found:
        read(lab, text)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_mixture_has_the_training_rows_of_its_sets_under_names_of_their_own(lab: Path) -> None:
    found = made(lab, SETS + MIX)
    ids = {row.id for row in found.train}
    assert len(found.train) == 19 == len(ids)
    assert Counter(id_.split("/")[0] for id_ in ids) == {"easy": 10, "hard": 9}
    assert len(found.dev) == 2 and not ids & {row.id for row in found.dev}
    assert find_order({"mix": found}, "mix").count == 14
    assert find_part({"mix": found}, "mix.dev") == found.dev
    assert find_order({"mix": found}, "mix.dev").count == 2


def test_mixtures_can_be_mixed(lab: Path) -> None:
    text = SETS + MIX + "\n[data.all]\nmix = { mix = 0.5, hard = 0.5 }\n"
    found = made(lab, text, "all")
    assert {row.id.rpartition("/")[0] for row in found.train} == {"hard", "mix/easy", "mix/hard"}
    assert find_order({"all": found}, "all").count == 18
    assert [row.id.split("/")[:2] for row in found.dev] == [["mix", "easy"]] * 2


def test_a_condition_leaves_rows_out_before_the_subset_is_taken(lab: Path) -> None:
    where = 'where = [{ field = "extra.level", at_least = 3, below = 9 }]\ntake = { rows = 4 }\n'
    found = made(lab, SETS.replace("format", where + "format", 1), "easy")
    kept = (*found.train, *found.dev)
    assert len(kept) == 4 and all(3 <= row.extra["level"] < 9 for row in kept)
    ((reason, ids),) = found.dropped.items()
    assert reason == "where: not extra.level at_least 3, below 9" and len(ids) == 6
    spec = read(lab, SETS).data["easy"]
    assert f"6 dropped: {reason}" in describe(found, spec)


@pytest.mark.parametrize(
    ("order", "levels"),
    [
        ('"given"', [0, 7, 5, 3, 1, 8, 6, 4, 2]),
        ('{ by = "extra.level" }', [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ('{ by = "extra.level", descending = true }', [8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ],
)
def test_rows_come_in_the_order_that_is_asked_for(lab: Path, order: str, levels: list[int]) -> None:
    found = made(lab, SETS + f"order = {order}\n", "hard")
    stream = visits(found.train, 5, 0, 18, find_order({"hard": found}, "hard"))
    assert [row.extra["level"] for _, row in stream] == levels * 2


def test_a_sorted_mixture_sorts_the_rows_of_each_epoch(lab: Path) -> None:
    found = made(lab, SETS + MIX + 'order = { by = "extra.level" }\n')
    epoch = visits(found.train, 5, 14, 14, find_order({"mix": found}, "mix"))
    levels = [row.extra["level"] for _, row in epoch]
    assert levels == sorted(levels)
    assert Counter(row.id.split("/")[0] for _, row in epoch) == {"easy": 10, "hard": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MIX.replace("hard", "hrad"), "data.mix.mix.hrad: unknown data 'hrad' .*mean 'hard'"),
        (MIX.replace("0.3", "0.4"), "data.mix.mix: the weights 0.7 . 0.4 add up to 1.1, not to 1"),
        (MIX.replace("hard", "mix"), "data.mix.mix.mix: 'mix' would be a part of itself"),
        (MIX + "take = { rows = 3 }\n", "data.mix.take: a mixture takes the rows of its sets"),
        ('where = [{ field = "level", above = 1 }]\n', "'level' is no field of a row"),
    ],
)
def test_tables_that_make_no_sense_are_refused_in_one_line(
    lab: Path, text: str, message: str
) -> None:
    assert re.search(message, refusal(lab, SETS + text))


def test_a_mixture_of_a_set_that_is_too_small_names_the_table(lab: Path) -> None:
    text = SETS + "[data.mix]\nmix = { easy = 0.99, hard = 0.01 }\n"
    with pytest.raises(Exception, match=r"data\.mix\.mix: 'hard' gets no row of an epoch of 10"):
        made(lab, text)


def manifest(lab: Path, text: str) -> dict[str, Any]:
    session = Session(read(lab, text), RunDirectory(lab, "x", "none"), 7, Silent())
    return json.loads(json.dumps(make_manifest(session)))


def test_another_mixture_or_order_is_a_difference_by_its_name(lab: Path) -> None:
    save_tiny_model(lab / "model")
    control = manifest(lab, SETS + MIX + STAGE)
    assert control["data"]["mix"]["sources"] == {
        "easy": {"rows": 10, "epoch_rows": 10},
        "hard": {"rows": 9, "epoch_rows": 4},
    }
    assert not confounds(control, manifest(lab, SETS + MIX + STAGE))

    def paths(text: str, *vary: str) -> list[str]:
        return [c.path for c in confounds(control, manifest(lab, text), vary)]

    weights = ["data.mix.mix.easy", "data.mix.mix.hard"]
    assert paths(SETS + MIX.replace("7", "6").replace("3", "4") + STAGE) == weights
    ordered = SETS + 'order = "given"\n' + MIX + STAGE
    assert paths(ordered) == ["data.hard.order"]
    assert paths(ordered, "data.hard.order") == []


MIXED = """
[data.more]
source = "path:test.jsonl"
format = "messages"

[data.mix]
mix = { sums = 0.75, more = 0.25 }
epoch_rows = 8

[stage.sft]
method = "sft"
data = "mix"
epochs = 3
batch = 4
optimizer = { lr = 1e-2 }
checkpoint_every = { epochs = 1 }

[stage.rl]
method = "grpo"
data = "mix"
steps = 3
prompts = 4
group = 2
sampling = { max_tokens = 4 }
reward = "cosine"
checkpoint_every = 1
validation = "mix.dev"
validation_every = { epochs = 1 }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("lab")
    return run_from(make_lab(folder, until="[stage.sft]", tables=MIXED))


def test_a_run_on_a_mixture_says_where_its_rows_came_from(run: RunDirectory) -> None:
    lines_ = read_metrics(run.metrics)
    sft, rl = ([line for line in lines_ if line["stage"] == name] for name in ("sft", "rl"))
    assert len(sft) == 6 and run.checkpoint_steps("sft") == [2, 4, 6]
    for epoch in (sft[:2], sft[2:4], sft[4:]):
        assert sum(line["source_share/more"] for line in epoch) == pytest.approx(0.5)
    for line in rl:
        shares = [line[f"source_share/{name}"] for name in ("sums", "more")]
        assert sum(shares) == pytest.approx(1)
        rewards = {name: line.get(f"source_reward/{name}", 0.0) for name in ("sums", "more")}
        mean = rewards["sums"] * shares[0] + rewards["more"] * shares[1]
        assert mean == pytest.approx(line["reward_mean"])
    assert [line["step"] for line in rl if "validation_loss" in line] == [2, 3]


def test_a_stage_that_ends_within_a_fixed_order_is_warned_of(tmp_path: Path) -> None:
    lab = make_sound_lab(tmp_path)
    (lab / "tiny.toml").write_text(
        (lab / "tiny.toml").read_text().replace("split  =", 'order = "given"\nsplit  =')
    )
    seen = found(look(lab), "stage.rl: the last rows of data.sums are never visited")
    assert seen.severity == "warning" and "6 of 12 rows" in seen.evidence
    assert silent(look(lab), "stage.sft: the last rows")
