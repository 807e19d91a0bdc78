"""The blocks about the run itself: training, health, methods, and the stages that it descends from.

Like `content`, this module only adds words and units to the numbers of other modules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from assay.errors import Finding
from assay.experiment.checkpoint_reference import (
    RULES,
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.reward_tables import Reward
from assay.experiment.stage_tables import SamplingStage, StageSpec, plain
from assay.judge.confounds import ABSENT, differences
from assay.lab.monitor.guards import is_share
from assay.pages.charts import Checkpoints, curve_panel
from assay.pages.content import (
    best_line,
    checkpoint_label,
    interval_text,
    pairings,
    setting_text,
    settings_text,
)
from assay.pages.facts import Curve, DevScore, RunFacts
from assay.pages.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Folded,
    Heading,
    Line,
    Mark,
    Panels,
    Row,
    Table,
    Text,
)
from assay.pages.progress_content import promotion, uncorrected_choice
from assay.pages.provenance import marks
from assay.pages.words import (
    Words,
    metric_label,
    named_tests,
    number,
    percent,
    visible,
    worded,
    words,
)
from assay.runs.run_directory import (
    IMPORTED,
    PUT_ASIDE,
    WENT_ON,
    RunDirectory,
    read_manifest,
    read_sink_states,
    runs_of,
)
from assay.runs.run_files import read_level, read_selection, read_selections
from assay.runs.run_names import Located, RunNotFound, experiment_of, recorded_place, stage_start
from assay.train.metric_names import is_written

TITLES = {"trl": "TRL", "verl": "verl", "swift": "ms-swift"}
"""What the tools are called; in small letters, their packages."""


def trainer_blocks(facts: RunFacts, stage: str, words: Words) -> list[Block]:
    """Nothing for a stage that Assay trained, or that was taken over (`imported_blocks`)."""
    spec = facts.experiment.stage[stage]
    if spec.trainer is None or IMPORTED in facts.manifest:
        return []
    tool, lines = TITLES[spec.trainer], facts.metrics[stage]
    unlike = facts.manifest.get("stages", {}).get(stage, {}).get("unlike", {})
    seconds = sum(line.get("cpu_seconds") or 0 for line in lines)
    peak = max((line.get("peak_memory_mb") or 0 for line in lines), default=0)
    figures = {"seconds": number(seconds), "memory": number(peak)}
    version = visible(str(facts.manifest.get("packages", {}).get(tool.lower(), "")))
    about = words("trainer.about", tool=tool, version=version, **figures)
    blocks: list[Block] = [Text(about, "soft")]
    for noted in facts.manifest.get("time", {}).get(WENT_ON, ()):
        if noted["stage"] == stage:
            blocks.append(Text(went_on(noted, words), "soft"))
    if unlike:
        allowed = spec.allow or ()
        blocks.append(Text(words("trainer.unlike", tool=tool), "soft"))
        told = ((key, words("trainer.allowed") if key in allowed else "") for key in unlike)
        blocks.append(
            Bullets([[Mark(key, "code"), f"{mark}: {unlike[key]}"] for key, mark in told])
        )
    return blocks


def went_on(noted: Mapping[str, Any], words: Words) -> str:
    """What a training that was killed could not keep."""
    drawn = words(f"trainer.drawn_{'again' if noted['draws_again'] else 'on'}")
    return words("trainer.went_on", at=visible(noted["at"]), step=noted["step"], drawn=drawn)


def imported_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """Nothing of a run that was made here."""
    origin = facts.manifest.get(IMPORTED)
    if not origin:
        return []
    told = {"package": visible(origin["package"]), "folder": visible(origin["folder"])}
    blocks: list[Block] = [Text(words("imported.about", **told))]
    for name in ("unknown", "differences", "unasked"):
        if listed := origin.get(name):
            own = dict(listed) if isinstance(listed, Mapping) else dict.fromkeys(listed, "")
            code = [
                (Mark(visible(k), "code"), words.colon if v else "", visible(v))
                for k, v in own.items()
            ]
            blocks += [Text(words(f"imported.{name}")), Bullets(code)]
    if any(measurement.missing for measurement in facts.reported):
        blocks += [Text(words("imported.unmeasured", name=visible(facts.run.name)))]
    return blocks


DETAILS = ("algorithm", "prompts", "group", "batch", "epochs", "reward", "sampling", "kl")
"""Settings that tell stages of one method apart."""


def stage_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """Curves, settings and dev scores of the last stage with steps; those before it folded."""
    blocks: list[Block] = []
    names = [name for name in facts.experiment.stage if name in facts.metrics]
    for name in reversed(names):
        method = facts.experiment.stage[name].method.upper()
        title = words("stage.title", name=name, method=method)
        own = [*trainer_blocks(facts, name, words), *_curves(facts, name, words)]
        own += _dev(facts.dev_scores(name), words)
        blocks += [Heading(title), *own] if name == names[-1] else [Folded(title, own)]
    return blocks


MOST_CURVES = 6


def _curves(facts: RunFacts, stage: str, words: Words) -> list[Block]:
    """The curves of a stage; folded its settings, in a line curves that stayed as they were, and
    what another trainer recorded that has no name here."""
    method = facts.experiment.stage[stage].method
    marked = checkpoints_of(facts, stage)
    own = [*facts.curves(stage), *facts.part_curves(stage)]
    tools = [c for c in facts.further_curves(stage) if not is_written(c.metric, method)]
    shown = [panel(curve, marked, words) for curve in own if not curve.constant]
    folded = [panel(curve, marked, words) for curve in tools if not curve.constant]
    folded = [*shown[MOST_CURVES:], *folded]
    blocks: list[Block] = [Panels(shown[:MOST_CURVES])] if shown else []
    more: list[Block] = [Text(about_stage(facts, stage, words), "soft")]
    more += [Panels(folded)] if folded else []
    still = [
        f"{metric_label(curve.metric, words)} {writer(curve.metric)(curve.last)}"
        for curve in own
        if curve.constant
    ]
    if still:
        more.append(Text(words("chart.constant", metrics=words.listing.join(still)), "soft"))
    more += [Text(words("chart.legend"), "soft")] if shown else []
    return [*blocks, Folded(words("chart.more"), more)]


def _dev(scores: Sequence[DevScore], words: Words) -> list[Block]:
    if not scores:
        return []
    rows = [
        [
            number(each.step),
            Cell(percent(each.score), [Mark(words("chart.chosen"))] if each.chosen else []),
            interval_text(each.interval, words),
        ]
        for each in scores
    ]
    heads = [Column(words(name), True) for name in ("chart.step", "table.score", "table.interval")]
    about = Text(words("chart.dev_about", items=scores[0].items), "soft")
    return [Folded(words("chart.dev"), [about, Table(heads, rows, kind="plain")])]


def about_stage(facts: RunFacts, name: str, words: Words, done: int | None = None) -> str:
    """A stage's settings in one line, until the step `done`, else the last one with metrics."""
    stage, lines = facts.experiment.stage[name], facts.metrics.get(name, [])
    took = [line["seconds"] for line in lines]
    whole = stage.model_dump()
    settings = {key: whole[key] for key in DETAILS if whole.get(key) is not None}
    if not settings.get("kl", {}).get("coef"):
        settings.pop("kl", None)
    detail = settings_text(settings)
    last = lines[-1]["step"] if lines else 0
    return words(
        "stage.about",
        start=start_text(stage, words),
        data=stage.data,
        steps=number(last if done is None else done),
        minutes="–" if None in took else f"{sum(took) / 60:.1f}",
        optimizer=f"{stage.optimizer.name}, lr {stage.optimizer.lr:g}",
        adapt=stage.adapt.kind,
        detail=words("stage.detail", detail=detail) if detail else "",
    )


