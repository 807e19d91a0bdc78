"""The register of sinks, and what can be refused before a run: names, packages, options."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from assay.data.toml_text import KeyPath
from assay.errors import InputError, nearest
from assay.experiment.tables import LogSpec
from assay.lab.monitor.sinks.mlflow_sink import open_mlflow
from assay.lab.monitor.sinks.sink import Opening, Sink
from assay.lab.monitor.sinks.tensorboard_sink import open_tensorboard
from assay.lab.monitor.sinks.trackio_sink import open_trackio
from assay.lab.monitor.sinks.wandb_sink import open_wandb


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A sink by its name in `[log] to`."""

    open: Callable[[Opening], Sink]
    """Called in the sink's thread; only then its package is imported."""
    package: str | None
    """The package that it needs, which the extra of the sink's name installs."""
    options: frozenset[str]
    """The keys of `[log]` that it knows."""


SINKS: dict[str, SinkKind] = {
    "wandb": SinkKind(
        open_wandb, "wandb", frozenset({"project", "name", "dir", "entity", "offline"})
    ),
    "trackio": SinkKind(open_trackio, "trackio", frozenset({"project", "space"})),
    "mlflow": SinkKind(open_mlflow, "mlflow", frozenset({"project", "name", "dir", "uri"})),
    "tensorboard": SinkKind(open_tensorboard, "tensorboard", frozenset({"dir"})),
}

Refusal = tuple[KeyPath, str, str]
"""The key inside `[log]`, what is wrong with it, and what to do."""


class SinkRefused(InputError):
    """A `[log]` table that cannot be followed."""


def refusals(log: LogSpec) -> Iterator[Refusal]:
    """Sinks that are not known or not installed, and keys that none of those named knows."""
    for name in log.to:
        if name not in SINKS:
            yield ("to",), f"unknown sink {name!r}", nearest(name, SINKS)
        elif (package := SINKS[name].package) is not None and not installed(package):
            fix = f"pip install 'assay-lab[{name}]'"
            yield ("to",), f"{name} needs the package {package!r}, which is not installed", fix
    known = {option for name in log.to if name in SINKS for option in SINKS[name].options}
    for key in sorted(log.model_fields_set - {"to"} - known):
        if getattr(log, key) and known:
            problem = f"{' and '.join(log.to)} {'have' if log.to[1:] else 'has'} no such option"
            yield (key,), problem, nearest(key, known)


def installed(package: str) -> bool:
    """Whether a package can be imported; a folder of its name, as `wandb` leaves one, is none."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def check_log(log: LogSpec) -> None:
    """Raise SinkRefused for the first refusal."""
    for path, problem, fix in refusals(log):
        raise SinkRefused(problem, field=".".join(("log", *map(str, path))), fix=fix)
