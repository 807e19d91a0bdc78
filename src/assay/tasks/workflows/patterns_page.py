"""What a run's recorded programs say of patterns, rewards and choices, and the page of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from assay.judge.dependence import Dependence
from assay.judge.group_effects import Effect
from assay.judge.templates import MOST_NEEDED
from assay.pages.content import interval_text
from assay.pages.page import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Heading,
    Line,
    Mark,
    Only,
    Page,
    Section,
    Table,
    Text,
)
from assay.pages.words import Words, flat, number, percent, words
from assay.runs.run_directory import RunDirectory
from assay.tasks.workflows.operator_choice import (
    PASS_RATE,
    THIRDS,
    BestChoice,
    ChoiceTable,
    OperatorChoice,
    operator_choice,
)
from assay.tasks.workflows.operator_choice import (
    Cell as ChoiceCell,
)
from assay.tasks.workflows.reward_patterns import (
    Kind,
    Pattern,
    PatternRequest,
    RewardPatterns,
    Side,
    judged,
    recorded_programs,
    reward_bounds,
    reward_patterns,
    shown_first,
)

KINDS: tuple[Kind, ...] = (
    *("valid", "operator", "combination", "calls", "structure", "length", "tree"),
)
IN_WORDS = ("valid", "structure")
"""Kinds whose values are words; those of the others are names and numbers."""
MOST_CHARACTERS = 4000
"""Of a program on a page."""
FILES = ("html", "markdown")
"""The media with programs, trees and how it was computed."""
COLORS = {"another": "worse", "chosen": "better"}


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of a run's programs."""

    run: str
    source: PatternRequest
    completions: int
    valid: int
    abstained: int
    prompts: int
    bounds: tuple[float, float]
    """The scale of the rewards."""
    rewards: RewardPatterns
    choice: OperatorChoice


def find_patterns(run: RunDirectory, request: PatternRequest) -> Patterns:
    """The patterns of the programs that a request names.

    Raises InputError, InputError and DamagedFile.
    """
    found = recorded_programs(run, request)
    programs = found.programs
    return Patterns(
        run=str(run),
        source=found.source,
        completions=len(programs),
        valid=sum(program.shape is not None for program in programs),
        abstained=len(programs) - sum(1 for _ in judged(programs)),
        prompts=len({program.prompt for program in programs}),
        bounds=reward_bounds(programs),
        rewards=reward_patterns(programs),
        choice=operator_choice(programs),
    )


def patterns_page(run: RunDirectory, lang: str, **request: object) -> tuple[Patterns, Page]:
    """The patterns of the programs that a `PatternRequest` names, and their page."""
    found = find_patterns(run, PatternRequest(**request))  # type: ignore[arg-type]
    return found, page_of(found, words(lang))


