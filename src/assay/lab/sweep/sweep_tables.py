"""The tables of a sweep file: what is varied, and what cells show.

Only the shape of the file is checked here; keys and values are checked against the experiment in
`read_sweep`.
"""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from assay.experiment.base_table import Many, Name, Positive, Table, refused
from assay.experiment.experiment import RunName


class ArmSpec(Table):
    """One arm: a method, a model or a setting under a name of its own."""

    base: str | None = None
    """Its experiment file, relative to the sweep file; omitted means the sweep's."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values that are its own, by dotted path. One of an axis under `evaluate.` is measured once,
    and stands at every value of that axis: a zero-shot arm at every number of shots."""
    checkpoint: str | None = None
    """The checkpoint that it is measured at and that stands at every value of an axis of
    checkpoints, such as `base` of a model that nothing trains; omitted: each value's own."""


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
    """A sweep: runs of one experiment that differ in the values of some keys."""

    name: RunName
    """Runs are named after it and their values: letters, digits, `.`, `_` and `-`."""
    about: str = ""
    """What the sweep is meant to find out, in a sentence."""
    base: str
    """The experiment file, relative to the sweep file."""
    after: Many[str] = ()
    """Sweeps and experiments, files relative to this one, that are run before it: it may name their
    winners and checkpoints."""
    on: Annotated[Many[str], Field(min_length=1)]
    """The reporting evaluation of the experiment that a cell shows; several with `ratios_to`."""
    ratios_to: dict[str, Positive] = Field(default_factory=dict)
    """Baseline score of each of several evaluations; a cell is the harmonic mean of the ratios."""
    select: str | Many[str] | None = None
    """The evaluation with role `select` that ranks cells, or several with `ratios_to`; omitted: the
    only one there is."""
    checkpoint: str | None = None
    """STAGE.last, STAGE.best, STAGE.step-N, or STAGE.all with the axis `step` or `epoch`; omitted:
    the last one measured."""
    rows: str | None = None
    """The axis down the table; omitted: the first."""
    columns: str | None = None
    """The axis across the table; omitted: the second."""
    baseline: BaselineSpec | None = None
    """What cells are compared with; omitted: nothing is compared."""
    controls: dict[Name, BaselineSpec] = Field(default_factory=dict)
    """Further cells, runs or checkpoints that every cell is compared with, by name; all of these
    comparisons and those with the baseline are one family."""
    axes: dict[str, Any] = Field(default_factory=dict)
    """Values by dotted path of the experiment, such as `stage.sft.batch = [8, 16]`: all of them."""
    points: Many[dict[str, Any]] = ()
    """The points themselves, each a table of values by dotted path, in place of axes."""
    arms: dict[Name, ArmSpec] = Field(default_factory=dict)
    """Arms by name: one more axis, called `arm`."""

    @property
    def selecting(self) -> tuple[str, ...]:
        """The evaluations that rank cells, as the file names them."""
        if self.select is None:
            return ()
        return (self.select,) if isinstance(self.select, str) else self.select

    def ratios_of(self, names: tuple[str, ...]) -> dict[str, float]:
        """The baseline scores of these evaluations, in their order; empty where they have none."""
        known = set(names) <= set(self.ratios_to)
        return {name: self.ratios_to[name] for name in names} if known else {}

    @model_validator(mode="after")
    def _ratios_need_baselines(self) -> Self:
        for field, names in (("on", self.on), ("select", self.selecting)):
            if len(set(names)) < len(names):
                raise refused(field, "names an evaluation twice", "leave one out")
        ratios, selecting = set(self.ratios_to), set(self.selecting)
        of_cells = len(self.on) > 1 or not ratios <= selecting
        of_dev = len(selecting) > 1 or bool(ratios & selecting)
        needed = {*(self.on if of_cells else ()), *(selecting if of_dev else ())}
        if needed - ratios:
            raise refused("ratios_to", f"no baseline score for {_listed(needed - ratios)}")
        unknown = ratios - set(self.on) - selecting
        if unknown:
            raise refused("ratios_to", f"{_listed(unknown)} is not one of 'on' or 'select'")
        return self

    @model_validator(mode="after")
    def _names_points(self) -> Self:
        if not self.axes and not self.arms and not self.points:
            raise refused("axes", "a sweep needs an axis or arms")
        return self


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
