"""What a replay may set: how completions are judged and weighed, never how they were sampled.

`reward=NAME` is short for `stage.STAGE.reward=NAME`. Values are checked as those of any experiment.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.overrides import parse_override, place
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import StageSpec
from assay.judge.confounds import Confound, differences
from assay.lab.setup.unknown_names import check_names
from assay.runs.run_directory import RunDirectory

JUDGING = (
    *("reward", "reward_deadline", "max_abstained_share", "overlong", "mask_truncated"),
    *("algorithm", "advantage", "loss", "aggregation", "clip", "kl", "entropy_coef", "updates"),
    *("drop_without_signal", "dynamic", "keep", "batch", "tau", "likelihood_temperature"),
    *("micro_tokens",),
)
"""Keys of a stage that have no part in what is sampled."""


class NotReplayable(InputError):
    """A setting that would have led to other samples, or that is of another stage."""


def replayed_experiment(run: RunDirectory, stage: str, settings: Sequence[str]) -> Experiment:
    """The run's experiment with these settings of one stage.

    Raises NotReplayable, and what reading an experiment with overrides raises.
    """
    before = read_experiment(run.spec)
    overrides = [whole_path(text, stage, before.stage[stage]) for text in settings]
    after = read_experiment(run.spec, overrides)
    check_names(after, run.spec, overrides)
    return after


def whole_path(text: str, name: str, stage: StageSpec) -> str:
    """A setting with its path from the top of the file. Raises NotReplayable."""
    path = tuple(map(str, parse_override(text).path))
    inner = path[2:] if path[0] == "stage" else path
    if path[0] == "stage" and path[1:2] != (name,):
        fix = f"write stage.{name}.KEY, or name another stage with --stage"
        raise NotReplayable(f"only {name!r} is replayed", file=place(text), fix=fix)
    own = type(stage).model_fields
    if not inner or (inner[0] not in JUDGING and inner[0] in {*own, *Experiment.model_fields}):
        problem = "only how samples are judged can be replayed, not how they came about"
        fix = "set " + ", ".join(key for key in JUDGING if key in own)
        raise NotReplayable(problem, file=place(text), field=".".join(path), fix=fix)
    return text if path[0] == "stage" else f"stage.{name}.{text.strip()}"


def changed(before: StageSpec, after: StageSpec) -> list[Confound]:
    """Every value in which the two tables of a stage differ, by dotted path."""
    return differences(table(before), table(after))


def table(stage: StageSpec) -> Mapping[str, Any]:
    """The stage as plain values, omitted ones left out."""
    return stage.model_dump(mode="json", exclude_none=True)
