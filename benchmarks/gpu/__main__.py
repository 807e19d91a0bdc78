"""Whether Assay computes on a GPU what it computes on a CPU, and how fast: one page.

    python -m benchmarks.gpu                   every section, on CUDA where there is some
    python -m benchmarks.gpu --only score      sections whose names hold this
    python -m benchmarks.gpu --minutes 9       no section begins or goes on after so many
    python -m benchmarks.gpu --small           tiny shapes, for a CPU
    python -m benchmarks.gpu --small --fault   with a wrong weight: every comparison has to fail

Each section is a process of its own with a time limit; what breaks is a row, and the sections
behind it run all the same. Results and page are written after every section, under
`benchmarks/results/gpu`, or where `--out` says. What is not installed is a row that says so.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from benchmarks.driver import ROOT, say
from benchmarks.gpu.page import markdown_page
from benchmarks.gpu.rows import FAILED, Row, Rows, Setup
from benchmarks.gpu.sections import SECTIONS
from benchmarks.results import RESULTS, machine
from benchmarks.worker import Record

LEAST_SECONDS = 5.0
"""A section is not begun with less."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: cuda if there is one")
    parser.add_argument("--only", default="", help="sections whose names hold this")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--small", action="store_true", help="tiny shapes")
    parser.add_argument("--fault", action="store_true", help="scale one weight on the device")
    parser.add_argument("--smollm2", help="a folder with SmolLM2-135M-Instruct")
    parser.add_argument("--trl", help="a Python that has TRL 1.16")
    parser.add_argument("--out", type=Path, help="folder for results and page")
    return parser.parse_args()


def run_section(setup: Setup, limit: float, folder: Path) -> list[Row]:
    """The rows of a section, and one more where it broke or was cut short."""
    rows = Rows(folder / f"{setup.section}.jsonl")
    errors = folder / f"{setup.section}.errors"
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.sections", json.dumps(asdict(setup))],
            env={**os.environ, "PYTHONPATH": paths(), "ASSAY_GPU_ROWS": str(rows.file)},
            stderr=stream,
            start_new_session=True,
        )
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            rows.failed(setup.section, f"cut short after {limit:.0f} s")
        finally:
            end(process)
    if process.returncode not in (0, -signal.SIGKILL):
        rows.failed(setup.section, last_line(errors))
    return rows.read()


def end(process: "subprocess.Popen[bytes]") -> None:
    """End what the section started, and itself."""
    with suppress(ProcessLookupError):  # all of it has ended already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def paths() -> str:
    """Where the section finds this package, and Assay."""
    own = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, own))


def last_line(errors: Path) -> str:
    """What a process said last."""
    lines = errors.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it ended by itself and said nothing"


def save(out: Path, facts: Record, found: dict[str, list[Row]]) -> None:
    """Write results and page, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    values = {name: [asdict(row) for row in rows] for name, rows in found.items()}
    for name, text in {
        "sections.json": json.dumps({"machine": facts, "sections": values}, indent=1) + "\n",
        "page.md": markdown_page(facts, found),
    }.items():
        unfinished = out / f".{name}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.rename(out / name)


def facts_of(device: str, command: Sequence[str]) -> Record:
    """What the page says of the machine. The driver itself never opens the GPU."""
    asked = [sys.executable, "-m", "benchmarks.gpu.sections", "facts", device]
    done = subprocess.run(
        asked, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths()}, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {**machine(), **found, "command": " ".join(command)}


def main() -> int:
    """Run the sections; exit code 1 where a row failed."""
    given = arguments()
    started = time.perf_counter()
    command = ["python", "-m", "benchmarks.gpu", *sys.argv[1:]]
    facts = facts_of(given.device or "", command)
    out = given.out or RESULTS / "gpu" / facts["folder"]
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in (each for each in SECTIONS if given.only in each):
            left = 60 * given.minutes - (time.perf_counter() - started)
            # A CPU may be slow, and busy with other things.
            limit = min(left, SECTIONS[name].seconds * (4 if given.small else 1))
            say(f"{name} ({limit:.0f} s)")
            setup = Setup(name, facts["device"], given.small, given.fault, given.smollm2, given.trl)
            if limit < LEAST_SECONDS:
                Rows(Path(folder) / f"{name}.jsonl").left_out(name, "the time was up")
                found[name] = Rows(Path(folder) / f"{name}.jsonl").read()
            else:
                found[name] = run_section(setup, limit, Path(folder))
            save(out, facts, found)
    say("\n" + markdown_page(facts, found))
    return int(any(row.status == FAILED for rows in found.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
