"""What a sink is: one remote run that takes metrics, scores and pages of a run of Assay.

The sinks are registered in `sink_register`, and driven by `sender`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from assay.compare.score_rows import ScoreRow
from assay.experiment.tables import LogSpec
from assay.runs.run_directory import RunDirectory
from assay.runs.status import RunState

_UNUSUAL = re.compile(r"[^\w\-. :/]")


class Sink(Protocol):
    """One remote run. Any method may raise any Exception; it is called again later."""

    @property
    def remote(self) -> str:
        """The id by which a later process continues the remote run."""
        ...

    @property
    def step(self) -> int | None:
        """The last step that the remote run says it has; None where it does not say."""
        ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Finite numbers of one step, which is counted over all stages from 1."""
        ...

    def scores(self, step: int, rows: Sequence[ScoreRow]) -> None:
        """Scores and verdicts of the reporting evaluations, after the last step."""
        ...

    def pages(self, files: Sequence[Path]) -> None:
        """The pages of the run."""
        ...

    def close(self, state: RunState) -> None:
        """Deliver everything and end the remote run; it may be continued later."""
        ...


@dataclass(frozen=True)
class Opening:
    """What a sink is opened with."""

    run: RunDirectory
    seed: int
    log: LogSpec
    remote: str
    """The remote run to continue; "" for a new one."""
    attempt: int
    step: int
    """The last step that it has."""
    config: Mapping[str, Any]
    """The resolved experiment and the fingerprints."""

    @property
    def project(self) -> str:
        """Where runs of one experiment stand together."""
        return self.log.project or self.run.name

    @property
    def name(self) -> str:
        """The name of the remote run: one for each seed, and for each time it was started over."""
        again = f"-{self.attempt + 1}" if self.attempt else ""
        return f"{self.log.name or self.run.name}#{self.seed}{again}"

    @property
    def id(self) -> str:
        """A name that no other run has: the run's id, which has its time and random digits."""
        again = f"-{self.attempt + 1}" if self.attempt else ""
        return f"{self.run.name[:60]}-{self.run.id}{again}"

    @property
    def folder(self) -> Path:
        """Where files are written on this machine."""
        return self.run.root / (self.log.dir or "log")


def score_values(rows: Sequence[ScoreRow]) -> dict[str, float]:
    """Scores, limits and differences by name, such as `test/rl.last/score`."""
    values: dict[str, float | None] = {}
    for row in rows:
        place = f"{row.evaluation}/{row.checkpoint}"
        values |= {f"{place}/score": row.score, f"{place}/low": row.low, f"{place}/high": row.high}
        values |= {f"{place}/items": row.items, f"{place}/difference": row.difference}
    return {name: value for name, value in values.items() if value is not None}


def verdicts(rows: Sequence[ScoreRow]) -> dict[str, str]:
    """By the same names the verdict against the control."""
    return {f"{r.evaluation}/{r.checkpoint}/verdict": r.verdict for r in rows if r.verdict}


def score_table(rows: Sequence[ScoreRow]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| evaluation | checkpoint | score | 95% interval | items | verdict |"]
    lines.append("|---|---|---:|---|---:|---|")
    lines += [
        f"| {r.evaluation} | {r.checkpoint} | {r.score:.4g} | {r.low:.4g} to {r.high:.4g} "
        f"| {r.items} | {r.verdict or 'control'} |"
        for r in rows
    ]
    return "\n".join(lines)


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as one, with dots between the keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat


def usual(name: str) -> str:
    """A metric's name with '_' for characters that not every program takes."""
    return _UNUSUAL.sub("_", name)
