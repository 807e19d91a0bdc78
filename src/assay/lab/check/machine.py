"""Checks this machine for `assay doctor`: what is installed or missing, the command to fix it.

Installs, downloads and changes nothing. Importing this module loads no torch; running it does.
"""

import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DISTRIBUTION = "assay-lab"
GIB = 2**30
NEEDED_DISK = 4 * GIB
"""The demo with its wheels, converted model and checkpoints takes about 3 GiB."""
NEEDED_MEMORY = 5 * GIB
"""Full fine-tuning of a 135M model in fp32: weights, gradients, two moments and activations."""

State = Literal["ok", "missing", "optional"]


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement and its state."""

    name: str
    state: State
    """`missing` breaks a feature that the lab needs; `optional` does not."""
    found: str
    mend: str = ""
    """The command, or what to do."""


def examine(root: Path) -> list[Check]:
    """Everything, for the lab at `root`."""
    groups = (packages, arithmetic, isolation, room, engines)
    return [check for group in groups for check in group(root)]


def packages(root: Path) -> Iterator[Check]:
    """Every package that Assay depends on, its version against the range that Assay states. Those
    of the extra `train` count where torch is installed; without it, that is said once."""
    from packaging.requirements import Requirement

    trains = installed("torch") is not None
    if not trains:
        mend = "pip install 'assay-lab[train]' (to train, evaluate, serve and export)"
        yield Check("train", "optional", "not installed: judging only", mend)
    for text in importlib.metadata.requires(DISTRIBUTION) or ():
        need = Requirement(text)
        extra = "train" if trains else ""
        if need.marker is not None and not need.marker.evaluate({"extra": extra}):
            continue
        version = installed(need.name)
        bare = re.sub(r"\s*;.*", "", text)
        mend = f"python -m pip install '{bare}' -c constraints.txt"
        if version is None:
            yield Check(need.name, "missing", "not installed", mend)
        elif not need.specifier.contains(version, prereleases=True):
            yield Check(need.name, "missing", f"{version}, needs {need.specifier}", mend)
        else:
            yield Check(need.name, "ok", version)


def engines(root: Path) -> Iterator[Check]:
    """vLLM, and the environments of other tools that are there."""
    from assay.engines.environments import environment_for, survey

    for engine in survey():
        if engine.problem and not engine.version and engine.name != environment_for("vllm"):
            continue
        mend = f"assay engines add {engine.name}" if engine.problem else ""
        state: State = "optional" if engine.problem else "ok"
        yield Check(f"engine {engine.name}", state, engine.problem or engine.package, mend)


def installed(name: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def arithmetic(root: Path) -> Iterator[Check]:
    """The device, its threads, and whether it computes in bf16."""
    if installed("torch") is None:
        return
    import torch

    from assay.models.precision import choose_precision

    precision = choose_precision()
    name = f"cpu ({platform.machine()})"
    if precision.device != "cpu":
        facts = torch.cuda.get_device_properties(0)
        memory = f"{facts.total_memory / GIB:.0f} GiB"
        name = f"{facts.name}, {memory}, {torch.cuda.device_count()} in all"
    yield Check("device", "ok", name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = torch.get_num_threads()
    fits = threads == cores or "OMP_NUM_THREADS" in os.environ
    mend = "" if fits else f"export OMP_NUM_THREADS={cores}"
    words = f"{threads} torch threads on {cores} cores"
    yield Check("threads", "ok" if fits else "optional", words, mend)
    dtype = str(precision.compute).removeprefix("torch.")
    yield Check("precision", "ok", f"computes in {dtype}: {precision.reason}")


def isolation(root: Path) -> Iterator[Check]:
    """Namespaces for code that a model wrote."""
    from assay.sandbox.isolation import HELP, isolation_available

    sandbox = isolation_available()
    if sandbox.tool:
        yield Check("isolation", "ok", f"namespaces by {sandbox.tool}")
    else:
        yield Check("isolation", "missing", sandbox.why, HELP)


def room(root: Path) -> Iterator[Check]:
    """Free space where the lab and its cache lie, and free memory."""
    import psutil

    from assay.data.files import cache_root

    for name, folder, variable in (("disk", root, "--lab"), ("cache", cache_root(), "ASSAY_CACHE")):
        free = shutil.disk_usage(existing(folder)).free
        enough = free >= NEEDED_DISK
        mend = "" if enough else f"free {NEEDED_DISK // GIB} GiB, or choose another with {variable}"
        words = f"{free / GIB:.1f} GiB free in {folder}"
        yield Check(name, "ok" if enough else "missing", words, mend)
    free = psutil.virtual_memory().available
    enough = free >= NEEDED_MEMORY
    mend = "" if enough else 'train less: adapt = { kind = "lora" }, smaller micro_tokens'
    state: State = "ok" if enough else "optional"
    yield Check("memory", state, f"{free / GIB:.1f} GiB free", mend)


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above that exists."""
    return next(p for p in (folder, *folder.parents) if p.exists())
