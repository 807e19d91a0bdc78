"""The training seeds of an arm: which runs they are, and what is measured of them together.

How several seeds are judged is `judge.arms`'; which runs are compared is `judged_table`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from assay.compare.fairness import Entrant
from assay.compare.table import Arm
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.experiment.read_file import read_experiment
from assay.judge.arms import as_repeats
from assay.judge.findings import Finding
from assay.judge.scores import on_one_scale
from assay.runs.measurements import evaluation_records, measured_checkpoints
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import RunReference, find_run, parse_run_name, resolve_checkpoint
from assay.runs.same_experiment import apart, begun, made_so, newest_by_seed
from assay.runs.status import read_status, stored_status


def seeds_of(root: Path, reference: RunReference) -> list[RunDirectory]:
    """The run that a name means and, for a name without id and seed, the newest finished run of
    every other seed that was made from the same settings.

    Other seeds that are damaged are left out; `damaged_seeds` names them.
    """
    run = find_run(root, reference)
    if reference.id is not None or reference.seed is not None:
        return [run]
    experiment = read_experiment(run.spec)
    sound, _ = apart(begun(root, run.name))
    done = [r for r in sound if read_status(r.path).status == "finished"]
    others = [r for r in newest_by_seed(done) if _seed(r) != _seed(run)]
    return [run, *(r for r in others if made_so(r, experiment))]


def arm_named(root: Path, text: str) -> Arm:
    """A run and the checkpoint of it that a name means, with the other seeds of a bare name.

    Raises RunNameError, RunNotFound.
    """
    reference = parse_run_name(text)
    wanted = reference.checkpoint
    first, *further = (
        Arm(run, None if wanted is None else checkpoint_name(resolve_checkpoint(run, wanted)))
        for run in seeds_of(root, reference)
    )
    return Arm(first.run, first.checkpoint, tuple(further))


def damaged_seeds(root: Path, reference: RunReference) -> list[Finding]:
    """A warning of each run that `seeds_of` leaves out because it cannot be read."""
    if reference.id is not None or reference.seed is not None:
        return []
    damaged = apart(begun(root, reference.name))[1]
    return [Finding("warning", f"{each.run} is left out", each.why, "") for each in damaged]


def with_seeds(
    entrants: Sequence[Entrant], load: Callable[[Arm, str], Entrant]
) -> tuple[list[Entrant], list[Entrant], list[Finding]]:
    """The entrants with the scores of all their seeds, the entrants of the further seeds, and
    notes; without further seeds unless every entrant has some that were measured on the same items.
    """
    further = {e.measured.name: [s for s in e.arm.seeds if _has(s, e)] for e in entrants}
    if not all(further.values()):
        several = [name for name, seeds in further.items() if seeds]
        return list(entrants), [], [_single(several)] if several else []
    loaded = {
        e.measured.name: [load(s, e.record.name) for s in further[e.measured.name]]
        for e in entrants
    }
    together = [_together(e, loaded[e.measured.name]) for e in entrants]
    return together, [each for seeds in loaded.values() for each in seeds], []


def _has(seed: Arm, entrant: Entrant) -> bool:
    """Whether a further seed was measured on what the entrant was measured on."""
    records = [r for r in evaluation_records(seed.run) if r.name == entrant.record.name]
    return any(
        r.items_hash == entrant.record.items_hash
        and (
            measured_checkpoints(seed.run, r)
            if seed.checkpoint is None
            else r.finished(seed.run, seed.checkpoint)
        )
        for r in records
    )


def _together(first: Entrant, further: Sequence[Entrant]) -> Entrant:
    scores = on_one_scale(*(e.measured.scores for e in (first, *further)))
    numbers = "+".join(str(number) for number in sorted(_seed(e.run) for e in (first, *further)))
    name = f"{first.run.name}#{numbers}@{first.checkpoint}"
    measured = replace(first.measured, name=name, scores=as_repeats(scores), seeds=tuple(scores))
    return replace(first, measured=measured)


def _single(names: Sequence[str]) -> Finding:
    what = "one seed of each arm is compared: checkpoints, not methods"
    fix = "train the others with several seeds as well"
    return Finding("note", what, f"more seeds are there of {', '.join(names)}", fix)


def _seed(run: RunDirectory) -> int:
    return stored_status(run.path).seed