def checkpoints_of(facts: RunFacts, stage: str) -> Checkpoints:
    """The checkpoints of a stage, and the one that the dev items promoted."""
    best = read_selection(facts.run.path, stage)
    reference = parse_checkpoint(best.checkpoint) if best and best.promoted else None
    chosen = [reference.step] if reference and reference.stage == stage and reference.step else []
    return Checkpoints(facts.checkpoint_steps(stage), chosen)


def writer(metric: str) -> Callable[[float | None], str]:
    """The format of a metric's values."""
    return percent if is_share(metric) or metric == "reward_accuracy" else number


def panel(curve: Curve, marked: Checkpoints, words: Words) -> Figure:
    """One learning curve with its ends."""
    write = writer(curve.metric)
    first = write(next(value for value in curve.values if value is not None))
    label, last = metric_label(curve.metric, words), write(curve.last)

    drawing = curve_panel([curve], f"{label}: {first} → {last}", write, marked)
    return Figure(drawing, label, last, first)


def placed_findings(facts: RunFacts, words: Words) -> list[tuple[str, Finding]]:
    """Findings of the health rules for each stage, and of the identity rules in the main table."""
    findings = [
        (stage, each)
        for stage in facts.experiment.stage
        if stage in facts.metrics
        for each in facts.health(stage)
    ]
    table = facts.main.table if facts.main else None
    own = table.findings if table else ()
    return [*findings, *((table.evaluation.name, each) for each in own if table)]


