"""Makes the rows that tasks make first, see `tasks.task.MadeSource`."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from assay.experiment.read_file import ExperimentSource, lines_named
from assay.lab.monitor.observer import Observer
from assay.lab.setup.session import Session
from assay.lab.setup.validate import read_whole
from assay.runs.run_directory import RunDirectory
from assay.tasks.task import built_in


def generate_tables(
    source: ExperimentSource,
    overrides: Sequence[str],
    root: Path,
    name: str | None,
    shard: str,
    observer: Observer,
) -> list[Any]:
    """Make one table of an experiment file, or all. Raises what the maker raises."""
    experiment = read_whole(source, overrides, root)
    nowhere = RunDirectory(root, experiment.name, "generate")
    session = Session(experiment, nowhere, experiment.seeds[0], observer)
    makers = {s: m for lab in chain(session.labs, built_in()) for s, m in lab.made.items()}
    with lines_named(source, overrides):
        return [
            each
            for scheme, maker in makers.items()
            if getattr(experiment, scheme, None)
            for each in maker.generate(session, name, shard)
        ]
