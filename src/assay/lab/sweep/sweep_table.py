"""The sweep file: an experiment, the values of some of its keys, and what a cell shows.

Models only. `read_sweep` brings in the experiment, `planned_runs` makes runs of the axes.
"""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from assay.experiment.base_table import Many, Name, Positive, Table, refused
from assay.experiment.experiment import RunName

ARM = "arm"
"""The axis of the sweep's arms; any other axis is a dotted path or a key of a checkpoint."""


class ArmSpec(Table):
    """One arm: a method, a model or a setting under a name of its own."""

    base: str | None = None
    """Its experiment file, relative to the sweep file; omitted means the sweep's."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values that are its own, by dotted path."""


class BaselineSpec(Table):
    """What every cell is compared with: one of the three."""

    where: dict[str, Any] = Field(default_factory=dict)
    """Axis and value, as in `arm = "control"`: the cell that differs in nothing else."""
    run: str | None = None
    """A run or a checkpoint of one, measured on the same items: NAME[@CHECKPOINT]."""
    checkpoint: str | None = None
    """A checkpoint of the cell's own run, such as `base`."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = [n for n in ("where", "run", "checkpoint") if getattr(self, n)]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise refused("where", f"one of where, run and checkpoint is needed, not {found}")
        return self


class Sweep(Table):
    """A sweep: runs of one experiment that differ in the values of the axes."""

    name: RunName
    """Runs are named after it and their values: letters, digits, `.`, `_` and `-`."""
    about: str = ""
    """What the sweep is meant to find out, in a sentence."""
    base: str
    """The experiment file, relative to the sweep file."""
    on: Annotated[Many[str], Field(min_length=1)]
    """The reporting evaluation of the experiment that a cell shows; several with `ratios_to`."""
    ratios_to: dict[str, Positive] = Field(default_factory=dict)
    """Baseline score of each of several evaluations; a cell is the harmonic mean of the ratios."""
    select: str | None = None
    """The evaluation with role `select` that recommends a cell; omitted: the only one there is."""
    checkpoint: str | None = None
    """STAGE.last, STAGE.best, STAGE.step-N, or STAGE.all with the axis `step` or `epoch`; omitted:
    the last one measured."""
    rows: str | None = None
    """The axis down the table; omitted: the first."""
    columns: str | None = None
    """The axis across the table; omitted: the second."""
    baseline: BaselineSpec | None = None
    """What cells are compared with; omitted: nothing is compared."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Values by dotted path of the experiment, such as `stage.sft.batch = [8, 16]`."""
    arms: dict[Name, ArmSpec] = Field(default_factory=dict)
    """Arms by name: one more axis, called `arm`."""

    @model_validator(mode="after")
    def _ratios_need_baselines(self) -> Self:
        if len(self.on) > 1 or self.ratios_to:
            missing = sorted(set(self.on) - set(self.ratios_to))
            if missing:
                raise refused("ratios_to", f"no baseline score for {', '.join(missing)}")
            unknown = sorted(set(self.ratios_to) - set(self.on))
            if unknown:
                raise refused("ratios_to", f"{', '.join(unknown)} is not one of 'on'")
        if not self.axes and not self.arms:
            raise refused("axes", "a sweep needs an axis or arms")
        return self