GROUPS = {"error": "now", "warning": "soon", "note": "needed"}
"""When an improvement is worth its cost, by what the finding behind it says of the results."""


def health_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """What to improve now, soon and when needed, with what it mends, its cost and the evidence; or
    that nothing was found, nothing before the first step."""
    heads = [words(f"table.{name}") for name in ("advice", "value", "cost", "evidence")]
    rows: dict[str, list[Row]] = {severity: [] for severity in GROUPS}
    for place, each in placed_findings(facts, words):
        told, cost = worded(each, words), _cost(facts, place, words)
        named = f"{place}{words.colon}{told.what}"
        rows[each.severity].append([told.fix or "–", named, cost, told.evidence])
    titles = {severity: words(f"improvement.{group}") for severity, group in GROUPS.items()}
    blocks = list[Block](
        Table(heads, own, titles[severity]) for severity, own in rows.items() if own
    )
    return blocks or ([Text(words("page.healthy"))] if facts.metrics else [])


def _cost(facts: RunFacts, place: str, words: Words) -> str:
    """What it took to train a stage, which a change of it takes again."""
    if not (took := [line["seconds"] or 0 for line in facts.metrics.get(place, ())]):
        return words("improvement.no_training")
    return words("improvement.again", stage=place, minutes=f"{sum(took) / 60:.1f}")


def warned(facts: RunFacts, w: Words) -> list[tuple[str, Finding]]:
    """Errors and warnings about the run with their places, errors first."""
    findings = [each for each in placed_findings(facts, w) if each[1].severity != "note"]
    return sorted(findings, key=lambda each: each[1].severity)


def shortest_name(run: RunDirectory) -> str:
    """What names the run in a command: its name alone, if it is the newest of that name."""
    return run.name if runs_of(run.root, run.name)[-1:] == [run] else str(run)


def next_command(facts: RunFacts) -> str:
    """The command that most users of such a result want next."""
    name = shortest_name(facts.run)
    unfinished = {"running": "report {}", "interrupted": "resume {}", "failed": "resume {}"}
    if facts.status.status in unfinished:
        return "assay " + unfinished[facts.status.status].format(name)
    stages = list(facts.experiment.stage)
    if not stages:
        return f"assay compare {name} RUN"
    line = best_line(facts)
    if line is None:
        return f"assay eval {name}@{stages[-1]}.last --benchmark NAME"
    pairing = line.to_control or line.to_previous
    better = pairing is not None and pairing.comparison.verdict == "better"
    if better and not warned(facts, words()):
        return f"assay export {name}@{line.name} DIR"
    return f"assay report {name} --full"


MOST_STEPS = 3


