"""Gives rows of queries their stored selections: those that were made for them, or of a file.

Also where the selections of a table lie that `generate` makes. Nothing is generated here.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.files import canonical_json, sha256_file, sha256_text
from assay.data.loaded import Loaded
from assay.data.row import Row
from assay.errors import Finding, InputError
from assay.experiment.experiment import Experiment, mixed
from assay.experiment.helper_tables import WITHOUT_EFFECT
from assay.experiment.selection_tables import FILE, SELECTIONS, SelectionsSpec
from assay.labs.demos.demonstrations import FROZEN, POOL, SHOTS, selection_text, set_of
from assay.labs.demos.rewards import facts_of
from assay.labs.demos.selection_file import (
    Candidate,
    SelectionFile,
    StoredQuery,
    read_selection_file,
)

CANDIDATES = "candidates"
"""The field of `extra` that holds a row's stored selections."""
GENERATED = "generated"
"""The folder below the lab's root in which generated selections lie."""
MERGED = "selections.json"
NOT_STORED = "no stored selections"
OTHER_LAYOUT = (
    "the answers to their selections were given with the query behind the last pick; here it "
    "stands next to the first"
)
ALL_SKIPPED = "all its selections were scored by a fallback"
NO_POSITIVE = "no selection with a positive score"
LEAST, LITTLE = 0.05, 0.5
"""Shares of queries with a positive candidate, and of groups whose rewards differ, below which a
file is refused, and warned of."""
EQUAL = 1e-12
"""Rewards that differ by less are equal."""
NO_POSITIVES, NO_SIGNAL = "few_queries_with_a_positive", "few_groups_with_signal"
"""The faults that `allow` may accept."""


def selections_of(source: str | None) -> str | None:
    """The table that a data source takes its selections from; None for another source."""
    kind, _, name = (source or "").partition(":")
    return name if kind == SELECTIONS else None


def stored_file(experiment: Experiment, name: str, root: Path) -> Path:
    """Where the selections of a table lie, or will lie once they are made: for what is made, a
    folder of its own for all settings that they depend on."""
    spec = experiment.selections[name]
    if spec.file is not None:
        return root / spec.file.removeprefix(FILE)
    return generated_folder(experiment, name, root) / MERGED


def generated_folder(experiment: Experiment, name: str, root: Path) -> Path:
    """The folder in which a table's selections are made."""
    spec, helper = experiment.selections[name], experiment.helpers[FROZEN]
    sets = sorted(mixed(experiment, spec.data.partition(".")[0]))
    made_of = {
        "task": experiment.task,
        "selections": spec.makes,
        "data": {n: experiment.data[n].model_dump(mode="json", exclude_none=True) for n in sets},
        "frozen": helper.model_dump(mode="json", exclude_none=True, exclude=WITHOUT_EFFECT),
    }
    return root / GENERATED / f"{name}-{sha256_text(canonical_json(made_of))[:12]}"


def selection_record(experiment: Experiment, table: str, root: Path) -> dict[str, Any]:
    """The settings of a table and the sha256 of its file, for the manifest."""
    settings = experiment.selections[table].model_dump(mode="json", exclude_none=True)
    if "file" in settings:
        settings["file"] = FILE.removesuffix(":")  # known by what it holds, not by where it lies
    return {**settings, "file_sha256": sha256_file(stored_file(experiment, table, root))}


def selection_rows(experiment: Experiment, table: str, rows: Sequence[Row], root: Path) -> Loaded:
    """The rows of a table's queries with their selections; the others are dropped and counted.

    Raises InputError, and what `read_selection_file` and `with_selections` raise.
    """
    file, spec = stored_file(experiment, table, root), experiment.selections[table]
    if not file.exists():
        problem = f"the selections {table!r} are not made"
        fix = "assay synthesise FILE makes them" if spec.kind else f"it counts from {root}"
        raise InputError(f"{problem}: no file {file}", fix=fix)
    stored = read_selection_file(file)
    refuse_unhealthy(stored, spec, rows)
    return with_selections(stored, spec, rows)


def refuse_unhealthy(stored: SelectionFile, spec: SelectionsSpec, rows: Sequence[Row]) -> None:
    """Raise InputError where the groups of a file can teach nothing, unless `spec` allows it."""
    health = stored_health(stored, spec, rows)
    for finding in health_findings(health, str(stored.path), allowed(stored, spec)):
        if finding.severity == "error":
            raise InputError(f"{finding.what}: {finding.evidence}", fix=finding.fix)


