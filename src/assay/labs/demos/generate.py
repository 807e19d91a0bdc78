"""Makes the stored selections of `[selections.NAME]` tables, one query after the other.

Each query's line is journalled when it is done, so that a killed process loses one query. Once all
queries are there they are merged into one file, whose bytes do not depend on kills. Reading it is
`stored`'s.

Sequence data (Lever-LM): the beams of a search by InfoScore. RL data (Lever-Plus): selections of
several origins, every set of demonstrations once.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.data.episode import Episode, Turn
from assay.data.files import append_line, atomic_write_text, hash_contents, locked
from assay.data.row import Row
from assay.errors import Finding, InputError, look_up
from assay.experiment.base_table import RenderingSettings
from assay.experiment.selection_tables import RUN, SELECTIONS, SelectionsSpec
from assay.lab.check.subject import Number, Seen
from assay.lab.data.prepare import find_part, note_made_of, prepare_set
from assay.lab.models.learner import Encoder, question
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.session.session import Session
from assay.labs.demos.demonstrations import FROZEN, POOL, SHOTS, set_of
from assay.labs.demos.modules import SelectionContext, choice_of
from assay.labs.demos.outcomes import judge, target_probabilities
from assay.labs.demos.pools import query_generator
from assay.labs.demos.selection_file import (
    BY_SCORE,
    METHODS,
    NOT_ASKED,
    Candidate,
    file_text,
    query_entry,
    read_selection_file,
)
from assay.labs.demos.selector_learner import SelectorPolicy
from assay.labs.demos.stored import (
    MERGED,
    GroupHealth,
    allowed,
    generated_folder,
    health_findings,
    selections_of,
    stored_file,
    stored_health,
)
from assay.rl.packed import pack
from assay.rl.policy import SampleKey, Sampling
from assay.runs.run_names import experiment_of, run_checkpoint
from assay.tasks.helper_model import HelperModel
from assay.tasks.task import Task

Picks = tuple[int, ...]
Probability = Callable[[Sequence[Picks]], Sequence[float]]
"""P of the right answer after each of several picks."""


def beam_search(
    pool: Sequence[int], shots: int, width: int, probability: Probability
) -> list[Candidate]:
    """The best selections of `shots` of `pool`, the most helpful first; at most `width`.

    InfoScore of a candidate c after the picks S (Lever-LM): P(y | S, c, x) - P(y | S, x), with P
    the probability of the right answer y to the query x; POSITIVE where c helps. A selection's
    score is the sum over its picks, P(y | picks, x) - P(y | x). Lever-LM's own code ranks by the
    last step alone, which prefers a pick that repairs a bad one.

    Each step puts every candidate that is not picked yet between a selection that was kept and the
    query, so that the prompts share all that stands before it, and keeps the `width` best. Equal
    ones keep the order of the pool.
    Raises InputError.
    """
    if shots > len(pool):
        problem = f"{shots} picks of {len(pool)} candidates"
        raise InputError(problem, field="shots", fix="take a larger pool, or fewer shots")
    places = {number: place for place, number in enumerate(pool)}
    (alone,) = probability([()])
    kept: list[tuple[Picks, float]] = [((), 0.0)]
    for _ in range(shots):
        states = [(n, *picks) for picks, _ in kept for n in pool if n not in picks]
        scores = zip(states, probability(states), strict=True)
        beams = [(picks, likely - alone) for picks, likely in scores]
        beams.sort(key=lambda beam: (-beam[1], [places[pick] for pick in beam[0]]))
        kept = beams[:width]
    return [
        Candidate(picks, "beam", NOT_ASKED, rank, score) for rank, (picks, score) in enumerate(kept)
    ]


def searched(pool_size: int, shots: int, width: int) -> int:
    """How many probabilities a search asks for."""
    total, kept = 1, 1
    for step in range(shots):
        states = kept * (pool_size - step)
        total, kept = total + states, min(width, states)
    return total


def beam_candidates(frozen: HelperModel, row: Row, width: int) -> list[Candidate]:
    """The beams of a search by InfoScore with their outcomes, the most helpful first.

    Raises HelperFailed, and InputError as where a model gives no log-probabilities.
    """
    probability = partial(target_probabilities, frozen, row)
    beams = beam_search(row.extra[POOL], row.extra[SHOTS], width, probability)
    return judged(frozen, row, beams, None)


def judged(
    frozen: HelperModel,
    row: Row,
    proposals: Sequence[Candidate],
    logps: Sequence[float] | None,
) -> list[Candidate]:
    """Proposals with what the frozen model makes of them; `logps` are the selector's."""
    outcomes = judge(frozen, [(row, each.picks) for each in proposals])
    likely: Sequence[float | None] = logps or [None] * len(proposals)
    return [
        replace(each, outcome=outcome, logp=logp)
        for each, outcome, logp in zip(proposals, outcomes, likely, strict=True)
    ]


