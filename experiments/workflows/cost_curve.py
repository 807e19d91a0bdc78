"""Solved against cost: fixed workflows, routers among them, and trained policies at any price.

    python experiments/workflows/cost_curve.py LAB --train RUN... --test RUN... --policies RUN...

A price says how many right answers a unit of the executor's currency is worth; net is solved minus
price x cost. What is chosen among the workflows (the best one, the best few by topic, the best by
topic, the best by topic and level) is chosen on the training problems at that price, and shown on
the test's. The runs are those of the fixed workflows on both, by their names; nothing is
run here.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.data.formats.problem_rows import LEVEL, PROBLEM_TYPE, TOPIC
from assay.errors import InputError
from assay.runs.history import evaluation_records
from assay.runs.records import FACTS, read_columns
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import find_run, parse_run_name

PRICES = (0.0, 8000.0, 16000.0, 24000.0, 32000.0)
FEW = (2, 3)
"""So many workflows at most, one for each topic."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What a workflow or a policy did on I problems."""

    kinds: tuple[str, ...]
    """TOPIC/LEVEL of each problem."""
    solved_I: np.ndarray
    """Scores, without the price."""
    cost_I: np.ndarray
    """In the executor's currency."""

    def net_I(self, price: float) -> np.ndarray:
        """What each answer is worth at a price."""
        return self.solved_I - price * self.cost_I


@dataclass(frozen=True, slots=True)
class Point:
    """One line of the table."""

    price: float
    name: str
    solved: float
    cost: float
    net: float
    table: Mapping[str, str]
    """The workflow of each kind of problem; empty for a policy."""


def everything(kind: str) -> str:
    """All kinds are one."""
    return "*"


def topic_of(kind: str) -> str:
    """What TOPIC/LEVEL says but for the level."""
    return kind.partition("/")[0]


def best_table(
    train: Mapping[str, Measured], price: float, of: Callable[[str], str], most: int | None = None
) -> dict[str, str]:
    """The best workflow of each group of kinds, of at most `most` workflows in all."""
    kinds = next(iter(train.values())).kinds
    groups = np.array([of(kind) for kind in kinds])
    worth = {
        name: {group: each.net_I(price)[groups == group].sum() for group in dict.fromkeys(groups)}
        for name, each in train.items()
    }
    count = len(train) if most is None else min(most, len(train))

    def chosen(names: Sequence[str]) -> dict[str, str]:
        return {
            str(group): max(names, key=lambda name: worth[name][group])
            for group in dict.fromkeys(groups)
        }

    tables = map(chosen, itertools.combinations(train, count))
    return max(tables, key=lambda table: sum(worth[name][g] for g, name in table.items()))


def point(
    name: str,
    test: Mapping[str, Measured],
    price: float,
    of: Callable[[str], str],
    table: Mapping[str, str],
) -> Point:
    """What a table of workflows reaches on the test's problems."""
    kinds = next(iter(test.values())).kinds
    picked = [test[table[of(kind)]] for kind in kinds]
    solved = float(np.mean([each.solved_I[n] for n, each in enumerate(picked)]))
    cost = float(np.mean([each.cost_I[n] for n, each in enumerate(picked)]))
    return Point(price, name, solved, cost, solved - price * cost, table)


def curve(
    train: Mapping[str, Measured],
    test: Mapping[str, Measured],
    policies: Mapping[str, Measured],
    prices: Sequence[float] = PRICES,
) -> list[Point]:
    """All choices and policies at every price."""
    found = []
    choices: dict[str, tuple[Callable[[str], str], int | None]] = {
        "best fixed": (everything, None),
        **{f"best {few} by topic": (topic_of, few) for few in FEW},
        "router by topic": (topic_of, None),
        "router by topic and level": (str, None),
    }
    for price in prices:
        for name, (of, most) in choices.items():
            table = best_table(train, price, of, most)
            found.append(point(name, test, price, of, table))
        found += [
            point(name, {"": each}, price, everything, {"*": ""}) for name, each in policies.items()
        ]
    return found


def measured(run: RunDirectory) -> Measured:
    """What the last evaluation of a run recorded, of its last checkpoint. Raises InputError where
    an answer has no score or cost: what is not known cannot be compared."""
    record = evaluation_records(run)[-1]
    files = (run.evaluations / record.key).glob("*.parquet")
    file = max(files, key=lambda each: each.stat().st_mtime)
    columns = read_columns(file, ["item_id", "parts", FACTS])
    order = np.argsort(columns["item_id"])
    parts = [json.loads(text or "{}") for text in columns["parts"]]
    facts = [json.loads(text or "{}") for text in columns[FACTS]]
    for item, part, fact in zip(columns["item_id"], parts, facts, strict=True):
        if "correct" not in part or "cost" not in fact:
            fix = "give the executor a price and evaluate again"
            raise InputError(f"{item} has no score or no cost", file=str(file), fix=fix)
    return Measured(
        tuple(kind_of(facts[n]) for n in order),
        np.array([parts[n]["correct"] for n in order]),
        np.array([facts[n]["cost"] for n in order]),
    )


def kind_of(facts: Mapping[str, object]) -> str:
    """TOPIC/LEVEL, or the type where a problem has none."""
    topic = facts.get(TOPIC) or facts[PROBLEM_TYPE]
    return f"{topic}/{facts[LEVEL]:g}" if LEVEL in facts else str(topic)


def markdown(points: Sequence[Point]) -> str:
    """The table."""
    lines = [
        "| price | choice | solved | cost of 1000 | net | workflows |",
        "|---:|---|---:|---:|---:|---|",
    ]
    for each in points:
        table = ", ".join(f"{k}: {v}" if k != "*" else v for k, v in each.table.items() if v)
        lines.append(
            f"| {each.price:g} | {each.name} | {each.solved:.1%} | {1000 * each.cost:.4f} | "
            f"{100 * each.net:.1f} | {table} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="solved against cost", allow_abbrev=False)
    parser.add_argument("lab", type=Path)
    for name in ("train", "test", "policies"):
        parser.add_argument(f"--{name}", nargs="*", default=[], metavar="NAME=RUN")
    parser.add_argument("--prices", nargs="*", type=float, default=PRICES)
    given = parser.parse_args()
    train, test, policies = (
        {
            name: measured(find_run(given.lab, parse_run_name(run)))
            for name, _, run in (each.partition("=") for each in named)
        }
        for named in (given.train, given.test, given.policies)
    )
    print(markdown(curve(train, test, policies, given.prices)))


if __name__ == "__main__":
    main()
