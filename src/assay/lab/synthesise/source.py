"""Made rows as a data source: `source = "synthesise:NAME"` reads what `assay synthesise` made."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.files import sha256_file
from assay.data.formats.formats import FORMATS, iter_items
from assay.data.loaded import Loaded, gather
from assay.data.row import Row
from assay.errors import Finding, InputError, look_up, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import Problem
from assay.experiment.selection_tables import JSON, SYNTHESISE, SynthesiseSpec
from assay.lab.session.reward_parts import full_reward
from assay.lab.synthesise.answers import prompt_of, reader_of
from assay.lab.synthesise.made_set import made_rows_file
from assay.tasks.task import Task, task


class SynthesisedSource:
    """See `tasks.task.MadeSource`. Only what makes loads torch."""

    def rows(self, experiment: Experiment, table: str, rows: Sequence[Row], root: Path) -> Loaded:
        """The made rows; the seeds are not among them."""
        spec = experiment.synthesise[table]
        return gather(iter_items(made_rows_file(root, experiment.name, table, spec), "messages"))

    def record(self, experiment: Experiment, table: str, root: Path) -> Mapping[str, Any]:
        """The settings of a table and the sha256 of its rows."""
        spec = experiment.synthesise[table]
        file = made_rows_file(root, experiment.name, table, spec)
        settings = spec.model_dump(mode="json", exclude_none=True)
        return {**settings, "rows_sha256": sha256_file(file)}

    def absent(self, experiment: Experiment, root: Path) -> Iterator[Problem]:
        """Prompts, readers, formats, rewards and tests that are not there."""
        skill = task(experiment.task, root)
        for name, spec in experiment.synthesise.items():
            for key, problem, fix in absent_names(experiment, spec, skill, root):
                yield Problem((SYNTHESISE, name, key), problem, fix)

    def unmade(self, session: Any) -> Iterator[Any]:
        """What making each table will cost at most, and an error for each that a data set takes and
        that is not there."""
        from assay.lab.synthesise.make import forecast

        experiment, root = session.experiment, session.run.root
        for name in experiment.synthesise:
            yield from forecast(session, name)
        for name in taken(experiment):
            try:
                made_rows_file(root, experiment.name, name, experiment.synthesise[name])
            except InputError as error:
                yield Finding("error", f"{SYNTHESISE}.{name}", error.problem, error.fix or "")

    def make(self, session: Any) -> None:
        """Raise InputError for what is not made: a run pays no teacher."""
        experiment, root = session.experiment, session.run.root
        for name in taken(experiment):
            made_rows_file(root, experiment.name, name, experiment.synthesise[name])

    def generate(self, session: Any, table: str | None) -> list[Any]:
        """`assay synthesise`: make one table, or all."""
        from assay.lab.session.session import Session
        from assay.lab.synthesise.make import make_table

        experiment = session.experiment
        if table is not None:
            look_up(experiment.synthesise, table, SYNTHESISE)
        if not experiment.synthesise:
            fix = "see docs/synthesise.md"
            raise InputError("no table [synthesise.NAME]", field=SYNTHESISE, fix=fix)
        # Every answer is remembered by its draw, so that none is paid for twice.
        helpers = {n: s.model_copy(update={"cache": True}) for n, s in experiment.helpers.items()}
        kept = experiment.model_copy(update={"helpers": helpers})
        own = Session(kept, session.run, session.seed, session.observer)
        own.helpers.check()
        return [make_table(own, name) for name in ([table] if table else experiment.synthesise)]


MADE = SynthesisedSource()


def taken(experiment: Experiment) -> list[str]:
    """The tables that data sets take rows of."""
    sources = [(data.source or "").partition(":") for data in experiment.data.values()]
    return list(dict.fromkeys(name for scheme, _, name in sources if scheme == SYNTHESISE))


def absent_names(
    experiment: Experiment, spec: SynthesiseSpec, skill: Task, root: Path
) -> Iterator[tuple[str, str, str]]:
    """Key, problem and fix of what a table names and is not there."""
    if spec.format not in FORMATS:
        yield "format", f"unknown format {spec.format!r}", nearest(spec.format, FORMATS)
    parts = [f"{name}.{side}" for name in experiment.data for side in ("dev", "test")]
    tests = [*skill.benchmarks, *experiment.data, *parts]
    for test in spec.disjoint_from:
        if test not in tests:
            problem = f"unknown benchmark or data set {test!r}"
            yield "disjoint_from", problem, nearest(test, tests)
    tries = {
        "prompt": lambda: prompt_of(spec, root),
        "read": lambda: None if spec.read == JSON else reader_of(spec, root),
        "reward": lambda: full_reward(skill, spec.reward, root),
    }
    for key, attempt in tries.items():
        try:
            attempt()
        except InputError as error:
            place = f"{error.file}: " if error.file is not None else ""
            yield key, place + error.problem, error.fix or ""
