"""One record for every finding of the audit, and the same record without the fault."""

from pathlib import Path

from assay.data.reported.read_reported import read_toml
from assay.data.reported.reported_record import Reported
from assay.errors import Finding
from assay.judge.audit.rules import audit


def record(text: str) -> Reported:
    """The record of a TOML text."""
    return read_toml(text, Path("fault.toml"))


def found(text: str, key: str | None = None) -> list[Finding]:
    """What the audit finds in a TOML text, or what of it has this key."""
    return [flaw for flaw in audit(record(text)) if key in (None, flaw.code)]


def two_runs(
    control: object, score: object, says: str = "", items: int = 200, more: str = ""
) -> str:
    """A run and its control on one benchmark."""
    words = f'says = "{says}"\n' if says else ""
    return (
        f'[scoring]\nitems = {items}\ncontrol = "a"\n{more}\n'
        f'[[runs]]\nname = "a"\nscores = {control}\n'
        f'[[runs]]\nname = "b"\n{words}scores = {score}\n'
    )


def cells(first: str, second: str, says: str = "") -> str:
    """A run and its control on several benchmarks."""
    return two_runs(f"{{ {first} }}", f"{{ {second} }}", says, items=100)


def eight(score: float, changed: int = 0) -> str:
    """Eight cells, of which the first few have other scores."""
    return ", ".join(f"c{i} = {score + (0.5 if i < changed else 0) + i}" for i in range(8))


def one_run(fields: str, items: str = "400", more: str = "") -> str:
    """One run with these fields."""
    return f'[scoring]\nitems = {items}\n[[runs]]\nname = "a"\n{fields}\n{more}'


def average_of(says: str, scores: str) -> str:
    """Scores and their average, as they are printed."""
    return f"[[ratings]]\nmarks = [{scores}]\nsays = {says}\nrounded = true\n"


def claimed(points: str, items: str, says: str = "better") -> str:
    """A difference that is claimed without its scores."""
    return (
        '[[runs]]\nname = "a"\n[[runs]]\nname = "b"\n[[comparisons]]\nrun = "b"\ncontrol = "a"\n'
        f'says = "{says}"\npoints = {points}\nitems = {items}\n'
    )


def metric(**values: object) -> str:
    """A metric named m, with these fields as TOML."""
    lines = [f"{key} = {value}" for key, value in values.items()]
    return "\n".join(["[[metrics]]", 'name = "m"', *lines, ""])


def rate(first: int, last: int, **values: object) -> str:
    """Counts of 44 and then of 64 trials."""
    return metric(steps=[3, 5], counts=[first, last], totals=[44, 64], **values)


def course(first: float, last: float, meaning: str, reads: str) -> str:
    """What a report reads from two values of a metric."""
    words = {"meaning": f'"{meaning}"', "reads": f'"{reads}"'}
    return metric(steps=[1, 2], values=[first, last], **words)


def settings(first: str, second: str, vary: str = "") -> str:
    """Two runs with settings and a comparison that is about `vary`."""
    about = f'vary = ["{vary}"]\n' if vary else ""
    return (
        f'[[runs]]\nname = "a"\nsettings = {{ {first} }}\n'
        f'[[runs]]\nname = "b"\nsettings = {{ {second} }}\n'
        f'[[comparisons]]\nrun = "b"\ncontrol = "a"\n{about}'
    )


def losses(*rows: tuple[str, str, str]) -> str:
    """Columns total, part and term that should add up with a coefficient of 0.12."""
    columns = zip(("total", "part", "term"), zip(*rows, strict=True), strict=True)
    steps = list(range(1, len(rows) + 1))
    text = "".join(
        f'[[metrics]]\nname = "{name}"\nsteps = {steps}\nvalues = [{", ".join(values)}]\n'
        for name, values in columns
    )
    return (
        text + '[[identities]]\nloss = "total"\npart = "part"\ncoefficient = 0.12\nterm = "term"\n'
    )


def search(says: str) -> str:
    """The best of 18, with its harmonic score."""
    return (
        '[scoring]\nunit = "share"\nitems = { A = 40, B = 500 }\n'
        '[[runs]]\nname = "base"\nscores = { A = 0.30, B = 0.44 }\n'
        '[[runs]]\nname = "best"\nscores = { A = 0.400, B = 0.412 }\n'
        f'[[searches]]\nchosen = "best"\npoints = 18\nbaseline = "base"\nsays = {says}\n'
    )


def named(name: str, **values: object) -> str:
    """A metric of another name."""
    return metric(**values).replace('"m"', f'"{name}"')


