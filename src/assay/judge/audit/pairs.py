"""The comparisons of a report: each run against its control as one family, and those it claims.

Two runs are one pair, compared as two binomials without items and labelled unpaired. Settings say
which factors differ and whether a run was trained: of a base model against a trained one training
may differ, measurement may not. The rules decide what a pair means for the report's words.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from assay.data.reported.reported_record import Comparison as Claim
from assay.data.reported.reported_record import Reported, Run, Verdict
from assay.judge.audit.cells import cells, compare_cells, compare_means
from assay.judge.confounds import ABSENT, Confound, differences
from assay.judge.families import adjust_family
from assay.judge.verdict import Comparison

BOOKKEEPING = re.compile(
    r"(?:^|[_ -])(?:seeds?|dates?|day|hours?|minutes?|duration|runtime|gpus?|device|machine|host"
    r"|cost|price|notes?|remarks?|comments?|commit|url|link|author|std|sd|stderr|se|ci|status"
    r"|repeats?)(?:$|[_ -])|^(?:id|job|time|path|dir|folder|file|log|pass|checkpoint|ckpt|#)$"
    r"|种子|日期|时间|耗时|用时|时长|备注|说明|机器|显卡|成本|费用|路径|编号|状态|标准差",
    re.I,
)
"""Settings of place, time or repetition, which are no factor of a result."""
MEASURED = re.compile(
    r"temperature|top[_ -]?[pk]|max[_ -]?(?:new[_ -]?)?tokens|prompt|template|rendering|shots?"
    r"|decoding|sampling|samples|metric|checker|judge|grader|scorer|harness|split|version|eval"
    r"|benchmark|test[_ -]?set|thinking|提示|模板|温度|采样|解码|评测|评分|指标|样本|测试",
    re.I,
)
"""Settings of the measurement, which a base model has as well."""
UNTRAINED = re.compile(
    r"^(?:base|baseline|base[_ -]?model|untrained|raw|original|none|no[_ -]?training|not trained"
    r"|zero[_ -]?shot|pre[_ -]?trained|instruct|off[_ -]the[_ -]shelf|未训练|不训练|原始|原始模型"
    r"|基座|基座模型|基线|基线模型|基础模型|底座|无|无训练)$",
    re.I,
)
"""Names and values of a run that was not trained."""
TRAINING = re.compile(
    r"^(?:method|training|trainer|train|algorithm|algo|stage|objective|recipe|adapt|adapter|data"
    r"|train[_ -]?(?:data|set|rows)|lr|learning[_ -]?rate|epochs?|steps?|batch(?:[_ -]?size)?|beta"
    r"|kl\w*|训练|训练方法|方法|算法|阶段|训练数据|数据|学习率|轮数|步数|批大小)$",
    re.I,
)
"""Settings that a trained run has a value of."""
NOTHING = ("", "-", "--", "–", "—", "/", "none", "n/a", "na", "null", "no", "无", "0")


def same_value(first: object, second: object) -> bool:
    """Whether two values of a setting are the same, however they are written."""
    return plain_value(first) == plain_value(second)


def plain_value(value: object) -> object:
    """A value without its notation: case, spaces, "10k" for 10000, "1e-5"."""
    text = " ".join(str(value).split()).casefold()
    match = re.fullmatch(r"([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([km%]?)", text.replace(",", ""))
    if match is None:
        return text
    return float(match[1]) * {"": 1.0, "%": 1.0, "k": 1e3, "m": 1e6}[match[2]]


def settings_of(report: Reported, run: Run) -> dict[str, object]:
    """The settings of a run from its own table, then from other mentions."""
    known: dict[str, object] = {}
    said = (m.settings for m in report.mentions if m.of == run.name and m.cell is None)
    for settings in (run.settings, *said):
        known = {**settings, **known}
    return known


def factors(
    report: Reported, control: Run, run: Run, vary: tuple[str, ...] = ()
) -> tuple[Confound, ...]:
    """The settings that are known of both runs and differ, those under test apart.

    Where one of the two was not trained, what they were trained with is under test.
    """
    left, right = settings_of(report, control), settings_of(report, run)
    training = is_trained(report, control) != is_trained(report, run)
    return tuple(
        found
        for found in differences(left, right, vary)
        if ABSENT not in (found.control, found.other)
        and found.kind != "declared"
        and not same_value(found.control, found.other)
        and not BOOKKEEPING.search(found.path)
        and not (training and _of_training(found))
    )


def _of_training(found: Confound) -> bool:
    """Whether a base model and a trained one may differ in it: no measurement, or without value."""
    values = (str(value).strip().casefold() for value in (found.control, found.other))
    return not MEASURED.search(found.path) or any(value in NOTHING for value in values)


def about(report: Reported, control: Run, run: Run, vary: tuple[str, ...]) -> tuple[str, ...]:
    """The factors that a comparison varies; training where none is given and one run had none."""
    training = is_trained(report, control) != is_trained(report, run)
    return ("training",) if training and not vary else vary


def is_trained(report: Reported, run: Run) -> bool:
    """Whether a run was trained: as stated, else by its settings and its name."""
    if run.trained is not None:
        return run.trained
    values = list(_training(settings_of(report, run)))
    if values:
        return not all(value in NOTHING or UNTRAINED.match(value) for value in values)
    return not UNTRAINED.match(run.name.strip())


def _training(settings: Mapping[str, object]) -> Iterator[str]:
    """The values of the settings that name a training."""
    for key, value in settings.items():
        if TRAINING.match(key.strip()):
            yield " ".join(str(value).split()).casefold()


REVERSED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A run against another, cell by cell."""

    run: Run
    control: Run
    says: Verdict | None
    """The report's verdict on the whole run."""
    by_cell: Mapping[str, Comparison]
    """The cells that both have, with Holm-adjusted p-values; without those of unknown size."""
    overall: Comparison | None = None
    """The mean over these cells, where there are several and none is part of another."""
    averages: Mapping[str, Comparison] = field(default_factory=dict)
    """The averages that the report prints of the run, over cells that both have."""
    differs: tuple[Confound, ...] = ()
    """Settings known of both runs that differ, without those that the comparison is about."""
    vary: tuple[str, ...] = ()
    line: int | None = None
    says_of: Mapping[str, Verdict] = field(default_factory=dict)
    """Cell or average -> the report's verdict on it alone."""
    claims: tuple[Claim, ...] = ()
    """The report's own comparisons of the two, all in the pair's direction."""

    @property
    def shared_cells(self) -> int:
        """Number of cells that both have a score of, whether or not it can be judged."""
        return len(self.run.scores.keys() & self.control.scores.keys())

    @property
    def claimed(self) -> bool:
        """Whether the report gives a verdict on the pair, or claims the comparison."""
        return bool(self.says or self.says_of or self.claims)

    @property
    def confounded(self) -> bool:
        """Whether more differs than the one thing that a comparison may be about."""
        return len(self.differs) + bool(self.vary) > 1

    @property
    def name(self) -> str:
        """`run / control`."""
        return f"{self.run.name} / {self.control.name}"

    def claim_of(self, cell: str) -> Claim | None:
        """The report's own comparison of a cell: the one that names it, else the one of all."""
        named = [claim for claim in self.claims if cell in claim.cells]
        whole = [claim for claim in self.claims if not claim.cells]
        return next(iter([*named, *whole]), None)