def distinct(proposals: Sequence[Candidate]) -> list[Candidate]:
    """Each set of demonstrations once, whatever its order: by beam, retrieval, sample and random in
    this order, and of one method the first."""
    ranked = sorted(proposals, key=lambda each: METHODS.index(each.method))
    kept: dict[frozenset[int], Candidate] = {}
    for each in ranked:
        kept.setdefault(frozenset(each.picks), each)
    return [*kept.values()]


def retrieved(row: Row, similarity: Mapping[int, float], count: int) -> list[Candidate]:
    """The `count` sets of the pool with the largest sum of similarities to the query, each with its
    most similar demonstration first; of equal ones the first in the pool."""
    shots = row.extra[SHOTS]
    nearest = sorted(row.extra[POOL], key=lambda number: -similarity[number])
    # A set among the `count` best leaves out fewer than `count` that are more similar.
    sets = itertools.combinations(nearest[: shots + count - 1], shots)
    best = sorted(sets, key=lambda picks: -sum(similarity[number] for number in picks))
    return [
        Candidate(picks, "retrieval", NOT_ASKED, rank) for rank, picks in enumerate(best[:count])
    ]


def drawn(row: Row, count: int, seed: int) -> list[Candidate]:
    """`count` selections drawn from the pool, by the seed and the row alone."""
    generator = query_generator(seed, row.id)
    pool, shots = np.array(row.extra[POOL], dtype=int), row.extra[SHOTS]
    picks = [generator.choice(pool, shots, replace=False).tolist() for _ in range(count)]
    return [Candidate(tuple(each), "random") for each in picks]


JOURNAL = "queries.jsonl"
REWARDS = {"beam": BY_SCORE, "mixed": "hard_plus_soft"}
"""What the reward of a stored selection is, by kind."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What a call made."""

    name: str
    queries: int
    made: int
    """By this call."""
    file: Path
    health: GroupHealth
    """Of its groups."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with them."""


def generate(session: Session, name: str) -> Generated:
    """Make the selections of a table that are not made yet.

    Raises InputError for a table of a file, InputError where the folder's were made of something
    else, and what preparing the data and asking the models raises.
    """
    spec = session.experiment.selections[name]
    if spec.kind is None:
        problem = "the selections are those of a file, and nothing is to be made"
        raise InputError(problem, field=f"{SELECTIONS}.{name}.file")
    rows = queries(session, spec)
    folder = generated_folder(session.experiment, name, session.run.root)
    made_of = note_sources(session, spec, rows, folder)
    journal = folder / JOURNAL
    journal.touch()
    with locked(journal):
        made = make_lines(session, spec, rows, journal)
    stored = stored_lines(journal)
    file = folder / MERGED
    entries = {number_of(rows, n): stored[row.id] for n, row in enumerate(rows)}
    atomic_write_text(file, file_text(entries, made_of))
    earlier = read_selection_file(file)
    health = stored_health(earlier, spec, rows)
    findings = health_findings(health, f"{SELECTIONS}.{name}", allowed(earlier, spec))
    return Generated(name, len(rows), made, file, health, tuple(findings))


def generate_tables(session: Session, name: str | None) -> list[Generated]:
    """Make the selections of one table of an experiment, or of all that are made here.

    Raises InputError, and as `generate` does.
    """
    tables = session.experiment.selections
    if name is not None:
        look_up(tables, name, "selections")
    every = [each for each, spec in tables.items() if spec.kind is not None]
    session.helpers.check()
    return [generate(session, each) for each in ([name] if name else every)]


