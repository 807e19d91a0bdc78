"""GRPO steps of two commits in turn: what a change costs in CPU-seconds and in memory.

    python -m benchmarks.guard 60861421             that commit and the files as they lie here
    python -m benchmarks.guard 58b120d9 60861421    two commits
    python -m benchmarks.guard 60861421 --cell prompt=32 completion=64 dtype=bf16 threads=1

Both have the same Python, packages, weights, prompts and lengths (`benchmarks.grpo`). A ratio is
the median over pairs of steps that follow each other. Takes about three minutes on two cores.
"""

import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.driver import ROOT, Limits, Side, measure_in_turn, parser_of, running, say
from benchmarks.models import model_folder
from benchmarks.results import machine, ratio, save_result
from benchmarks.shapes import GrpoCell
from benchmarks.worker import Record

ROUNDS = 7
HERE = "here"
WORKERS = ("assay_worker", "grpo_worker")
"""Modules that take a step, in trees of today and of before 2026-11-23."""


def main() -> None:
    """Compare, print the ratios and write the result."""
    parser = parser_of(__doc__)
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", nargs="?", default=HERE, help="another; else the files here")
    parser.add_argument("--cell", nargs="*", default=[], help="fields of the cell, as prompt=32")
    arguments = parser.parse_args()
    values = {"model": "smollm2", "prompt": 256, "completion": 32, "threads": 2}
    for name, value in (pair.split("=", 1) for pair in arguments.cell):
        values[name] = int(value) if value.isdigit() else value
    result = compared(arguments.old, arguments.new, GrpoCell(**values))  # type: ignore[arg-type]
    name = f"{arguments.old}-{arguments.new}-{result['cell']['dtype']}"
    say(str(save_result("guard", name, result)))
    say("  ".join(f"{figure} {ratio:.3f}" for figure, ratio in result["ratios"].items()))


def compared(old: str, new: str, cell: GrpoCell) -> Record:
    """Steps of both, and the ratios of new to old. Raises SystemExit where a side fails."""
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            side_of(name, commit, cell, Path(folder))
            for name, commit in (("old", old), ("new", new))
        ]
        with running(sides) as (workers, failures):
            limits = Limits(600, least=ROUNDS, most=ROUNDS)
            measured = measure_in_turn(
                workers, failures, limits, lambda name, _: workers[name].ask("step")
            )
    if measured.failures:
        raise SystemExit("\n".join(measured.failures.values()))
    record = measured.record()
    return {
        "cell": asdict(cell),
        "machine": before,
        "commits": {"old": old, "new": commit_of(new)},
        **record,
        "ratios": {
            figure: ratio(record["steps"]["old"], record["steps"]["new"], figure)
            for figure in ("cpu", "wall", "peak_bytes")
        },
    }


def commit_of(name: str) -> str:
    """The commit's number; of the files here, with what is not committed marked."""
    if name != HERE:
        return name
    return git("describe", "--always", "--dirty").strip()


def side_of(name: str, commit: str, cell: GrpoCell, folder: Path) -> Side:
    """A worker on the files of a commit, which are laid out below `folder`."""
    tree = ROOT
    if commit != HERE:
        tree = folder / name
        tree.mkdir()
        archive = tree / "files.tar"
        git("archive", "-o", str(archive), commit, "src", "benchmarks")
        subprocess.run(["tar", "-xf", archive, "-C", tree], check=True)
    worker = next(w for w in WORKERS if (tree / "benchmarks" / f"{w}.py").exists())
    module = f"benchmarks.{worker}" if (tree / "benchmarks/__init__.py").exists() else worker
    model = str(model_folder(cell.model))
    settings: Record = {"method": "grpo", "cell": asdict(cell), "model": model, "end": None}
    if worker != WORKERS[0]:
        del settings["cell"]["prompts"], settings["cell"]["group"]
    paths = (tree / "src", tree, tree / "benchmarks")
    return Side(name, module, settings, cell.threads, paths=paths)


def git(*arguments: str) -> str:
    """What git says of this repository. Raises SystemExit with its words."""
    done = subprocess.run(
        ["git", "-C", ROOT, *arguments], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout


if __name__ == "__main__":
    main()