def average(value: str) -> str:
    """An average cost over 64 calls, with its total."""
    return (
        named("average", steps=5, values=value)
        + named("total", steps=5, values="0.008562")
        + named("calls", steps=5, values=64)
        + '[[quotients]]\nvalue = "average"\ntotal = "total"\ncount = "calls"\n'
    )


def fallbacks(count: int) -> str:
    """Errors that lead to fallbacks."""
    return (
        named("errors", steps=5, counts=4)
        + named("fallback", steps=5, counts=count)
        + '[[causes]]\ncause = "errors"\neffect = "fallback"\n'
    )


COST = metric(steps=[3, 5], values="[0.006236, 0.008562]", cumulative="true")
FORECAST = '[[forecasts]]\nmetric = "m"\nstep = 500\nsays = 0.85\n'
QUARTERS = two_runs("[15.00, 14.25]", "[20.00, 20.50]"), two_runs("[15.0, 14.5]", "[20.0, 20.5]")
RATE = metric(steps=1, counts=2, totals=64)
FULL = metric(steps=1, counts=600, totals=600)

FAULTS: dict[str, tuple[str, str]] = {
    "better": (two_runs(20.0, 60.0), two_runs(20.0, 21.0)),
    "worse": (two_runs(60.0, 20.0), two_runs(20.0, 60.0)),
    "equivalent": (
        two_runs(90.000, 90.010, items=100_000),
        two_runs(90.000, 95.000, items=100_000),
    ),
    "undecided": (two_runs(20.0, 21.0), two_runs(20.0, 60.0)),
    "contradicted": (two_runs(60.0, 20.0, "better"), two_runs(20.0, 60.0, "better")),
    "inside_noise": (two_runs(20.0, 22.0, "better"), two_runs(20.0, 60.0, "better")),
    "no_effect_not_shown": (
        two_runs(20.0, 22.0, "same"),
        two_runs(90.000, 90.010, "same", items=100_000),
    ),
    "cells_inside_noise": (
        cells("x = 20, y = 20", "x = 18, y = 36", "better"),
        cells("x = 20, y = 20", "x = 80, y = 80", "better"),
    ),
    "cells_not_the_same": (
        cells("x = 20, y = 20", "x = 22, y = 21", "same"),
        cells("x = 20, y = 20", "x = 22, y = 21"),
    ),
    "cells_judged": (
        cells("x = 20, y = 20", "x = 22, y = 80"),
        cells("x = 20, y = 20", "x = 18, y = 36", "better"),
    ),
    "difference_inside_noise": (
        claimed("[0.5, 4.5]", "[100, 800]"),
        claimed("[0.5, 9]", "[100, 800]"),
    ),
    "difference_could_be_real": (
        claimed("[0.5, 9]", "[100, 800]"),
        claimed("[0.5, 4.5]", "[100, 800]"),
    ),
    "unpaired": (two_runs(20.0, 60.0), '[[runs]]\nname = "a"\nscores = 20.0\n'),
    "repeats_alike": (
        two_runs([26.5, 26.5, 27.0], [27.0, 27.0, 27.0]),
        two_runs([20.0, 26.5, 32.0], [30.0, 27.0, 22.0]),
    ),
    "nested_subsets": (
        "[scoring]\nnested = true\n" + claimed("[0.5, 1]", "[100, 200]"),
        "[scoring]\nnested = true\n" + claimed("[0.5, 1]", "[200]"),
    ),
    "few_trials": (RATE, FULL),
    "few_items": (two_runs(50.0, 60.0, items=40), two_runs(50.0, 60.0, items=400)),
    "rate_inside_noise": (rate(43, 64, reads='"better"'), rate(4, 64, reads='"better"')),
    "cumulative_as_rate": (rate(2, 2, cumulative="true"), rate(2, 2)),
    "forecast": (COST + FORECAST, COST),
    "forecast_from_one": (metric(steps=5, values=0.0085) + FORECAST, COST + FORECAST),
    "limit_not_shown": (
        RATE + '[[thresholds]]\nmetric = "m"\nbelow = 5\n',
        RATE + '[[thresholds]]\nmetric = "m"\nbelow = 50\n',
    ),
    "limit_foretold": (
        RATE + '[[thresholds]]\nmetric = "m"\nbelow = 2\nstep = 20\n',
        FULL + '[[thresholds]]\nmetric = "m"\nabove = 90\nstep = 20\n',
    ),
    "best_of_many": (search("1.1"), search("1.1").partition("[[searches]]")[0]),
    "several_factors": (
        settings('lr = 1e-4, prompt = "old"', 'lr = 1e-5, prompt = "new"'),
        settings('lr = 1e-4, prompt = "old"', 'lr = 1e-5, prompt = "old"', "lr"),
    ),
    "different_data": (
        settings('beta = 0.12, data = "x"', 'beta = 0.15, data = "y"', "beta"),
        settings('beta = 0.12, data = "x"', 'beta = 0.12, data = "y"', "data"),
    ),
    "label_disagrees": (
        '[[runs]]\nname = "a"\nsettings = { data = "100" }\n'
        '[[mentions]]\nof = "a"\nsettings = { data = "1k" }\n',
        '[[runs]]\nname = "a"\nsettings = { data = "1k" }\n'
        '[[mentions]]\nof = "a"\nsettings = { data = "1k" }\n',
    ),
    "same_values": (
        cells("w = 57.0, x = 56.1, y = 55.1, z = 55.2", "w = 57.0, x = 56.1, y = 55.1, z = 55.2"),
        cells("w = 57.0, x = 56.1, y = 55.1, z = 55.2", "w = 57.0, x = 51.1, y = 52.1, z = 52.2"),
    ),
    "mostly_same_values": (
        cells(eight(57.0), eight(57.0, 3)),
        cells(eight(57.0), eight(57.0, 4)),
    ),
    "never_run": (
        '[[runs]]\nname = "a"\n[[comparisons]]\nrun = "b"\ncontrol = "a"\n',
        '[[runs]]\nname = "a"\n[[runs]]\nname = "b"\n[[comparisons]]\nrun = "b"\ncontrol = "a"\n',
    ),
    "impossible_granularity": QUARTERS,
    "items_score_in_parts": (
        two_runs([15.13, 14.21], [20.07, 20.31]),
        two_runs([15.13, 14.21], [20.07, 20.31], more="step = 0.01"),
    ),
    "fraction_of_plausible": QUARTERS,
    "not_from_counts": (
        metric(steps=1, values=97.9, counts=43, totals=44),
        metric(steps=1, values=97.7, counts=43, totals=44),
    ),
    "running_count_fell": (rate(5, 4, cumulative="true"), rate(5, 5, cumulative="true")),
    "running_rest_fell": (rate(43, 64, cumulative="true"), rate(43, 63, cumulative="true")),
    "identity_holds": (
        losses(("0.01162", "0.00034", "0.09400")),
        losses(("0.01262", "0.00034", "0.09400")),
    ),
    "identity_fails": (
        losses(("0.01162", "0.00034", "0.09400"), ("0.01160", "0.00083", "0.08131")),
        losses(("0.01162", "0.00034", "0.09400"), ("0.01059", "0.00083", "0.08131")),
    ),
    "wrong_change": (
        '[[changes]]\nof = "c"\nbefore = 97.7\nafter = 100\nsays = 3.3\n',
        '[[changes]]\nof = "c"\nbefore = 97.7\nafter = 100.0\nsays = 2.3\n',
    ),
    "mark_not_mean": (
        "[[ratings]]\nmarks = [5, 5, 4, 5, 5, 4]\nsays = 4.8\n",
        "[[ratings]]\nmarks = [5, 5, 4, 5, 5, 4]\nsays = 4.7\n",
    ),
    "harmonic_holds": (search("1.1001"), search("1.2000")),
    "harmonic_fails": (search("1.2000"), search("1.1001")),
    "misread_direction": (course(1, 2, "loss", "better"), course(2, 1, "loss", "better")),
    "distance_misread": (course(9, 7, "distance", "away"), course(7, 9, "distance", "away")),
    "policy_loss_read": (
        course(1, 2, "policy loss", "better"),
        course(1, 2, "policy loss", "stable"),
    ),
    "effect_without_control": (
        '[[effects]]\nwhat = "clip"\nsays = "better"\n',
        '[[runs]]\nname = "a"\n[[effects]]\nwhat = "clip"\nsays = "better"\ncontrol = "a"\n',
    ),
    "left_open": ('[[open]]\nplace = "table"\ncount = 3\n', '[[runs]]\nname = "a"\nscores = 5.0\n'),
    "different_items": (
        two_runs(20.0, 60.0) + "items = 150\n",
        two_runs(20.0, 60.0) + "items = 200\n",
    ),
    "chosen_on_test": (
        '[[runs]]\nname = "a"\nscores = 5.0\n[[searches]]\nchosen = "a"\n',
        '[[runs]]\nname = "a"\nscores = 5.0\n[[searches]]\nchosen = "a"\non = "dev"\n',
    ),
    "quotient": (average("0.000101"), average("0.000134")),
    "cause_without_effect": (fallbacks(0), fallbacks(4)),
}