def page_of(found: Patterns, w: Words) -> Page:
    """The whole page; on a terminal without programs and trees."""
    choice, rewards = found.choice, found.rewards
    adapts = [
        dependence_text("type", choice.on_type, w),
        dependence_text("difficulty", choice.on_difficulty, w),
    ]
    trees = [each for each in rewards.patterns if each.kind == "tree"]
    others = [each for each in rewards.patterns if each.kind != "tree"]
    about = [
        w("patterns.more_about", scale=" – ".join(map(number, found.bounds))),
        left_out_line(found, w),
    ]
    sides = [*side_blocks(rewards.high, "high", w), *side_blocks(rewards.low, "low", w)]
    title = w("patterns.title", run=found.run)
    blocks: list[Block] = [
        *(Text(line, "soft") for line in about_lines(found, w)),
        Section("shown", w("patterns.shown"), [Bullets(shown_lines(found, w))]),
        Only(
            FILES,
            [
                Section(
                    "sides",
                    w("patterns.sides"),
                    [Text(w("patterns.sides_about"), "soft"), side_figures(found, w), *sides],
                )
            ],
        ),
        Section(
            "patterns",
            w("patterns.table"),
            [
                Only(FILES, [Text(w("patterns.table_about"), "soft")]),
                Only(FILES, [pattern_table([*others, *trees], w)]),
                Only(["terminal"], [pattern_table(others, w)]),
                Only(FILES, [Text(line, "soft") for line in about if line]),
            ],
        ),
        Section(
            "types",
            w("patterns.by_type"),
            [
                Only(FILES, [Text(w("patterns.by_type_about"), "soft")]),
                choice_table(choice.by_type, w),
            ],
        ),
        Section(
            "difficulty",
            w("patterns.by_difficulty"),
            [Text(difficulty_text(found, w), "soft"), choice_table(choice.by_difficulty, w)],
        ),
        Section(
            "adapts",
            w("patterns.adapts"),
            [Bullets(adapts), Heading(w("patterns.best")), best_table(choice.best, w)],
        ),
        Only(
            FILES,
            [
                Section(
                    "methods",
                    w("patterns.methods"),
                    [Text(w("patterns.method_tests")), Text(w("patterns.method_shapes"))],
                )
            ],
        ),
    ]
    footer = w("patterns.footer", run=found.run, version=version("assay-lab"))
    return Page(w, title, blocks, footer)


def about_lines(found: Patterns, w: Words) -> list[str]:
    """Where the programs come from, and how many there are."""
    source = found.source
    if source.stage is None:
        named = {"evaluation": source.evaluation, "checkpoint": source.checkpoint}
        place = w("patterns.of_evaluation", **named)
    else:
        steps = {"first": source.first, "last": source.last}
        place = w("patterns.of_stage", stage=source.stage, **steps)
    counts = {
        "completions": number(found.completions),
        "prompts": number(found.prompts),
        "valid": number(found.valid),
        "abstained": number(found.abstained),
    }
    signal = number(found.rewards.with_signal)
    return [
        w("patterns.counts", source=place, **counts),
        w("patterns.groups", groups=found.rewards.groups, signal=signal),
    ]


def shown_lines(found: Patterns, w: Words) -> list[str]:
    """Everything that has a verdict; that nothing has, where nothing does."""
    lines = []
    for pattern in shown_first(found.rewards.patterns):
        kind, label = w(f"patterns.kind_{pattern.kind}"), pattern_label(pattern, w)
        name = label if pattern.kind in IN_WORDS else f"{kind}{w.colon}{label}"
        lines.append(w("patterns.is_better", pattern=name, **figures(pattern.effect, w)))
    lines += shown_cells(found.choice.by_type, w)
    for best in found.choice.best:
        if best.verdict == "another" and best.effect is not None:
            names = {"chosen": best.chosen, "other": best.other, "share": percent(best.share)}
            kind = flat(best.problem_type) or "–"
            lines.append(w("patterns.pays_more", type=kind, **names, **figures(best.effect, w)))
    return lines or [w("patterns.nothing_shown")]


def shown_cells(table: ChoiceTable, w: Words) -> Iterator[str]:
    """The verdicts on choices by type; a combination that is all that its operator was used in is
    told once."""
    told: set[tuple[str, str, int]] = set()
    for row in table.rows:
        for column, cell in row.cells.items():
            what = (column, row.value, cell.used)
            if cell.effect and cell.effect.verdict != "undecided" and what not in told:
                told.add(what)
                whole = "" if row.kind == "operator" else f" ({w('patterns.combination')})"
                name = f"{column_text(column, w)}{w.colon}{row.value}{whole}"
                yield w("patterns.is_better", pattern=name, **figures(cell.effect, w))


def figures(effect: Effect, w: Words) -> Mapping[str, str]:
    """The difference, its interval and p-value in words."""
    interval = effect.contrast.interval
    return {
        "difference": signed_number(effect.contrast.difference),
        "interval": "" if interval is None else w.ends(interval, signed_number),
        "p": "–" if effect.adjusted_p is None else number(effect.adjusted_p),
    }