def next_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """At most MOST_STEPS things to do: what the findings advise, worst first, then a command."""
    placed = sorted(placed_findings(facts, words), key=lambda x: [*GROUPS].index(x[1].severity))
    advice = dict.fromkeys(worded(each, words).fix for _, each in placed)
    lines: list[Line] = [*[fix for fix in advice if fix][: MOST_STEPS - 1]]
    command = next_command(facts)
    if not (lines and command.startswith("assay report")):
        lines.append(Mark(command, "code"))
    return [Bullets(lines)]


def selection_section(facts: RunFacts, words: Words) -> list[str]:
    """The best checkpoint of each stage, with the reason."""
    gate = read_selections(facts.run.path)
    sentences = [promotion(name, gate.get(name), words) for name in facts.experiment.stage]
    sentences += [
        uncorrected_choice(stage, chosen, words)
        for stage in facts.experiment.stage
        for rule in RULES
        if (chosen := read_selection(facts.run.path, stage, rule)) and not chosen.corrected
    ]
    for stage in facts.experiment.stage:
        if chosen := read_level(facts.run.path, stage):
            rates = [f"{level} {percent(rate)}" for level, rate in chosen.rates]
            values = {"stage": stage, "level": str(chosen.level), "by": chosen.by}
            values |= {"passes": percent(chosen.passes), "rates": ", ".join(rates)}
            sentences.append(words("promotion.level", **values))
    return [text for text in sentences if text]


