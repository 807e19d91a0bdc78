"""One GRPO experiment by Assay, TRL, verl and ms-swift on the CPU, judged alike; and SFT's losses.

    python -m benchmarks.trainers           all of it, on two quiet cores about two hours
    python -m benchmarks.trainers curves    each trainer with each seed, imported and evaluated
    python -m benchmarks.trainers verdicts  rewards and verdicts of the runs that are there
    python -m benchmarks.trainers replays   Assay's updates on each tool's own answers
    python -m benchmarks.trainers sft       the first ten losses, packed and not
    python -m benchmarks.trainers costs     CPU-seconds and memory of a step, the sides in turn

What is there is not made again: folders, logs and what was measured lie in build/trainers, runs in
runs/; delete what is to be made anew. Each side has one thread. The tools' environments are needed:
`assay engines add trl`, `verl`, `swift`. verl takes 8 GB.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from assay.engines.environments import ENVIRONMENTS, installed
from assay.runs.history import History
from assay.runs.run_directory import runs_of, stored_status
from benchmarks.driver import ROOT, say
from benchmarks.process_tree import run_measured
from benchmarks.results import machine, save_result
from benchmarks.worker import Record, versions

FILES = ROOT / "experiments" / "chat" / "trainers"
WORK = ROOT / "build" / "trainers"
TOOLS = ("trl", "verl", "swift")
SIDES = ("assay", *TOOLS)
SEEDS = (1, 2)
MARGIN = 5
"""Points within which scores count as equivalent."""
ALONE = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SHORT = ("stage.rl.steps=4", "evaluate.test.take={rows=4,how='first'}", "evaluate.test.repeats=1")
"""What a run that is only timed is given."""
REPLAYED = ("trl-2", "verl-1", "swift-2")
ROUNDS = 1
PACKED = ("stage.sft.pack_tokens=128", "stage.sft.batch=4")
FIRST = 16
"""Rows of the update that TRL repeats in packs."""
ON_CPU = ("--attn_impl", "sdpa", "--external_plugins", f"{ROOT}/benchmarks/swift_packs_on_cpu.py")


def call(*arguments: str | Path) -> str:
    """What Assay's command line prints. Raises CalledProcessError."""
    command = [*assay(), *map(str, arguments)]
    environment = os.environ | ALONE
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    ).stdout


def assay() -> list[str]:
    """The command line of Assay, as it is here."""
    start = "import sys; from assay.cli.main import app; sys.exit(app())"
    return [sys.executable, "-c", start, "--lab", str(ROOT)]


def given(settings: Sequence[str]) -> list[str]:
    """Overrides of an experiment file."""
    return [part for each in settings for part in ("--set", each)]


def once(name: str, make: Callable[[], Record]) -> Record:
    """What was measured under a name, which is measured now where it was not."""
    file = WORK / f"{name}.json"
    if not file.exists():
        say(name)
        before = machine()
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"machine": before, **make()}, indent=1)
        file.write_text(text + "\n")
    return json.loads(file.read_text())


def export(file: str, tool: str, folder: Path, settings: Sequence[str]) -> Path:
    """The folder that a tool trains, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    call("export", FILES / file, folder, "--to", tool, *given(settings))
    return folder


def train(tool: str, folder: Path, *more: str) -> Record:
    """What a tool took to train an exported folder."""
    log = folder / "run.log"

    def done() -> int:
        if tool == "verl":
            return count(folder / "output" / "metrics.jsonl", '"step":')
        return count(log, "'loss':")

    environment = {**ALONE, "PYTHON": str(installed(tool)), "ASSAY_PYTHON": sys.executable}
    command = ["bash", "run.sh", *more]
    return run_measured(command, log, done, folder=folder, environment=environment)


def train_here(name: str, settings: Sequence[str]) -> Record:
    """What Assay took to train the experiment, under a name, and to evaluate it."""
    folder = ROOT / "runs" / name
    before = {*folder.glob("*")}

    def done() -> int:
        return sum(count(run / "metrics.jsonl", '"step":') for run in {*folder.glob("*")} - before)

    options = given([f'name="{name}"', *settings])
    command = [*assay(), "run", str(FILES / "grpo.toml"), "--new", *options]
    WORK.mkdir(parents=True, exist_ok=True)
    return run_measured(command, WORK / f"{name}.log", done, folder=ROOT, environment=ALONE)


def count(file: Path, mark: str) -> int:
    """How often a mark stands in a log; 0 where it is not there."""
    return file.read_text(errors="replace").count(mark) if file.exists() else 0


def trained(side: str, seed: int) -> Record:
    """One curve's training; a tool's run is a run of the lab afterwards, evaluated like Assay's."""
    own = f"seeds=[{seed}]"
    if side == "assay":
        return train_here(name_of(side), [own])
    folder = export("grpo.toml", side, WORK / f"{side}-{seed}", [own])
    found = train(side, folder)
    call("import", folder, "--from", side, "--name", name_of(side))
    call("resume", f"{name_of(side)}#{seed}")
    return found


