"""Every method, full and LoRA, killed at a random instant in each part of a step and in the gate:
the trajectory that goes on is the one that was never broken, to the bit."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.labs.math.rewards import REWARDS
from assay.runs.cost_ledger import LedgerCall, read_calls
from assay.tasks.judge_reward import JudgeReward
from tests.forked import forked
from tests.from_files import start
from tests.lab.run.test_costs_of_runs import RESERVED, asked
from tests.lab.run.test_distill_runs import make_distill_lab
from tests.lab.run.test_dpo_runs import write_groups
from tests.lab.run.test_kill import everything, faults

HEAD = """\
name  = "tiny"
task  = "math"
seeds = [7]

[model]
policy = "path:model"

[model.teacher]
source = "path:teacher"

[model.judge]
source = "scripted:judge.jsonl"
price = { prompt = 0.0, completion = 1e6 }
sampling = { max_tokens = 4 }
cache = true

[data.sums]
source = "path:sums.jsonl"
format = "messages"
split  = { dev = 0.25, by = "conversation" }

[data.groups]
source = "path:groups.jsonl"
format = "messages"
"""
SAMPLED = "prompts = 2\ngroup = 4\nsampling = { temperature = 1.0, max_tokens = 8 }\n"
REWARDED = SAMPLED + "reward = { accuracy = 1.0, cosine = 0.5, asked = 0.1 }\n"
REWARDED += "reward_concurrency = 1\n"
OWN = {
    "sft": "batch = 4\n",
    "rft": f"{REWARDED}keep = 0.0\n",
    "rce": f'{REWARDED}degenerate = "imitate"\n',
    "grpo": f"{REWARDED}kl = {{ coef = 0.05 }}\nupdates = {{ minibatches = 2, epochs = 2 }}\n",
    "dpo": "batch = 4\nbeta = 0.5\npairs = { per_group = 2 }\n",
    "distill": f"{SAMPLED}lmbda = 0.5\nbeta = 0.5\n",
}
STAGE = """
[stage.{name}]
method = "{name}"
data   = "{data}"
steps  = 3
{own}checkpoint_every = 1
optimizer = {{ lr = 1e-3 }}
{adapt}
[evaluate.dev_{name}]
data   = "sums.dev"
reward = "accuracy"
role   = "select"
checkpoints = ["{name}.all"]
sampling = {{ max_tokens = 8 }}
"""
ADAPT = {"full": "", "lora": 'adapt = { kind = "lora", rank = 2, alpha = 4 }\n'}
HELPER = "helper/judge/"
JUDGED = {"rft", "rce", "grpo"}
PLACES = {
    "collect": ("assay.train.loop", "start_peak"),
    "judge": ("assay.train.sampled_groups", "judge"),
    "update": ("assay.train.loop", "run_updates"),
    "save": ("assay.lab.run.recorder", "save_checkpoint"),
    "gate": ("assay.lab.evaluate.checkpoint_selection", "promote"),
}
"""By the part of a step: the module and the name of what begins it."""


def make_phases_lab(folder: Path, adapt: str) -> Path:
    tables = "".join(
        STAGE.format(
            name=name, data="groups" if name == "dpo" else "sums", own=own, adapt=ADAPT[adapt]
        )
        for name, own in OWN.items()
    )
    write_groups(folder / "groups.jsonl")
    (folder / "judge.jsonl").write_text('{"answer": "quite good"}\n')
    return make_distill_lab(folder, HEAD + tables)


def assay_until(method: str, part: str, delay: float, *words: str) -> None:
    """`assay WORDS` in this process, killed so long after the first beginning of a part of a step
    in a stage of this method."""
    from importlib import import_module

    from assay.cli.main import app
    from assay.lab.run import runner

    # A process of its own knows nothing of what the test has set.
    REWARDS["asked"] = JudgeReward(asked, ("judge",))  # type: ignore[index]
    at, build = [""], runner.build_method

    def building(stage: Any, *values: Any, **named: Any) -> Any:
        at.append(stage.method)
        return build(stage, *values, **named)

    def killing(begun: Callable[..., Any]) -> Callable[..., Any]:
        def called(*values: Any, **named: Any) -> Any:
            if at[-1] == method:
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return begun(*values, **named)

        return called

    runner.build_method = building
    if part:
        module, name = import_module(PLACES[part][0]), PLACES[part][1]
        setattr(module, name, killing(getattr(module, name)))
    app(list(words))


def ran(folder: Path, *until: Any) -> int | None:
    words = ("run", str(folder / "tiny.toml"), "--or-resume", "--lab", str(folder))
    words += ("--despite", "two methods learn from so few rows")
    process = forked(assay_until, *until, *words, log=folder / "log.txt")
    process.join(600)
    return process.exitcode


def helper_metrics(recorded: dict[str, Any]) -> dict[tuple[str, int], dict[str, float]]:
    """Take what the judge was asked and cost out of the metrics; by stage and step, but for what
    was remembered."""
    found = dict[tuple[str, int], dict[str, float]]()
    for line in recorded["metrics.jsonl"]:
        line.pop(f"{HELPER}remembered", None)
        found[line["stage"], line["step"]] = {n: line.pop(n) for n in [*line] if HELPER in n}
    return found


def check_calls(whole: list[LedgerCall], calls: list[LedgerCall]) -> Counter[tuple[str, int]]:
    """Each answer of the judge was paid once, as without kills: what is asked again is remembered.
    Of each kill at most one call is left on its way, which counts as the most that it may cost;
    returns those, by stage and step. What a teacher tells costs nothing, and is read again."""
    paid, again = (
        Counter((c.stage, c.step, c.completion, c.most) for c in each if c.cost)
        for each in (whole, calls)
    )
    assert paid == again
    left = [c for c in calls if c.status not in ("answered", "remembered")]
    assert {(c.status, c.cost, c.uncertain / 1e9) for c in left} <= {("sent", None, RESERVED)}
    assert len({c.opening for c in left}) == len(left)
    return Counter((c.stage, c.step) for c in left)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("adapt", ADAPT)
def test_every_method_goes_on_as_if_nothing_had_been(
    tmp_path: Path, adapt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REWARDS, "asked", JudgeReward(asked, ("judge",)))  # type: ignore[arg-type]
    file, chance = make_phases_lab(tmp_path, adapt), random.Random(adapt)
    (whole,) = start(file, root=tmp_path, despite="two methods learn from so few rows")
    expected, calls = everything(whole.path), read_calls(whole.path)
    (tmp_path / "runs").rename(tmp_path / "unbroken")
    (tmp_path / "lab.sqlite").unlink()
    met = 0
    for method in OWN:
        for part in PLACES:
            if part != "judge" or method in JUDGED:
                code = ran(tmp_path, method, part, chance.uniform(0, 0.01))
                assert code in (0, -signal.SIGKILL), (tmp_path / "log.txt").read_text()[-3000:]
                met += code != 0
                assert faults(tmp_path) <= {"unknown"}
    assert ran(tmp_path, "", "", 0.0) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    (run,) = (tmp_path / "runs" / "tiny").iterdir()
    resumed = everything(run)
    assert resumed.keys() == expected.keys()
    paid = helper_metrics(expected)
    for place, count in check_calls(calls, read_calls(run)).items():
        paid[place][f"{HELPER}requests"] += count
    assert helper_metrics(resumed) == paid
    for name, value in expected.items():
        assert resumed[name] == value, name
    assert met >= 24
