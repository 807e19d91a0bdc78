# ruff: noqa: E402
"""The package reasoning-gym in processes of its own: its generators, and its scorers in a worker.

Four scorers evaluate what a model wrote as Python, and five read it with sympy's parser, which does
too; a value that they gave could be the model's own. The first read literals here, and the others
are given formulas alone. Some generators draw from sets of texts, so that they give the same items
with one seed of Python's hashes only.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, fields
from typing import Any
from unittest.mock import MagicMock

# cellpylib draws with it, which nothing here does; it would write files, which no worker may.
for part in ("", ".pyplot", ".animation", ".collections"):
    sys.modules["matplotlib" + part] = MagicMock()
sys.modules |= {"mpl_toolkits": MagicMock(), "mpl_toolkits.mplot3d": MagicMock()}

import reasoning_gym
from reasoning_gym import algorithmic, games
from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
from reasoning_gym.factory import CURRICULA, DATASETS
from reasoning_gym.utils import SYSTEM_PROMPTS

from assay.errors import InputError, look_up, nearest, within

for module in (
    algorithmic.binary_matrix,
    algorithmic.spiral_matrix,
    algorithmic.string_insertion,
    games.n_queens,
):
    module.eval = ast.literal_eval

PARSED = (
    *("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24"),
    "simple_integration",
)
"""Tasks whose scorers read answers with sympy's parser."""
WORDS = "sin|cos|tan|sinh|cosh|asin|acos|atan|exp|log|ln|sqrt|pi"
FORMULA = re.compile(
    rf"(?:[0-9\s+*/^(),=-]|\.(?![A-Za-z_])|(?<![A-Za-z])(?:{WORDS}|[A-Za-z])(?![A-Za-z]))*"
)
"""Numbers, single letters, functions of calculus, and what joins them."""
OWN = ("seed", "size")
"""Fields of a generator's settings that `rows` and `seed` of a table stand for."""
OPTIONS: Mapping[str, Any] = {"rows": 500, "seed": 0, "level": None, "system": ""}
"""Keys of a table's `options` beside the generator's own, with defaults."""
APART = 1_000_000
"""Numbers of a generator for each `seed`: an item's is the seed's first and its place."""
MOST_SEED = 4000
"""numpy, with which some items are drawn, takes numbers of 32 bits."""
MOST_TRIES = 20
"""Items that are made for each row before there are too few different questions."""
Json = dict[str, Any]


def options_of(name: str) -> Json:
    """The options of a generator with their defaults."""
    made = DATASETS[name][1]()
    return {f.name: getattr(made, f.name) for f in fields(made) if f.name not in OWN}


def levels_of(name: str) -> int:
    """How many levels of difficulty a generator has."""
    attributes = CURRICULA[name]().attributes.values() if name in CURRICULA else ()
    return max((len(each.levels) for each in attributes), default=0)


def generator(name: str, level: int | None, options: Json, seed: int, size: int) -> Any:
    """The items of a generator at a level, from 0, or at its defaults; `options` come on top.

    Raises what the package raises.
    """
    settings: Json = {}
    if level is not None:
        curriculum = CURRICULA[name]()
        curriculum.set_global_level(level)
        # Each level alone: as the package has it, a level holds all that are easier.
        context = DefaultCurriculumContext(RangeAttributeMode.UPPER_BOUND)
        settings = asdict(curriculum.generate_configuration(context=context))
    return reasoning_gym.create_dataset(name, **{**settings, **options, "seed": seed, "size": size})


def score(name: str, level: int | None, options: Json, item: Json, answer: str) -> float:
    """What the generator's own scorer gives an answer to an item."""
    if name in PARSED and not FORMULA.fullmatch(answer):
        answer = ""
    return float(generator(name, level, options, 0, 1).score_answer(answer, item))