def queries(session: Session, spec: SelectionsSpec) -> tuple[Row, ...]:
    """The rows that a table has selections for."""
    name = spec.data.partition(".")[0]
    inputs = (session.task, session.learner.encoder, session.run.root)
    return find_part({name: prepare_set(session.experiment, name, *inputs)}, spec.data)


def note_sources(
    session: Session, spec: SelectionsSpec, rows: Sequence[Row], folder: Path
) -> dict[str, Any]:
    """Write down what a folder's selections are made of, or check it. Raises InputError."""
    made_of = {
        "schema": 1,
        "settings": spec.makes,
        "reward": REWARDS[spec.kind or ""],
        "frozen": session.helpers[FROZEN].fingerprint,
        "demonstrations": set_of(rows[0]).fingerprint,
        "queries_sha256": hash_contents(rows),
    }
    if spec.selector is not None:
        # The folder of its weights: its name may come to mean a later run.
        root = session.run.root
        _, _, weights = run_checkpoint(spec.selector.removeprefix(RUN), root)
        made_of["selector"] = weights.relative_to(root).as_posix()
    note_made_of(folder, made_of, "selections")
    return made_of


def make_lines(session: Session, spec: SelectionsSpec, rows: Sequence[Row], journal: Path) -> int:
    """Journal the selections of the queries that are not there; returns how many."""
    stored = stored_lines(journal)
    waiting = [n for n, row in enumerate(rows) if row.id not in stored]
    if not waiting:
        return 0
    find = finder(session, spec)
    session.observer.note(f"making selections for {len(waiting)} of {len(rows)} queries")
    what = f"selections of {journal.parent.name}"
    for done, n in enumerate(waiting):
        session.observer.work(what, done, len(waiting))
        entry = query_entry(rows[n], number_of(rows, n), find(rows[n]))
        line = {"id": rows[n].id, "entry": entry}
        append_line(journal, json.dumps(line, ensure_ascii=False, allow_nan=False))
    session.observer.work(what, len(waiting), len(waiting))
    return len(waiting)


def finder(session: Session, spec: SelectionsSpec) -> Callable[[Row], list[Candidate]]:
    """What finds the selections of one query. One query at a time: sums that a batch may round
    otherwise are then the same after a kill."""
    frozen = session.helpers[FROZEN]
    if spec.selector is None:
        return lambda row: beam_candidates(frozen, row, spec.width)
    selector = trained_selector(spec.selector, session.run.root, Silent(), session.seed)

    def mixed(row: Row) -> list[Candidate]:
        proposals = proposals_of(selector, row, spec)
        picks = [each.picks for each in proposals]
        return judged(frozen, row, proposals, selector.logps(selector.choice(row), picks))

    return mixed


def number_of(rows: Sequence[Row], place: int) -> int:
    """The key of a query: the number of the demonstration that it is; behind those, its place."""
    numbers = set_of(rows[place]).numbers
    return numbers.get(rows[place].id, len(numbers) + place)


def stored_lines(journal: Path) -> Mapping[str, Mapping[str, Any]]:
    """The entries of a journal by the id of their row; the rest of a line that a kill cut short is
    none."""
    lines = map(json.loads, journal.read_bytes().split(b"\n")[:-1])
    return {line["id"]: line["entry"] for line in lines}


def missing(session: Session) -> list[str]:
    """The tables that data sets take selections from and that are not made, in their order."""
    experiment = session.experiment
    taken = {selections_of(data.source) for data in experiment.data.values()}
    return [
        name
        for name, spec in experiment.selections.items()
        if name in taken
        and spec.kind is not None
        and not stored_file(experiment, name, session.run.root).exists()
    ]


def generate_missing(session: Session) -> None:
    """Make what a run reads and nobody made. Raises as `generate` does."""
    for name in missing(session):
        session.observer.note(f"the selections {name!r} are not made yet")
        generate(session, name)


