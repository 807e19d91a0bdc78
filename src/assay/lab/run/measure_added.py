"""Measures a finished run on reporting evaluations that its experiment has got since.

So a sweep whose `evaluate.` axis grows need not train again. The run's spec and manifest stay as
they were; each new record says how it was made. Evaluations that choose checkpoints belong to the
training and are never added.
"""

from collections.abc import Mapping

from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.checkpoint_selection import expand, report
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.observer import Observer
from assay.lab.setup.manifest import RunChanged, check_base, rows_still_there
from assay.lab.setup.session import Session
from assay.runs.measurements import evaluation_records
from assay.runs.records import EvaluationRecord
from assay.runs.registry import note_run
from assay.runs.run_directory import RunDirectory
from assay.runs.status import hold_run, stored_status


def lacking(run: RunDirectory, experiment: Experiment) -> dict[str, EvaluateSpec]:
    """The reporting evaluations of an experiment that its run was not made with and that have no
    finished record of every checkpoint; the run has all its checkpoints.
    """
    own = read_experiment(run.spec).evaluate
    records = {record.name: record for record in evaluation_records(run)}
    return {
        name: spec
        for name, spec in experiment.evaluate.items()
        if name not in own and spec.role == "report" and not _done(run, records.get(name), spec)
    }


def _done(run: RunDirectory, record: EvaluationRecord | None, spec: EvaluateSpec) -> bool:
    if record is None:
        return False
    wanted = [reference for text in spec.checkpoints for reference in expand(run, text)]
    return all(record.finished(run, checkpoint_name(reference)) for reference in wanted)


def measure_added(run: RunDirectory, added: Mapping[str, EvaluateSpec], observer: Observer) -> None:
    """Make the records of `added`.

    Raises BaseChanged and RunChanged where the model or the training rows are no longer what the
    run was made from, RunBusy while it is executed elsewhere, and what evaluating raises.
    """
    experiment = read_experiment(run.spec)
    whole = experiment.model_copy(update={"evaluate": {**experiment.evaluate, **added}})
    session = Session(whole, run, stored_status(run.path).seed, observer)
    check_base(session)
    if rows_still_there(session) is None:
        problem = f"the rows that {run} was trained on are no longer there, or no longer the same"
        fix = "restore them: whether new items were trained on could not be told"
        raise RunChanged(problem, field="data", fix=fix)
    evaluations = answerer_of(session).evaluations()
    with hold_run(run.path):
        for name in added:
            report(session, evaluations[name])
    note_run(run)