def signed_number(value: float | None) -> str:
    """A difference of rewards with its sign."""
    if value is None:
        return "–"
    text = f"{value:+.3f}".replace("-", "−")
    return text if text.strip("+−0.") else "0"


def difference_cell(effect: Effect | None, w: Words) -> Cell:
    """A difference over its interval."""
    if effect is None:
        return Cell("–")
    shown = figures(effect, w)
    return Cell(shown["difference"], [shown["interval"]])


def pattern_label(pattern: Pattern, w: Words) -> str:
    """The value of a pattern."""
    if pattern.kind in IN_WORDS:
        return w(f"patterns.{pattern.kind}_{pattern.value}")
    return pattern.value


def side_figures(found: Patterns, w: Words) -> Table:
    """The figures of both sides, line by line."""
    high, low = found.rewards.high, found.rewards.low
    pairs = {
        "completions": (number(high.completions), number(low.completions)),
        "valid": (valid_share(high), valid_share(low)),
        **{
            name: (number(getattr(high, name)), number(getattr(low, name)))
            for name in ("reward", "calls", "lines", "cost")
        },
    }
    columns = [Column(""), *(Column(w(f"patterns.{name}"), right=True) for name in ("high", "low"))]
    rows = [
        [w(f"patterns.{name}"), *(f"−{each[1:]}" if each[0] == "-" else each for each in pair)]
        for name, pair in pairs.items()
    ]
    return Table(columns, rows)


def valid_share(side: Side) -> str:
    """The share of valid programs; "–" of nothing."""
    return percent(side.valid / side.completions if side.completions else None)


def side_blocks(side: Side, name: str, w: Words) -> list[Block]:
    """One side with the program that stands for it."""
    heading = Heading(w(f"patterns.{name}"))
    if not side.completions:
        return [heading, Text(w("patterns.nobody"))]
    other = "–" if side.other_share is None else percent(side.other_share)
    shares = {"share": percent(side.share), "other": other}
    about = w("patterns.typical", **shares)
    if not side.tree:
        about = w("patterns.typical_invalid", error=flat(side.error) or "–", **shares)
    cut = side.program[:MOST_CHARACTERS]
    whole = len(cut) == len(side.program)
    rest = w("patterns.cut", characters=number(len(side.program)))
    return [heading, Text(about), Code(cut), *([] if whole else [Text(rest, "soft")])]


def pattern_table(patterns: Sequence[Pattern], w: Words) -> Table:
    """The patterns under the headings of their kinds."""
    names = ("pattern", "high", "low", "programs", "reward", "difference", "p", "verdict", "more")
    columns = [
        Column(w(f"patterns.{name}"), right=name not in ("pattern", "verdict")) for name in names
    ]
    rows: list[Sequence[Cell | Line]] = []
    for kind in KINDS:
        own = [each for each in patterns if each.kind == kind]
        if own:
            rows.append([Cell(Mark(w(f"patterns.kind_{kind}")), span=len(names))])
        rows += [pattern_row(each, w) for each in own]
    return Table(columns, rows, kind="small")


def pattern_row(pattern: Pattern, w: Words) -> Sequence[Cell | Line]:
    """A line of the table."""
    effect, label = pattern.effect, pattern_label(pattern, w)
    counts = (pattern.high, pattern.low, pattern.programs, pattern.reward)
    needed = MOST_NEEDED + 1 if effect.needed is None else effect.needed
    return [
        label if pattern.kind in IN_WORDS else Mark(label, "code"),
        *map(number, counts),
        difference_cell(effect, w),
        figures(effect, w)["p"],
        Mark(w(f"verdict_name.{effect.verdict}"), effect.verdict),
        w("patterns.needed", needed=needed) if effect.verdict == "undecided" else "–",
    ]