def name_of(side: str) -> str:
    """What the runs of a side are called."""
    return "trainers-grpo" if side == "assay" else f"trainers-{side}"


def curves() -> Record:
    """All trainings."""
    if not (ROOT / "runs" / "trainers-start").is_dir():
        call("run", FILES / "start.toml")
    pairs = [(side, seed) for seed in SEEDS for side in SIDES]
    found = {
        f"{side}-{seed}": once(f"{side}-{seed}", lambda s=side, n=seed: trained(s, n))
        for side, seed in pairs
    }
    return {"trained": found}


def verdicts() -> Record:
    """Of each side against the start and of each pair of sides, over the seeds that both have."""
    runs = {side: runs_of(ROOT, name_of(side)) for side in SIDES}
    seeds = {side: {stored_status(run.path).seed: run for run in runs[side]} for side in SIDES}
    rewards = {
        f"{side}-{seed}": [line["reward_mean"] for line in History(run).lines("rl")]
        for side in SIDES
        for seed, run in seeds[side].items()
    }
    found = {f"{side}, start": compared(side, "@base", side, seeds[side]) for side in SIDES}
    for control, other in combinations(SIDES, 2):
        shared = [seed for seed in seeds[control] if seed in seeds[other]]
        for seed in shared:
            found[f"{other}, {control}, seed {seed}"] = compared(control, "", other, [seed])
        if len(shared) > 1:
            found[f"{other}, {control}"] = compared(control, "", other, shared)
    return {"rewards": rewards, "verdicts": found}


def compared(control: str, checkpoint: str, other: str, seeds: Collection[int]) -> Record:
    """A side's verdict against another side, or against its own start.

    What may differ is the trainer, and Assay's code where runs were made on different days.
    """
    seed = f"#{min(seeds)}" if len(seeds) == 1 else ""
    names = [
        f"{name_of(control)}{seed}{checkpoint or '@rl.last'}",
        f"{name_of(other)}{seed}@rl.last",
    ]
    page = WORK / "pages" / f"{other}-{control}{checkpoint}{seed}.html"
    ask = ["compare", *names, "--margin", str(MARGIN), "--page", page, "--json"]
    told = json.loads(call(*ask))["result"]
    unlike = [each["path"] for each in told["differences"] if each["kind"] == "confound"]
    allowed = [path for path in unlike if path.startswith(("code.", "stages.rl.trainer"))]
    if allowed:
        told = json.loads(call(*ask, *(f"--allow={path}" for path in allowed)))["result"]
    comparison = told["lines"][-1]["to_control"]["comparison"]
    kept = ("control_score", "score", "difference", "interval", "verdict", "margin", "method")
    found = {key: comparison[key] for key in kept}
    about = {"side": other, "control": control, "seeds": sorted(seeds), "allowed": allowed}
    return {**about, **found}


def replay(*arguments: str | Path) -> Record:
    """What `trainer_replay` finds."""
    command = [sys.executable, "-m", "benchmarks.trainer_replay", *map(str, arguments)]
    environment = os.environ | ALONE
    done = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def replays() -> Record:
    """A seed of each tool."""
    return {
        name: once(
            f"replay-{name}",
            lambda n=name: replay("grpo", n.partition("-")[0], WORK / n),
        )
        for name in REPLAYED
    }


