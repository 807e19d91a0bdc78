"""Plans the size of an experiment, from pilot runs or from given numbers.

Chooses the designs to compute; figures come from `judge.sample_size`. Nothing is printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from assay.compare.compare_names import last_measured, seeds_of, shared_evaluations
from assay.errors import InputError
from assay.experiment.checkpoint_reference import checkpoint_name
from assay.judge.sample_size import (
    Design,
    Plan,
    Variances,
    given_discordance,
    given_score,
    plan,
    variances_of,
)
from assay.judge.scores import ItemScores, on_one_scale, on_shared_items
from assay.runs.history import evaluation_records, find_record
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import read_run_name, resolve_checkpoint

MOST = 64
"""More repeats, seeds or arms than this are not planned for."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The requirements of a design."""

    difference: float
    """On the scale of scores, 0 to 1."""
    power: float
    arms: int = 2
    """The control among them."""
    seeds: int = 1
    """The largest number of seeds of each arm."""
    repeats: int = 1
    """The largest number of repeats."""


@dataclass(frozen=True, slots=True)
class Pilot:
    """The source of the variances."""

    variances: Variances
    items: int = 0
    """Items that the pilot has; 0 where there is none."""
    seeds: int = 0
    repeats: int = 0
    evaluation: str = ""


def typed(discordance: float | None, score: float | None) -> Pilot:
    """Variances from one typed number. Raises InputError unless it is a share."""
    number = discordance if discordance is not None else score
    field = "--score" if discordance is None else "--discordance"
    if number is None or (discordance is not None and score is not None):
        problem = "a plan needs two pilot runs, --discordance or --score"
        raise InputError(problem, fix="give one of the three")
    if not 0 < number < 1:
        raise InputError(f"{number:g}", field=field, fix="a share between 0 and 1, such as 0.2")
    return Pilot(given_score(number) if discordance is None else given_discordance(number))


def pilot(root: Path, names: Sequence[str], on: str | None = None) -> Pilot:
    """Variances of two arms that were measured; a bare name stands for all its finished seeds.

    Raises RunNotFound, InputError, and what `judge.paired.compare` raises.
    """
    if len(names) != 2:
        raise InputError(f"{len(names)} pilot runs", fix="name two, the control first")
    runs = [seeds_of(root, read_run_name(root, name)) for name in names]
    known = [evaluation_records(run) for each in runs for run in each]
    evaluation = on or shared_evaluations(runs[0][0], known)[0]
    scores = [_scores(each, name, evaluation) for each, name in zip(runs, names, strict=True)]
    whole = on_shared_items(*on_one_scale(*scores[0], *scores[1]))
    control, other = whole[: len(scores[0])], whole[len(scores[0]) :]
    return Pilot(
        variances_of(control, other),
        len(control[0].item_ids),
        min(len(control), len(other)),
        min(control[0].repeats, other[0].repeats),
        evaluation,
    )


def designs(found: Pilot, wish: Wish) -> Plan:
    """The plan over all repeats and seeds up to the required ones. Raises InputError.

    Gives the difference that the pilot's items can detect, then the items that the wanted
    difference needs.
    """
    for name in ("arms", "seeds", "repeats"):
        lowest, count = 2 if name == "arms" else 1, getattr(wish, name)
        if not lowest <= count <= MOST:
            fix = f"from {lowest} to {MOST}"
            raise InputError(str(count), field=f"--{name}", fix=fix)
    sizes = [found.items, 0] if found.items else [0]
    spent = product(sizes, _upto(wish.repeats), _upto(wish.seeds))
    asked = [Design(items, repeats, seeds, wish.arms) for items, repeats, seeds in spent]
    return plan(found.variances, wish.difference, asked, wish.power)


def _upto(most: int) -> list[int]:
    """1, 2, 3, 4, then doubling, and the last."""
    doubling = [1, 2, 3, 4, 8, 16, 32]
    return [*(n for n in doubling if n < most), most]


def _scores(runs: Sequence[RunDirectory], name: str, evaluation: str) -> list[ItemScores]:
    """The scores of an arm's checkpoint in each of its runs."""
    reference = read_run_name(runs[0].root, name).checkpoint
    found = []
    for run in runs:
        record = find_record(run, evaluation)
        wanted = last_measured(run, record)
        if reference is not None:
            wanted = checkpoint_name(resolve_checkpoint(run, reference))
        found.append(read_scores(run, record, wanted))
    return found