def pairs(report: Reported) -> list[Pair]:
    """Every comparison of the report, each once: families against a control, then its own."""
    found: dict[frozenset[str], Pair] = {}
    for pair in families(report):
        found.setdefault(frozenset((pair.run.name, pair.control.name)), pair)
    for claim in report.comparisons:
        run, control = report.run(claim.run), report.run(claim.control)
        if run is not None and control is not None and run.name != control.name:
            key = frozenset((claim.run, claim.control))
            found[key] = _with(report, found.get(key) or _drawn(report, control, run), claim)
    return list(found.values())


def families(report: Reported) -> Iterator[Pair]:
    """Runs against their control. All cells of all runs with one control are one family."""
    members: dict[str, list[Run]] = {}
    for run in report.runs:
        name = report.scoring.control if run.control is None else run.control
        if name and name != run.name and (run.scores or run.right):
            members.setdefault(name, []).append(run)
    for name, runs in members.items():
        control = report.run(name)
        if control is not None:
            yield from _family(report, control, runs)


def _family(report: Reported, control: Run, runs: list[Run]) -> Iterator[Pair]:
    found = {run.name: _compare(report, control, run) for run in runs}
    flat = {f"{n}\n{cell}": c for n, by_cell in found.items() for cell, c in by_cell.items()}
    judged = adjust_family(flat)
    means = {n: _mean(report, by_cell) for n, by_cell in found.items()}
    overall = adjust_family({n: mean for n, mean in means.items() if mean is not None})
    for run in runs:
        by_cell = {cell: judged[f"{run.name}\n{cell}"] for cell in found[run.name]}
        pair = Pair(run, control, run.says, by_cell, overall.get(run.name), line=run.line)
        yield _of_settings(report, replace(pair, says_of=run.says_of))