def logged(tool: str, folder: Path, *more: str) -> Record:
    """Losses and gradient norms that a tool logs, beside what it took."""
    found = train(tool, folder, *more)
    (file,) = (folder / "output").glob("checkpoint-*/trainer_state.json")
    entries = [e for e in json.loads(file.read_text())["log_history"] if "loss" in e]
    numbers = {name: [float(e[name]) for e in entries] for name in ("loss", "grad_norm")}
    return {**found, **numbers}


def sft() -> Record:
    """The first ten updates: rows as they are, ms-swift's packs, an update's rows packed by TRL."""
    found: Record = {}
    for tool in ("trl", "swift"):
        folder = WORK / f"sft-{tool}"
        found[tool] = once(
            f"sft-{tool}", lambda t=tool, f=folder: logged(t, export("start.toml", t, f, ()))
        )
    found["assay"] = once("sft-assay", lambda: replay("sft", "trl", WORK / "sft-trl", "visited"))
    packs = WORK / "packed-swift"
    found["swift packed"] = once(
        "packed-swift",
        lambda: logged("swift", export("start.toml", "swift", packs, PACKED), *ON_CPU),
    )
    found["assay, ms-swift's packs"] = once(
        "packed-swift-assay", lambda: replay("sft", "swift", packs, "packs")
    )
    found["trl packed"] = once("packed-trl", packed_by_trl)
    same = WORK / "packed-trl"
    found["assay, one update's rows"] = once(
        "packed-trl-assay", lambda: replay("sft", "trl", same, "same")
    )
    return found


def packed_by_trl() -> Record:
    """TRL packs otherwise than Assay, so that an update has to have all rows that there are."""
    folder = export("start.toml", "trl", WORK / "packed-trl", ())
    file = folder / "data" / "train.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:FIRST]))
    packs = ("--packing", "true", "--max_length", "128", "--per_device_train_batch_size", "4")
    return logged("trl", folder, *packs, "--num_train_epochs", "10")


def costs() -> Record:
    """CPU-seconds of a step behind the first, and the peak of memory, of sides that take turns."""
    found: dict[str, list[Record]] = {side: [] for side in SIDES}
    for number in range(ROUNDS):
        for side in SIDES:
            name = f"cost-{side}-{number}"
            found[side].append(once(name, lambda s=side, n=name: short(s, n)))
    return {
        side: {
            "cpu": [per_step(each, "cpu") for each in runs],
            "wall": [per_step(each, "wall") for each in runs],
            "peak_bytes": max(each["peak_bytes"] for each in runs),
            "load": [each["machine"]["load_average"] for each in runs],
        }
        for side, runs in found.items()
    }


def short(side: str, name: str) -> Record:
    """Four steps."""
    settings = ["seeds=[1]", *SHORT]
    if side == "assay":
        return train_here(name, settings)
    return train(side, export("grpo.toml", side, WORK / name, settings))


def per_step(run: Record, what: str) -> float:
    """Seconds of a step, without the first."""
    first, last = run["steps"][0], run["steps"][-1]
    return (last[what] - first[what]) / (last["step"] - first["step"])


PARTS: Mapping[str, Callable[[], Record]] = {
    "curves": curves,
    "verdicts": verdicts,
    "replays": replays,
    "sft": sft,
    "costs": costs,
}


def main() -> None:
    """Make what is asked for, and write what there is."""
    asked = sys.argv[1:] or list(PARTS)
    if not set(asked) <= set(PARTS):
        raise SystemExit(__doc__)
    for name in asked:
        found = PARTS[name]()
        packages = dict(ENVIRONMENTS[tool].requirements[1].split("==") for tool in TOOLS)
        about = {
            "machine": machine(),
            "versions": {"tools": versions("assay-lab", "torch") | packages},
        }
        say(str(save_result("trainers", name, {**about, name: found})))


if __name__ == "__main__":
    main()
