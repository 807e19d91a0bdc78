"""Rules about the pools that demonstrations are picked from.

A pool that all queries share leaves next to nothing to choose; a pool without a demonstration of
the right answer leaves nothing to find. Pools are those of the rows; each rule is a generator over
the evidence of a run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from assay.compare.arm import Arm
from assay.data.row import Row
from assay.judge.binomial import compare_counts
from assay.judge.improvements import Cost, Fact, Improvement, Stake
from assay.judge.selection_agreement import selections_in
from assay.judge.verdict import Comparison
from assay.lab.improve.result_rules import guarded
from assay.lab.improve.run_evidence import Measured, RunEvidence
from assay.tasks.demos.demonstrations import ANSWERS, DEMONSTRATIONS, POOL, set_of

FEWEST = 8
"""Items on either side of a split below which no difference is looked for."""


def one_pool(evidence: RunEvidence) -> Iterator[Improvement]:
    """Data sets all of whose queries have one and the same pool: a "first K rows" pool."""
    for name, rows in evidence.rows.items():
        pools = [frozenset(row.extra[POOL]) for row in rows.values() if row.extra.get(POOL)]
        if len(pools) < 2 or len({*pools}) > 1:
            continue
        size = str(len(pools[0]))
        figures = {"queries": str(len(pools)), "union": size, "size": size}
        trained = evidence.stages.values()
        stages = [each for each in trained if each.spec.data.partition(".")[0] == name]
        seconds = [each.seconds for each in stages if each.seconds is not None]
        risks = {guarded(evidence, each.name) for each in stages}
        yield Improvement(
            "one_pool",
            f"data.{name}",
            ("improve_what.one_pool",),
            "correct",
            (Fact("improve_evidence.one_pool", figures, f"data.{name}"),),
            Stake(1.0, "queries", at_most=False),
            Cost("data", sum(seconds) if seconds else None),
            "guarded" if risks == {"guarded"} else "open",
        )


def few_used(evidence: RunEvidence) -> Iterator[Improvement]:
    """Evaluations in which all checkpoints together pick no more demonstrations than one query may
    pick from: every query has the same few, whatever its pool is said to be."""
    for each in evidence.measured:
        found = [s for arm in each.arms.values() if (s := selections_in(arm.outputs)) is not None]
        picks = {pick for selections in found for chosen in selections.values() for pick in chosen}
        widest = max((len(c) for s in found for c in s.values()), default=0)
        queries = len(each.record.items)
        if not picks or len(picks) > widest + 1 or queries <= len(picks):
            continue
        figures = {"distinct": str(len(picks)), "queries": str(queries), "shots": str(widest)}
        yield Improvement(
            "few_used",
            each.record.name,
            ("improve_what.one_pool",),
            "correct",
            (Fact("improve_evidence.few_used", figures, each.place),),
            Stake(1.0, "queries", at_most=False),
            Cost("data", None),
            "none",
        )


def right_answer_in_pool(evidence: RunEvidence) -> Iterator[Improvement]:
    """Evaluations whose answers are better where the pool holds a demonstration with the query's
    answer, and whose pools often hold none."""
    for each in evidence.measured:
        own = evidence.rows.get(each.record.benchmark.partition(".")[0], {})
        rows = {id_: row for id_, row in own.items() if row.extra.get(DEMONSTRATIONS)}
        if not each.picks or not rows:
            continue
        holds = {id_: _holds(row) for id_, row in rows.items() if id_ in set(each.record.items)}
        lacking = sum(not held for held in holds.values())
        for name, arm in [*each.arms.items()][-1:]:
            found = with_and_without(arm, holds)
            if found is None or found.verdict != "better" or not lacking:
                continue
            sizes = sorted({len({*row.extra[POOL]}) for row in rows.values()})
            size = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
            yield _larger_pool(each, name, found, lacking, len(holds), size)


def _holds(row: Row) -> bool:
    """Whether a demonstration of the row's pool has one of its answers."""
    shown = set_of(row).demonstrations
    right = {answer.lower() for answer in row.extra[ANSWERS]}
    return any(shown[number].answer.lower() in right for number in row.extra[POOL])


def with_and_without(arm: Arm, holds: Mapping[str, bool]) -> Comparison | None:
    """Scores of the items whose pool holds the answer against those whose pool does not, as two
    binomials; None where one side has fewer than FEWEST."""
    means = dict(zip(arm.scores.item_ids, map(float, arm.scores.item_means), strict=True))
    sides: Sequence[list[float]] = ([], [])
    for item, held in holds.items():
        if item in means and 0 <= means[item] <= 1:
            sides[held].append(means[item])
    without, with_ = sides
    if min(map(len, sides)) < FEWEST:
        return None
    return compare_counts(sum(without), len(without), sum(with_), len(with_))


def _larger_pool(
    each: Measured, name: str, found: Comparison, lacking: int, queries: int, sizes: str
) -> Improvement:
    figures = {
        "checkpoint": name,
        "lacking": str(lacking),
        "queries": str(queries),
        "share": f"{lacking / queries:.1%}",
        "size": sizes,
        "with": f"{found.score:.1%}",
        "without": f"{found.control_score:.1%}",
        "p": f"{found.p_value:.2g}",
    }
    return Improvement(
        "right_answer_in_pool",
        each.record.name,
        ("improve_what.right_answer_in_pool",),
        "signal",
        (Fact("improve_evidence.right_answer_in_pool", figures, each.place),),
        Stake(found.difference * lacking / queries, "score", at_most=True),
        Cost("data", None),
        "open",
    )


RULES: Mapping[str, Callable[[RunEvidence], Iterator[Improvement]]] = {
    "one_pool": one_pool,
    "few_used": few_used,
    "right_answer_in_pool": right_answer_in_pool,
}
