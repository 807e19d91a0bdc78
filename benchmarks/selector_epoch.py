"""How long an epoch of RCE takes on 800 queries, each with five stored selections of two out of 64.

    python -m benchmarks.selector_epoch

Features, pools and rewards are random, and nothing that is learned here means anything. One thread.
The result lies in `benchmarks/results/selections`.
"""

import random
import time

import torch
import torch.nn.functional as F

from assay.data.episode import Episode, Reward, Turn
from assay.labs.demos.modules import FeatureTable, SelectionContext, SelectorSizes, make_selector
from assay.labs.demos.selector_learner import SelectorPolicy
from assay.rl.objectives import NllObjective
from assay.train.likelihood import weighted_batch
from assay.train.update import update
from benchmarks.results import machine, save_result
from benchmarks.worker import Record

QUERIES, POOL, BEAMS, SHOTS = 800, 64, 5, 2
SET, WIDTH = 2000, 384
TEMPERATURE, TAU, MICRO_TOKENS = 1.0, 1.0, 2048
CELLS = (("pointer", 1), ("pointer", 8), ("lever", 8))
"""Selectors, and queries in a step; the reports take one."""


def groups() -> list[list[Episode]]:
    """The stored selections of all queries."""
    table = FeatureTable("random", F.normalize(torch.randn(SET, WIDTH), dim=-1))
    return [group(n, table) for n in range(QUERIES)]


def group(number: int, table: FeatureTable) -> list[Episode]:
    """The stored selections of one query."""
    name, pool = f"query-{number}", tuple(random.sample(range(SET), POOL))
    query_D = F.normalize(torch.randn(WIDTH), dim=-1)
    choice = SelectionContext(name, name, pool, SHOTS, table, query_D)
    return [
        Episode(
            f"{name}#{n}",
            name,
            (Turn(choice, tuple(random.sample(pool, SHOTS)), (True,) * SHOTS),),
            Reward(random.random()),
        )
        for n in range(BEAMS)
    ]


def epoch(kind: str, together: int, stored: list[list[Episode]]) -> Record:
    """CPU-seconds and wall-seconds of one epoch."""
    sizes = SelectorSizes(WIDTH, 256, 0.5, 0.1, False, SET)
    policy = SelectorPolicy(make_selector(kind, sizes, 0), dropout=True)
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=1e-4)
    cpu, wall = time.process_time(), time.perf_counter()
    for start in range(0, QUERIES, together):
        batch = [episode for one in stored[start : start + together] for episode in one]
        packed = weighted_batch(batch, TEMPERATURE, TAU)
        update(policy, packed, NllObjective(), optimizer, micro_tokens=MICRO_TOKENS, clip_norm=1.0)
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return {"kind": kind, "queries_in_a_step": together, **taken}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    before, made = machine(), groups()
    cells = []
    for kind, together in CELLS:
        cells.append(epoch(kind, together, made))
        print(cells[-1], flush=True)
    print(save_result("selections", "epoch", {"machine": before, "cells": cells}))
