"""What generated tasks are made of: seeded choices that never cross from training to held-out.

Every pool of names is split between the sides, numbers are even on one side and odd on the other,
and so are the wordings of a sentence that names neither. Two sides thus share no question and no
call with a drawn value in it, whatever the seed.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from assay.data.row import ToolCall

Side = Literal["train", "held_out"]
Item = TypeVar("Item")

PEOPLE = (
    *("Imre", "Odalys", "Tamsin", "Bertil", "Noor", "Cosima", "Eskil", "Palmira", "Radek", "Yuna"),
    *("Anselm", "Delphine", "Hakon", "Ilaria", "Jorun", "Kestrel", "Lazar", "Mirela", "Nestor"),
    *("Ottilie", "Perpetua", "Quillon", "Rosalba", "Sunniva", "Tiberiu", "Urszula", "Vesna"),
    *("Wendelin", "Xanthe", "Zoltan", "Agathe", "Birger"),
)
TOPICS = (
    *(
        "orchard",
        "lantern",
        "harbour",
        "pottery",
        "beehive",
        "glacier",
        "violin",
        "canal",
        "quarry",
    ),
    *("meadow", "foundry", "windmill", "aquarium", "bakery", "chapel", "dune", "estuary"),
    *("ferry", "granary", "hedgerow", "inkwell", "jetty", "kiln", "loom", "marsh", "nursery"),
    *(
        "observatory",
        "pier",
        "quilt",
        "reservoir",
        "sawmill",
        "tannery",
        "vineyard",
        "watermill",
        "apiary",
    ),
    *("bindery", "cooperage", "dovecote", "furnace", "greenhouse"),
)
THINGS = (
    *("pump", "roof", "ledger", "engine", "gate", "antenna", "boiler", "curtain", "drill"),
    *(
        "easel",
        "fence",
        "gearbox",
        "hinge",
        "insulation",
        "jack",
        "keyboard",
        "ladder",
        "mirror",
        "nozzle",
    ),
    *(
        "oven",
        "printer",
        "quencher",
        "radiator",
        "scanner",
        "turbine",
        "valve",
        "winch",
        "telescope",
    ),
    *("awning", "bellows", "conveyor", "dynamo"),
)


@dataclass
class Draw:
    """A stream of choices for one task."""

    random: random.Random
    side: Side
    taken: dict[int, set[Any]] = field(default_factory=dict)

    def of_side(self, pool: Sequence[Item]) -> Sequence[Item]:
        """The part of a pool that belongs to this side."""
        return pool[0::2] if self.side == "train" else pool[1::2]

    def pick(self, pool: Sequence[Item]) -> Item:
        """One of the side's part, not the same twice in a task as long as there are others."""
        own = self.of_side(pool)
        used = self.taken.setdefault(id(pool), set())
        fresh = [item for item in own if item not in used] or list(own)
        chosen = self.random.choice(fresh)
        used.add(chosen)
        return chosen

    def any_of(self, pool: Sequence[Item]) -> Item:
        """One of the whole pool: for what is common to both sides."""
        return self.random.choice(list(pool))

    def number(self, low: int, high: int) -> int:
        """Even in training, odd in held-out tasks."""
        return self.random.randrange(low, high) // 2 * 2 + (self.side == "held_out")

    def amount(self, low: int, high: int) -> float:
        """A number with a fraction, which reads the same however it is written."""
        return self.number(low, high) + self.random.choice((0.25, 0.5, 0.75))

    def say(self, *wordings: str) -> str:
        """One wording of a sentence that holds drawn values."""
        return self.random.choice(wordings)

    def say_bare(self, *wordings: str) -> str:
        """One of the side's wordings of a sentence that holds none."""
        return self.random.choice(list(self.of_side(wordings)))


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn: what the user says, the calls that do it, and a short answer."""

    text: str
    calls: tuple[ToolCall, ...]
    reply: str
    """`{0}` stands for the first value in the last call's result."""


def ask(text: str, reply: str, *calls: tuple[str, Mapping[str, Any]]) -> Ask:
    """A turn from names and arguments of its calls."""
    return Ask(text, tuple(ToolCall(name, dict(arguments)) for name, arguments in calls), reply)


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulator's state at the start, and what can be asked of it, in this order."""

    simulator: str
    config: Mapping[str, Any]
    asks: tuple[Ask, ...]


MakeScene = Callable[[Draw, int], Scene]
"""From choices and a number of turns."""


def in_order(draw: Draw, count: int, makers: Sequence[Callable[[], Ask]]) -> tuple[Ask, ...]:
    """The turns of `count` different makers, each made when the ones before it have been."""
    chosen = draw.random.sample(range(len(makers)), min(count, len(makers)))
    return tuple(makers[index]() for index in sorted(chosen))