def left_out_line(found: Patterns, w: Words) -> str:
    """The kinds that have rarer values; "" for none."""
    counts = [
        w("patterns.left_out_kind", kind=w(f"patterns.kind_{kind}"), count=count)
        for kind, count in found.rewards.left_out.items()
    ]
    return w("patterns.left_out", counts=w.listing.join(counts)) if counts else ""


def choice_table(table: ChoiceTable, w: Words) -> Table:
    """A table of choices; a kind of problems without a program is shown as absent."""
    columns = [w("patterns.choice"), *(column_text(each, w) for each in table.columns)]
    rows = [
        [
            Cell([Mark(row.value, "code"), w.within(w(f"patterns.{row.kind}"))]),
            *(choice_cell(row.cells.get(column), w) for column in table.columns),
        ]
        for row in table.rows
    ]
    return Table(columns, rows, kind="small")


def column_text(column: str, w: Words) -> str:
    """The name of a type or a level."""
    return w(f"patterns.level_{column}") if column in THIRDS else flat(column) or "–"


def choice_cell(cell: ChoiceCell | None, w: Words) -> Cell:
    """A share with its interval, counts, means, and what it is worth within groups."""
    if cell is None:
        return Cell(w("patterns.absent"), kind="soft")
    interval = cell.share.interval
    below: list[Line] = [] if interval is None else [interval_text(interval, w)]
    below.append(w("patterns.used", used=number(cell.used), programs=number(cell.programs)))
    if cell.reward is not None:
        below.append(w("patterns.cell_reward", reward=number(cell.reward)))
    if cell.cost is not None:
        below.append(w("patterns.cell_cost", cost=number(cell.cost)))
    if cell.effect is not None and cell.effect.contrast.interval is not None:
        verdict = cell.effect.verdict
        shown = {k: v for k, v in figures(cell.effect, w).items() if k != "p"}
        worth = w("patterns.cell_effect", verdict=w(f"verdict_name.{verdict}"), **shown)
        below.append(Mark(worth, verdict))
    return Cell(Mark(percent(cell.share.value)), below)


def difficulty_text(found: Patterns, w: Words) -> str:
    """What says how hard a problem is."""
    choice, measured = found.choice, number(found.choice.measured)
    if choice.difficulty == PASS_RATE:
        return w("patterns.by_pass_rate", measured=measured)
    return w("patterns.by_field", field=choice.difficulty, measured=measured)


def dependence_text(on: str, found: Dependence, w: Words) -> str:
    """Whether choices depend on something."""
    given = {"p": number(found.p), "clusters": found.clusters}
    if found.depends:
        return w(f"patterns.depends_{on}", **given)
    if min(found.labels, found.choices) < 2:
        return w(f"patterns.one_{on}")
    return w(f"patterns.open_{on}", needed=found.needed, **given)


def best_table(best: Sequence[BestChoice], w: Words) -> Table:
    """The choice made most on each type against the best beside it."""
    names = ("problem_type", "chosen", "pays", "difference", "best_verdict")
    columns = [Column(w(f"patterns.{name}"), right=name == "difference") for name in names]
    return Table(columns, [best_row(each, w) for each in best], kind="small")


def best_row(best: BestChoice, w: Words) -> Sequence[Cell | Line]:
    """The line of one type."""
    verdict = w(f"patterns.best_{best.verdict}")
    if best.verdict == "undecided":
        needed = MOST_NEEDED + 1 if best.needed is None else best.needed
        verdict = w("patterns.best_more", needed=needed)
    rare = [w("patterns.rare", count=best.rare)] if best.rare else []
    chosen = w("patterns.chosen_share", chosen=best.chosen, share=percent(best.share))
    return [
        flat(best.problem_type) or "–",
        Mark(chosen, "code"),
        Mark(best.other or "–", "code"),
        difference_cell(best.effect, w),
        Cell(Mark(verdict, COLORS.get(best.verdict, "undecided")), rare),
    ]