def _mean(report: Reported, by_cell: Mapping[str, Comparison]) -> Comparison | None:
    """The mean over the cells of a pair; none over subsets that hold each other."""
    return None if report.scoring.nested else compare_means(list(by_cell.values()))


def _averages(report: Reported, pair: Pair) -> dict[str, Comparison]:
    """The run's printed averages whose cells both runs have, compared by these cells."""
    found = {}
    for average in report.averages:
        of = [pair.by_cell.get(cell) for cell in average.of or pair.by_cell]
        known = [comparison for comparison in of if comparison is not None]
        mean = (
            _mean(report, {str(i): c for i, c in enumerate(known)})
            if len(known) == len(of)
            else None
        )
        if average.run == pair.run.name and mean is not None:
            found[average.name] = mean
    return found


def _drawn(report: Reported, control: Run, run: Run) -> Pair:
    """A comparison that only the report draws; its cells are one family."""
    found = _compare(report, control, run)
    return Pair(run, control, None, adjust_family(found), _mean(report, found))


def _with(report: Reported, pair: Pair, claim: Claim) -> Pair:
    """The pair with one more claim of the report about it, turned where it is the other way."""
    if claim.run != pair.run.name:
        claim = _turned(claim)
    said = dict.fromkeys(claim.cells, claim.says) if claim.says else {}
    whole = claim.says if not claim.cells else None
    told = replace(
        pair,
        says=pair.says or whole,
        says_of={**{cell: says for cell, says in said.items() if says}, **pair.says_of},
        vary=pair.vary or claim.vary,
        claims=(*pair.claims, claim),
        line=pair.line or claim.line,
    )
    return _of_settings(report, told)


def _turned(claim: Claim) -> Claim:
    """The same claim with run and control exchanged."""
    says = REVERSED.get(claim.says, claim.says) if claim.says else None
    limits = tuple(-limit for limit in reversed(claim.interval))
    update = {"run": claim.control, "control": claim.run, "says": says, "interval": limits}
    return claim.model_copy(update=update)


def _of_settings(report: Reported, pair: Pair) -> Pair:
    """The pair with the factors it varies, other differences, and its averages."""
    named = next((claim.vary for claim in pair.claims if claim.vary), ())
    differs = factors(report, pair.control, pair.run, named)
    vary = about(report, pair.control, pair.run, named)
    return replace(pair, differs=differs, vary=vary, averages=_averages(report, pair))


def absent(report: Reported, claim: Claim) -> list[str]:
    """The names of a claim that no run of the report has."""
    return [name for name in (claim.run, claim.control) if report.run(name) is None]


def _compare(report: Reported, control: Run, run: Run) -> dict[str, Comparison]:
    before, after = cells(report, control), cells(report, run)
    found = {cell: compare_cells(before[cell], after[cell]) for cell in before if cell in after}
    return {cell: comparison for cell, comparison in found.items() if comparison is not None}