def checked(names: str, options: Json) -> tuple[list[tuple[str, int | None]], Json, Json]:
    """The generators that a source names, each at its levels, their own options, and those of
    `OPTIONS`. Raises InputError for what a generator does not have."""
    chosen, own = {**OPTIONS, **options}, {k: v for k, v in options.items() if k not in OPTIONS}
    for key, least, most in (("rows", 1, APART // MOST_TRIES), ("seed", 0, MOST_SEED)):
        if type(chosen[key]) is not int or not least <= chosen[key] <= most:
            problem = f"must be a number from {least} to {most:,}, not {chosen[key]!r}"
            raise InputError(problem, field=f"options.{key}")
    if chosen["system"]:
        with within("options.system"):
            chosen["system"] = look_up(SYSTEM_PROMPTS, str(chosen["system"]), "prompt")
    levels = chosen["level"] if isinstance(chosen["level"], list) else [chosen["level"]]
    for name in (kinds := names.split("+")):
        look_up(DATASETS, name, "task of reasoning_gym")
        known, count = options_of(name), levels_of(name)
        for key in own.keys() - known.keys():
            fix = nearest(key, {**OPTIONS, **known})
            raise InputError(f"{name} has no option {key!r}", field=f"options.{key}", fix=fix)
        for level in levels:
            if level is not None and (type(level) is not int or not 0 <= level < count):
                problem = f"{name} has the levels 0 to {count - 1}" if count else f"{name} has none"
                raise InputError(f"{problem}, not {level!r}", field="options.level")
            refuse_unfit(name, level, own)
    return [(name, level) for name in kinds for level in levels], own, chosen


def refuse_unfit(name: str, level: int | None, own: Json) -> None:
    """Raise InputError for settings that a generator refuses, and for one whose items have no gold
    answer, or are not what they were once they are stored."""
    try:
        made = generator(name, level, own, 0, 1)
        item = made[0]
        stored = json.loads(json.dumps(item))
        sound = made.score_answer(item["answer"], stored) >= 1
    except Exception as error:  # each has its own way to refuse its settings
        problem = f"{name} refuses them: {type(error).__name__}: {error}"
        raise InputError(" ".join(problem.split()), field="options") from error
    if not sound:
        problem = f"{name} has no gold answers that earn its full score"
        raise InputError(problem, fix="take another: assay explain reasoning_gym")


def read(names: str, options: Json) -> Iterator[Json]:
    """Every item of a source, with `id` and whether it is left out. Raises InputError."""
    parts, own, chosen = checked(names, options)
    seen = set[str]()
    for place, (kind, level) in enumerate(parts):
        count = (chosen["rows"] + place) // len(parts)
        for item in different(kind, level, own, chosen["seed"] * APART, count, seen):
            at = "" if level is None else f"-{level}"
            place_of = {"id": f"{kind}{at}-{item['place']}", "world": kind, "level": level}
            yield {**item, **place_of, "options": own, "system": chosen["system"]}


def different(
    kind: str, level: int | None, own: Json, first: int, count: int, seen: set[str]
) -> Iterator[Json]:
    """The items of a generator until so many ask what none before asks. Raises InputError where it
    has too few."""
    made = 0
    for begin in range(first, first + MOST_TRIES * count, count):
        items = generator(kind, level, own, begin, count)
        for place in range(count):
            item = items[place]
            again = item["question"] in seen
            seen.add(item["question"])
            yield {"place": begin + place, "again": again, "item": item}
            if (made := made + (not again)) == count:
                return
    problem = f"{kind} has {made} different questions with these options, not {count}"
    raise InputError(problem, field="options.rows", fix="ask for fewer, or make them harder")


def explained(name: str) -> Iterator[str]:
    """All generators with a question each, or the one that is named with its options. Raises
    InputError."""
    if name:
        checked(name, {})
    for kind in [name] if name else sorted(DATASETS.keys() - {"composite"}):
        item, levels = generator(kind, None, {}, 0, 8)[0], levels_of(kind)
        yield f"{kind}: " + (f"levels 0 to {levels - 1}" if levels else "no levels")
        question = item["question"] if name else " ".join(item["question"].split())[:100]
        yield f"  {question}"
        if name:
            yield f"  -> {item['answer']}"
            yield from (f"  {key} = {value!r}" for key, value in options_of(kind).items())


def main(call: str, arguments: list[Any]) -> None:
    """Print what a call gives as JSON: `given`, or what is `refused`."""
    try:
        with redirect_stdout(sys.stderr):  # some generators print
            told = {"given": [*{"read": read, "explained": explained}[call](*arguments)]}
    except InputError as wrong:
        told = {"refused": {key: getattr(wrong, key) for key in ("problem", "field", "fix")}}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