@dataclass(frozen=True)
class TrainedSelector:
    """A selector that can be asked."""

    policy: SelectorPolicy
    encoder: Encoder
    task: Task

    def choice(self, row: Row) -> SelectionContext:
        """What it reads of a query."""
        return choice_of(self.encoder.prompt(row, question(self.task, row)))

    def logps(self, choice: SelectionContext, selections: Sequence[Picks]) -> list[float]:
        """The log-probability of each selection, which may have fewer picks than `shots`."""
        if not choice.shots:
            return [0.0] * len(selections)
        turns = [Turn(choice, picks, (True,) * len(picks)) for picks in selections]
        packed = pack([Episode(str(n), choice.query, (turn,)) for n, turn in enumerate(turns)])
        with torch.no_grad():
            logps_S = self.policy.score(packed).logps_S
        bounds = packed.offsets_N1.tolist()
        return [float(logps_S[a:b].sum()) for a, b in pairwise(bounds)]


def trained_selector(source: str, root: Path, observer: Observer, seed: int) -> TrainedSelector:
    """The selector of `run:NAME@CHECKPOINT`. Raises InputError, RunNotFound, DamagedFile."""
    run, reference, _ = run_checkpoint(source.removeprefix(RUN), root)
    session = Session(experiment_of(run), run, seed, observer)
    policy = session.learner.sampler(run, reference)
    if not isinstance(policy, SelectorPolicy):
        problem = f"{source} is a {session.learner.name}, which picks no demonstrations"
        raise InputError(problem, field="selector", fix="name a checkpoint of a selector")
    return TrainedSelector(policy, session.learner.encoder(RenderingSettings()), session.task)


def proposals_of(selector: TrainedSelector, row: Row, spec: SelectionsSpec) -> list[Candidate]:
    """The selections of a query that a `mixed` table asks for, each set once."""
    choice = selector.choice(row)
    # A selector picks from the query outwards; the search puts each new pick next to the query.
    beams = beam_search(
        row.extra[POOL],
        row.extra[SHOTS],
        spec.width,
        lambda states: selector.logps(choice, [picks[::-1] for picks in states]),
    )
    return distinct(
        [
            *(replace(beam, picks=beam.picks[::-1]) for beam in beams),
            *retrieved(row, similarities(choice), spec.similar),
            *sampled(selector, choice, spec),
            *drawn(row, spec.random, spec.seed),
        ]
    )


def sampled(
    selector: TrainedSelector, choice: SelectionContext, spec: SelectionsSpec
) -> list[Candidate]:
    """What the selector draws, `samples` at each temperature."""
    candidates = []
    for place, temperature in enumerate(spec.temperatures):
        numbers = range(place * spec.samples, (place + 1) * spec.samples)
        keys = [SampleKey(spec.seed, choice.query, number) for number in numbers]
        turns = selector.policy.sample([choice] * len(keys), keys, Sampling(temperature))
        candidates += [Candidate(turn.actions, "sample", temperature=temperature) for turn in turns]
    return candidates


def similarities(choice: SelectionContext) -> dict[int, float]:
    """The cosine of the query and each demonstration of its pool, by the selector's features."""
    pool_KD = choice.features.demonstrations_ND[torch.tensor(choice.pool, dtype=torch.long)]
    cosines_K = (pool_KD @ choice.query_D).double()
    return dict(zip(choice.pool, cosines_K.tolist(), strict=True))


def not_made(session: Session) -> Seen:
    """The selections that a run would make first, and what the frozen model is asked for them."""
    for name in missing(session):
        spec, place = session.experiment.selections[name], f"selections.{name}"
        rows = queries(session, spec)
        scores = answers = 0
        for row in rows:
            if spec.kind == "beam":
                scores += searched(len(row.extra[POOL]), row.extra[SHOTS], spec.width)
                answers += spec.width
            else:
                samples = spec.samples * len(spec.temperatures)
                answers += spec.width + samples + spec.similar + spec.random
        yield Number(place, "queries to make selections for", len(rows))
        yield Number(place, "probabilities to ask the frozen model for", scores + answers)
        yield Number(place, "answers to ask the frozen model for", answers)
        yield Finding(
            "warning",
            f"{place}: its selections are not made yet, so nothing else was checked",
            f"the frozen model is asked for about {scores + answers} probabilities and {answers} "
            f"answers to {len(rows)} queries",
            f"assay synthesise FILE {name} makes them; else a run makes them first",
        )
