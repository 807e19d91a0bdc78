"""What was made: the rows of a set with what was refused, how varied they are, and what they cost.

Data only, for pages and programs; `make` fills it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.data.leakage import question
from assay.data.row import Row
from assay.data.splits import Lengths, length_statistics
from assay.data.tools import function_names
from assay.errors import Finding
from assay.experiment.synthesise_table import SynthesiseSpec
from assay.judge.diversity import Distinct, clusters, distinct, words_in
from assay.lab.monitor.run_costs import CostLine
from assay.lab.synthesise.answers import MADE_BY, Refused

if TYPE_CHECKING:  # rendering loads torch, which pages do without
    from assay.lab.check.subject import Gold

NGRAMS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Diversity:
    """How varied the questions of a made set are."""

    made: Mapping[int, Distinct]
    """Distinct n-grams by n, over as many as the seeds have."""
    seeds: Mapping[int, Distinct]
    """Those of the seeds' own questions; empty where seeds are no questions."""
    clusters: int
    """Of near-duplicates among all proven rows, those that were left out for it included."""
    largest: int
    of: int
    """Proven rows."""
    by_seed: Lengths
    """Rows of a seed."""
    seeds_without: int
    by_tool: Mapping[str, int]
    """Calls of each function, the most first."""
    tools_without: tuple[str, ...]
    """Functions that seeds describe and no row calls."""
    prompt: Lengths
    answer: Lengths
    """In tokens of the experiment's model."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What a benchmark or a data set shares with the rows that the teacher wrote."""

    name: str
    items: int
    shared: Mapping[str, int]
    """Reason -> rows that were refused for it."""


@dataclass(frozen=True, slots=True)
class MadeSet:
    """One table's rows."""

    table: str
    file: Path
    spec: SynthesiseSpec
    teacher: str
    """The source of the helper model."""
    fingerprint: str
    solver: str
    """The source of the model that agrees; "" for none."""
    seeds: int
    rows: tuple[Row, ...]
    refused: tuple[Refused, ...]
    asked: int
    """Questions to the teacher that are answered, or failed."""
    not_needed: int
    """Answers behind the last row that was wanted."""
    diversity: Diversity
    held_out: tuple[HeldOut, ...]
    costs: tuple[CostLine, ...]
    """By what was asked for."""
    total: CostLine | None
    """None where nothing was asked."""
    stopped: str
    """Why fewer rows are there than wanted; "" for a whole set."""
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> Counter[str]:
        """Refused rows by reason."""
        return Counter(each.reason for each in self.refused)

    @property
    def cost_per_row(self) -> float | None:
        """Of a verified row, everything that was paid for counted; None where a cost is not known
        or no row is there."""
        if self.total is None or self.total.cost is None or not self.rows:
            return None
        return self.total.cost / len(self.rows)


def diversity_of(
    rows: Sequence[Row],
    doubles: Sequence[Row],
    seeds: Sequence[Row],
    asks: Callable[[Row], bool],
    golds: "Sequence[Gold]",
    near: float,
) -> Diversity:
    """The diversity of the rows that are kept; `doubles` were left out as duplicates, `asks` says
    which seeds are questions."""
    texts = [words_in(question(row)) for row in rows]
    own = [words_in(question(row)) for row in seeds if asks(row)]
    counts = {n: min(distinct(each, n).all for each in (texts, own or texts)) for n in NGRAMS}
    groups = clusters([question(row) for row in (*rows, *doubles)], near)
    by_seed = Counter(row.extra[MADE_BY]["seed"] for row in rows)
    called = Counter(
        call.name for row in rows for message in row.messages for call in message.tool_calls
    )
    known = dict.fromkeys(name for row in seeds for name in function_names(row.tools))
    return Diversity(
        made={n: distinct(texts, n, counts[n]) for n in NGRAMS},
        seeds={n: distinct(own, n, counts[n]) for n in NGRAMS} if own else {},
        clusters=len(groups),
        largest=max(map(len, groups), default=0),
        of=len(rows) + len(doubles),
        by_seed=length_statistics([by_seed[row.id] for row in seeds]),
        seeds_without=sum(row.id not in by_seed for row in seeds),
        by_tool=dict(called.most_common()),
        tools_without=tuple(name for name in known if name not in called),
        prompt=length_statistics([gold.prompt_size for gold in golds]),
        answer=length_statistics([len(gold.actions) for gold in golds]),
    )