def allowed(stored: SelectionFile, spec: SelectionsSpec) -> Collection[str]:
    """The faults that are only warned of. Beams are imitated, which needs neither positives nor
    rewards that differ."""
    return (NO_POSITIVES, NO_SIGNAL) if stored.by_score else spec.allow


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """Counts over the groups of a file: whether they can teach anything.

    Report 002 trained on a file of which 5 of 800 queries had a positive candidate, and compared it
    with one of 664 of 800: shares are given of candidates and of queries, each by its name.
    """

    queries: int
    candidates: int
    """Those that are used."""
    positive_queries: int
    """Queries with at least one positive candidate."""
    positive_candidates: int
    alike: int
    """Groups of equal rewards: each contributes exactly 0 to a policy gradient."""
    fallback: int
    """Candidates that a looser rule scored, or none, used or not."""
    every: int
    """Candidates, used or not."""

    def numbers(self) -> dict[str, float]:
        """The measurements by their name and unit."""
        queries = max(self.queries, 1)
        return {
            "queries": self.queries,
            "candidates": self.candidates,
            "queries with a positive candidate, share": self.positive_queries / queries,
            "positive candidates, share": self.positive_candidates / max(self.candidates, 1),
            "groups of equal rewards, share": self.alike / queries,
            "scored by a fallback, share of candidates": self.fallback / max(self.every, 1),
        }


def stored_health(stored: SelectionFile, spec: SelectionsSpec, rows: Sequence[Row]) -> GroupHealth:
    """The health of the groups that rows have in a file, by the rewards that are stored."""
    queries = [*_by_row(stored, rows).values()]
    groups = [_used(query, stored, spec) for query in queries]
    rewards = [[stored_candidate(each, stored)["reward"] for each in group] for group in groups]
    positive = [sum(each.outcome.correct for each in group) for group in groups]
    every = [each.outcome.accuracy.mode for query in queries for each in query.candidates]
    return GroupHealth(
        queries=len(queries),
        candidates=sum(map(len, groups)),
        positive_queries=sum(map(bool, positive)),
        positive_candidates=sum(positive),
        alike=sum(max(each, default=0) - min(each, default=0) <= EQUAL for each in rewards),
        fallback=sum(mode != "official" for mode in every),
        every=len(every),
    )


def health_findings(health: GroupHealth, place: str, allow: Collection[str]) -> Iterator[Finding]:
    """What is wrong with the groups of a table: errors below the share that is refused, warnings
    where there is little, and where an error is allowed by its name."""
    numbers, differ = health.numbers(), health.queries - health.alike
    faults = {
        NO_POSITIVES: (
            health.positive_queries,
            "queries have a positive candidate",
            f"{numbers['positive candidates, share']:.1%} of {health.candidates} candidates are "
            "positive",
        ),
        NO_SIGNAL: (
            differ,
            "groups have rewards that differ",
            f"{numbers['groups of equal rewards, share']:.1%} of the groups contribute exactly 0 "
            "to a policy gradient",
        ),
    }
    for name, (count, what, evidence) in faults.items():
        share = count / max(health.queries, 1)
        if share >= LITTLE:
            continue
        is_error = share < LEAST and name not in allow
        fix = "make selections with a better selector, a larger pool or more candidates"
        yield Finding(
            "error" if is_error else "warning",
            f"{place}: {count} of {health.queries} {what}",
            evidence,
            f'{fix}, or write allow = ["{name}"]' if share < LEAST else fix,
        )


def with_selections(file: SelectionFile, spec: SelectionsSpec, rows: Sequence[Row]) -> Loaded:
    """The rows with the selections of a file. Raises InputError."""
    stored = _by_row(file, rows)
    kept: list[Row] = []
    skipped: list[str] = []
    dropped: dict[str, list[str]] = {}
    for row in rows:
        query = stored.get(row.id)
        used = [] if query is None else _used(query, file, spec)
        positive = any(candidate.outcome.correct for candidate in used)
        if query is None:
            dropped.setdefault(NOT_STORED, []).append(row.id)
        elif not used:
            dropped.setdefault(ALL_SKIPPED, []).append(row.id)
        elif spec.require_positive and not positive:
            dropped.setdefault(NO_POSITIVE, []).append(row.id)
        else:
            kept.append(_with_candidates(file, row, query, used))
            skipped += [row.id] if len(used) < len(query.candidates) else []
    words = {"selections scored by a fallback are left out": tuple(skipped)} if skipped else {}
    # A file of this lab, in whose prompts the query stands next to the first pick
    # (`demonstrations.conversation`), names its set of demonstrations.
    if "demonstrations" not in file.meta and kept and kept[0].extra[SHOTS] > 1:
        words[OTHER_LAYOUT] = tuple(row.id for row in kept)
    return Loaded(tuple(kept), {why: tuple(ids) for why, ids in dropped.items()}, words)


