"""The sections by name, in the order they run; one of them is run here, in a process of its own."""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from assay.sandbox.call_process import PR_SET_PDEATHSIG, process_control
from benchmarks.gpu.rows import Rows, Setup
from benchmarks.results import machine
from benchmarks.worker import Record

PACKAGES = ("torch", "transformers", "peft", "trl", "vllm", "triton")


@dataclass(frozen=True)
class Section:
    """Where its function is, and the seconds it may take."""

    module: str
    function: str
    seconds: float

    def load(self) -> Callable[[Setup, Rows], None]:
        """The function. Modules are imported where they run: one that breaks is a row."""
        return getattr(import_module(f"benchmarks.gpu.{self.module}"), self.function)


SECTIONS: Mapping[str, Section] = {
    "score": Section("correct", "score", 90),
    "gradients": Section("correct", "gradients", 120),
    "sample": Section("correct", "sample", 120),
    "updates": Section("correct", "updates", 120),
    "resume": Section("whole", "resume", 240),
    "memory": Section("steps", "memory", 240),
    "steps": Section("steps", "steps", 400),
    "trainer": Section("rates", "trainer", 300),
    "rates": Section("rates", "rates", 400),
    "handover": Section("whole", "handover", 180),
    "ranks": Section("whole", "ranks", 120),
}


def facts(device: str) -> Record:
    """The device, its name and the versions."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    found = {package: installed(package) for package in PACKAGES}
    processor = machine()["processor"]
    name = torch.cuda.get_device_name(0) if device == "cuda" else processor
    about = f"{name}, {os.cpu_count()} cores of {processor}"
    if device == "cuda":
        gigabytes = torch.cuda.get_device_properties(0).total_memory / 2**30
        about = f"{torch.cuda.device_count()} x {gigabytes:.0f} GiB {about}"
    folder = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
    versions = {package: number for package, number in found.items() if number}
    return {"device": device, "name": name, "about": about, "folder": folder, "versions": versions}


def installed(package: str) -> str:
    """Its version; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def main() -> None:
    """Run the section that the first argument describes, or print the machine's facts."""
    if sys.argv[1] == "facts":
        print(json.dumps(facts(sys.argv[2])))
        return
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)  # of a program that is killed nothing is left
    setup = Setup(**json.loads(sys.argv[1]))
    SECTIONS[setup.section].load()(setup, Rows(Path(os.environ["ASSAY_GPU_ROWS"])))


if __name__ == "__main__":
    main()