def method_section(facts: RunFacts, words: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    tests = named_tests([p.comparison.method for p in pairings(table)], words)
    sentences = [words("methods.one"), *([words("methods.two", tests=tests)] if tests else [])]
    selecting = any(e.role == "select" for e in facts.experiment.evaluate.values())
    return [*sentences, words("methods.three"), *([words("methods.four")] if selecting else [])]


def chips(facts: RunFacts, words: Words) -> list[tuple[str, str]]:
    """The run in a line."""
    unknown = facts.manifest.get(IMPORTED, {}).get("unknown", ())
    experiment: Mapping[str, str] = {
        "model": facts.experiment.model,
        "task": facts.experiment.task,
        "seed": "" if "seeds" in unknown else str(facts.status.seed),
        "stages": " → ".join(s.method for s in facts.experiment.stage.values()),
        "control": facts.experiment.control or "",
        "ranks": str(facts.manifest.get("machine", {}).get("ranks", "")),
        "status": words(f"status.{facts.status.status}"),
        "started": facts.status.started.replace("T", " ").removesuffix("+00:00") + " UTC",
    }
    return [(words(f"chip.{name}"), value) for name, value in experiment.items() if value]


def warnings(facts: RunFacts, words: Words) -> list[str]:
    """Warnings that come before every number."""
    lines = []
    if facts.status.status != "finished":
        message = f"{words.colon}{visible(facts.status.message)}" if facts.status.message else ""
        name = words(f"status.{facts.status.status}")
        lines.append(words("page.running", status=name, message=message))
    lines += marks(facts, words)
    if facts.main is None:
        lines.append(words("page.unreported"))
    for name, state in read_sink_states(facts.run.path).states.items():
        if state.problem:
            problem = visible(state.problem)
            lines.append(words("page.sink_failed", sink=name, step=state.step, problem=problem))
    if facts.experiment.as_reported:
        lines.append(words("page.as_reported"))
    for noted in facts.manifest.get("time", {}).get(PUT_ASIDE, ()):
        place = {name: noted[name] for name in ("start", "folder", "at")}
        lines.append(words("page.damaged", file=noted["damage"], **place))
    for name, stage in facts.experiment.stage.items():
        if stage.other_rendering_than:
            apart = words.listing.join(stage.other_rendering_than)
            lines.append(words("page.other_rendering", stage=name, evaluations=apart))
    return lines


def rounds_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """A chart of all sampling stages that have rewards, one after the other, and a line for each;
    from the second on."""
    rewards = {n: c for n in facts.metrics for c in facts.curves(n) if c.metric == "reward_mean"}
    if len(rewards) < 2:
        return []
    count = sum(int(x.get("completions", 0)) for name in rewards for x in facts.metrics[name])
    sentences = [words("figure.about", completions=number(count))]
    kinds = {n: facts.experiment.stage[n].model_dump().get("reward") for n in rewards}
    other = any(kind != own for own in kinds.values() for kind in kinds.values())
    sentences += [words("figure.other_rewards")] if other else []
    nodes = [node for node in lineage(facts.run) if node.run == facts.run]
    changed = {node.label: changes(node, words, "reward") for node in nodes}
    heads = [words(f"figure.{name}") for name in ("name", "start", "reward", "chosen", "changed")]
    rows = [_round(facts, name, each, changed[name], words) for name, each in rewards.items()]
    return [
        _chart(facts, rewards, kinds if other else {}, words),
        Table(heads, rows),
        Folded(words("page.methods"), [Text(" ".join(sentences), "soft")]),
    ]


def _start(facts: RunFacts, stage: str) -> str:
    """The checkpoint that a stage started from, as records name it; as the file says, while that is
    not known."""
    return facts.history.start(stage) or str(facts.experiment.stage[stage].start)


def _chart(
    facts: RunFacts, rewards: Mapping[str, Curve], kinds: Mapping[str, object], words: Words
) -> Figure:
    """The mean reward of every step; where rewards differ in their `kinds`, as a share of the
    largest mean under the same one. A mark where a round ends, a line at the checkpoint that was
    chosen."""
    label = words("figure.reward_of", stages=words.listing.join(rewards))
    steps = [facts.metrics[name][-1]["step"] for name in rewards]
    before = dict(zip(rewards, accumulate(steps, initial=0), strict=False))
    curves, chosen = [], []
    for name, reward in rewards.items():
        alike = [rewards[n].values for n, kind in kinds.items() if kind == kinds[name]]
        unit = max((abs(v) for own in alike for v in own if v is not None), default=1.0) or 1.0
        limits = tuple(
            x and replace(x, low=x.low / unit, high=x.high / unit) for x in reward.limits
        )
        values = tuple(None if v is None else v / unit for v in reward.values)
        places = tuple(before[name] + step for step in reward.steps)
        curves.append(Curve("reward_mean", places, values, limits))
        start = parse_checkpoint(_start(facts, name))
        if start and start.step and start.stage in before:
            chosen.append(before[start.stage] + start.step)
    last = [*rewards][-1]
    chosen += [before[last] + score.step for score in facts.dev_scores(last) if score.chosen]
    marked = Checkpoints([*accumulate(steps)], chosen)
    drawing = curve_panel(curves, label, number, marked)
    return Figure(drawing, words("figure.share" if kinds else "metric.reward_mean"))


def _round(facts: RunFacts, stage: str, reward: Curve, changed: Sequence[str], words: Words) -> Row:
    """A round with the checkpoint that it started from, its reward, the dev score that was chosen,
    and what changed in the reward."""
    ends = f"{number(reward.values[0])} → {number(reward.last)}"
    chosen = [
        words("figure.dev", step=score.step, score=percent(score.score), items=score.items)
        for score in facts.dev_scores(stage)
        if score.chosen
    ]
    told = [words("figure.steps", ends=ends, steps=facts.metrics[stage][-1]["step"])]
    start = visible(checkpoint_label(_start(facts, stage), words))
    cells = [*told, words.semicolon.join(chosen) or "–", words.semicolon.join(changed) or "–"]
    return [Cell(visible(stage), kind="head"), start, *cells]


EVERY = dict.fromkeys(
    ("algorithm", "clip", "reward", "overlong", "kl", "prompts", "group", "data"), True
)
CHANGEABLE: dict[str, Any] = {
    **EVERY,
    "optimizer": {"lr"},
    "sampling": {"max_tokens", "temperature"},
    "adapt": {"kind", "rank"},
}
"""Settings of a round whose change is shown."""


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A stage of a run with the checkpoint that it started from."""

    run: RunDirectory
    label: str
    stage: StageSpec
    start: CheckpointReference


def lineage(run: RunDirectory) -> list[LineageNode]:
    """The stages of a run in their order, each behind all that it descends from.

    Raises what reading the runs raises; a run that is gone ends the line.
    """
    nodes: dict[tuple[str, str], LineageNode] = {}

    def add(run: RunDirectory, reference: CheckpointReference) -> None:
        name = reference.stage
        if name is None:
            base = read_manifest(run).get("base_weights", {})
            if "checkpoint" in base:
                add(*recorded_place(run.root, base))
        elif (str(run), name) not in nodes and run.spec.is_file():
            stage = experiment_of(run).stage[name]
            add(*(place := _start_of(run, stage)))
            nodes[str(run), name] = LineageNode(run, name, stage, place[1])

    for name in experiment_of(run).stage:
        add(run, CheckpointReference(name))
    return list(nodes.values())


def _start_of(run: RunDirectory, stage: StageSpec) -> Located:
    """Where a stage started; of what is not there, the stage that its file names."""
    try:
        return stage_start(run, stage)
    except RunNotFound:
        return run, stage.starts_from or CheckpointReference(None)


def changes(node: LineageNode, words: Words, within: str = "") -> list[str]:
    """The keys, or those that begin so, in which a stage differs from the round before, if both
    sample completions."""
    run, stage = node.run, node.stage
    # The stage whose checkpoint was looked for: the gate may have kept an earlier one.
    if (reference := stage.starts_from) is None:
        run, reference = _start_of(run, stage)
    before = experiment_of(run).stage.get(reference.stage or "") if run.spec.is_file() else None
    if not isinstance(stage, SamplingStage) or not isinstance(before, SamplingStage):
        return []
    changed = differences(_settings(before), _settings(stage))
    return [
        words("lineage.change", name=visible(c.path), before=_text(c.control), after=_text(c.other))
        for c in changed
        if c.path.startswith(within)
    ]


def _settings(stage: StageSpec) -> dict[str, Any]:
    """The changeable settings of a stage that are set."""
    table = stage.model_dump(exclude_none=True, include=CHANGEABLE)
    reward: Reward | None = getattr(stage, "reward", None)
    if reward is not None:
        table["reward"] = plain(reward)
    if not table.get("kl", {}).get("coef"):
        table.pop("kl", None)
    return table


def _text(value: Any) -> str:
    return "–" if value in (ABSENT, "") else visible(setting_text(value))


def start_text(stage: StageSpec, words: Words) -> str:
    """What a stage's file says of its start, and where no rule corrects for the looks, that."""
    reference = parse_checkpoint(stage.start.rpartition("@")[2])
    loose = reference is not None and reference.rule not in (None, "gate")
    start = visible(stage.start)
    return words("promotion.uncorrected", start=start) if loose else start


def origin_text(node: LineageNode, words: Words) -> str:
    """What a stage started from, and what its file says of that."""
    stage, reference = node.stage, node.start
    if reference.stage is not None and reference.step is None:
        return words("lineage.waits", start=visible(stage.start))
    checkpoint = checkpoint_name(reference)
    label = checkpoint_label(checkpoint, words)
    if stage.starts_from == parse_checkpoint(checkpoint):
        return words("lineage.plain", checkpoint=label)
    return words("lineage.named", checkpoint=label, start=start_text(stage, words))


def lineage_blocks(run: RunDirectory, words: Words) -> list[Block]:
    """A row for each stage that the run has or descends from; nothing for a single stage of a
    model."""
    nodes = lineage(run)
    heads = [words("table.stage"), words("lineage.start"), words("lineage.changed")]
    rows: list[Row] = []
    for node in nodes:
        other = [] if node.run == run else [words("lineage.other_run", run=node.run)]
        head = Cell(f"{node.label} · {node.stage.method.upper()}", other, kind="head")
        changed = words.semicolon.join(changes(node, words)) or "–"
        rows.append([head, origin_text(node, words), changed])
    return [Table(heads, rows)] if len(rows) > 1 else []