def _used(query: StoredQuery, stored: SelectionFile, spec: SelectionsSpec) -> list[Candidate]:
    """The candidates that the benchmark's own metric scored, or all where nothing else is asked."""
    every = stored.by_score or spec.fallback == "keep"
    return [c for c in query.candidates if every or c.outcome.accuracy.mode == "official"]


def _by_row(file: SelectionFile, rows: Sequence[Row]) -> Mapping[str, StoredQuery]:
    """The queries by the id of their row: a row's id, what stands behind its last dash, or the
    number of the demonstration that the row is. Raises InputError where none fits."""
    known = {str(query.question_id): query for query in file.queries}
    names = {row.id: (row.id, row.id.rpartition("-")[2]) for row in rows}
    named = {name for both in names.values() for name in both}
    numbered = {query.number: query for query in file.queries if query.question_id not in named}
    stored: dict[str, StoredQuery] = {}
    for row in rows:
        number = set_of(row).numbers.get(row.id, -1)
        query = next((known[n] for n in names[row.id] if n in known), numbered.get(number))
        if query is not None:
            stored[row.id] = query
    if not stored:
        problem = f"none of its {len(file.queries)} queries is a row of the data set"
        first = file.queries[0].question_id
        raise InputError(problem, file=file.path, fix=f"its first is {first!r}")
    return stored


def _with_candidates(
    stored: SelectionFile, row: Row, query: StoredQuery, used: Sequence[Candidate]
) -> Row:
    row = replace(row, extra={**row.extra, POOL: pool_of(stored, row, query)})
    for candidate in used:
        if len(candidate.picks) != row.extra[SHOTS]:
            shots = row.extra[SHOTS]
            problem = f"{list(candidate.picks)} are not the {shots} shots of the data set"
            place = f"query {query.number}: pointer"
            raise InputError(problem, file=stored.path, field=place, fix="set options.shots alike")
    candidates = [stored_candidate(candidate, stored) for candidate in used]
    return replace(row, extra={**row.extra, CANDIDATES: candidates})


def pool_of(stored: SelectionFile, row: Row, query: StoredQuery) -> list[int]:
    """The pool that a query's selections were picked from: the file's own; of a file without pools
    all that was picked, filled up to its size from the row's. Raises InputError."""
    if query.pool is not None:
        pool = list(query.pool)
    else:
        own = row.extra[POOL]
        picked = dict.fromkeys(pick for each in query.candidates for pick in each.picks)
        pool = [*picked, *(n for n in own if n not in picked)][: max(len(own), len(picked))]
    demonstrations = set_of(row)
    count, itself = len(demonstrations.demonstrations), demonstrations.numbers.get(row.id)
    for number in pool:
        if number >= count or number == itself:
            what = "the query itself" if number == itself else f"not among {count} demonstrations"
            place = f"query {query.number}: candidate_pool_ids"
            raise InputError(f"{number} is {what}", file=stored.path, field=place)
    return pool


def stored_candidate(candidate: Candidate, stored: SelectionFile) -> dict[str, Any]:
    """A candidate as rows hold it; its reward is the InfoScore in a file that ranks by it, else
    Lever-Plus's hard plus soft: 1 for a positive score, and the score."""
    outcome = candidate.outcome
    reward = candidate.score if stored.by_score else outcome.correct + outcome.accuracy.score
    return {
        "text": selection_text(candidate.picks),
        "reward": float(reward or 0.0),
        "facts": {"gold_probability": None, **facts_of(outcome)},
        "method": candidate.method,
        "rank": candidate.rank,
        "score": candidate.score,
        "logp": candidate.logp,
        "temperature": candidate.temperature,
    }
