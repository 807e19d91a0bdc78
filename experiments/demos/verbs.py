"""Makes questions that only a demonstration explains: verbs in the form that a desk wants.

A question names somebody, a verb and a desk; the answer is a pronoun and the form that this desk
wants, such as "they will walk" for "The girls: walk. Desk: Amber". Each form is wanted by several
desks. Demonstrations are other desks' and other verbs', so none has the answer of a query, and none
has its desk: which desks want the same must be learned. Nothing is drawn.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from assay.data.files import sha256_text
from assay.data.loaded import Loaded
from assay.data.row import Message
from assay.errors import InputError, look_up
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import POOL_OPTIONS, with_pools
from assay.labs.demos.rewards import accuracy
from assay.labs.demos.task import DemosTask
from assay.tasks.task import Benchmark, BenchmarkOptions

FORMS: Mapping[str, Callable[[str, str], str]] = {
    "past": lambda verb, past: past,
    "future": lambda verb, past: f"will {verb}",
    "chance": lambda verb, past: f"may {verb}",
}
"""The forms of a verb and its past."""
DESKS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "past": (("Oak", "Cotton", "Falcon"), ("Copper", "Violin", "Harbour")),
    "future": (("Amber", "Tulip", "Badger"), ("Zinc", "Canyon", "Trumpet")),
    "chance": (("Maple", "Velvet", "Heron"), ("Silver", "Meadow", "Cello")),
}
"""The desks that want a form: those of queries, and those of demonstrations."""
PEOPLE: Mapping[str, tuple[str, ...]] = {
    "he": ("Tom", "Peter", "My brother", "The king"),
    "she": ("Anna", "Mary", "My sister", "The queen"),
    "they": ("The girls", "The boys", "My parents", "Two friends"),
}
"""Pronoun -> whom it stands for."""
VERBS: Mapping[str, tuple[str, ...]] = {
    side: tuple(words.split())
    for side, words in {
        "shown": """walk jump play clean wait watch talk bake love stop:stopped
            plan:planned study try enjoy sing:sang ring:rang write:wrote drive:drove speak:spoke
            take:took give:gave fall:fell know:knew throw:threw draw:drew see:saw find:found
            buy:bought think:thought sleep:slept meet:met lose:lost send:sent sell:sold hold:held
            win:won hunt invite shine:shone swing:swung bite:bit""",
        "train": """help wash ask answer start finish push pull kick climb count dance hope smile
            move use drop:dropped shop:shopped carry cry hurry marry stay pray drink:drank
            swim:swam begin:began ride:rode rise:rose break:broke choose:chose shake:shook eat:ate
            grow:grew fly:flew go:went come:came bring:brought catch:caught keep:kept feel:felt
            leave:left build:built spend:spent tell:told stand:stood lead:led fight:fought
            hide:hid wear:wore sweep:swept bend:bent travel:travelled follow arrive listen
            laugh whisper return borrow order gather decide explain remember wonder search
            knock act add agree allow appear argue attack avoid beg:begged behave
            believe boast bounce bow breathe burn camp cheat chew clap:clapped collect
            compete consider contribute criticise decline depart describe destroy develop drift
            earn employ entertain examine exercise gasp glance glide grab:grabbed grin:grinned groan
            grumble handle hop:hopped howl imagine inspect judge kiss knit:knitted lock mend mix
            mumble notice object offer pedal:pedalled perform plead post pour prefer:preferred
            prepare press print""",
        "dev": """complain confess cough cycle deliver disagree dream dress escape explode fail
            fish float forgive:forgave freeze:froze gamble guess hesitate hum:hummed
            improve jog:jogged
            joke intervene interrupt insist include hang:hung peel peer
            relax rehearse resign respond retire roar rub:rubbed scratch scowl sign""",
        "test": """juggle kneel:knelt land lie:lied lift limp march moan nod:nodded obey pack
            pause phone point practise promise protest punch queue race read:read rest row
            run:ran sail salute say:said scream shiver shout sit:sat slip:slipped
            sneeze snore stumble swear:swore teach:taught tremble turn vanish vote wander wave
            weep:wept wink work worry yawn yell vow unpack
            trip:tripped tease weigh wrestle whistle wipe twist trade surrender
            suffer steer stretch strike:struck shut:shut scold sketch""",
    }.items()
}
"""The verbs of each side, with the past where it is not the usual one."""
SIDES: Mapping[str, int] = {"train": 0, "dev": 1, "test": 2}
"""Sides of queries."""
USUAL = """\
The boy: open. Desk: News
he opened

Two men: visit. Desk: News
they visited

My aunt: call. Desk: News
she called

My friends: cook. Desk: News
they cooked

The girl: look. Desk: News
she looked

My uncle: paint. Desk: News
he painted"""
"""What stands before every question: the usual form, which the frozen model says without more."""
INSTRUCTION = f"""\
Say it with he, she or they, and with the verb in the past or in the form that the desk wants.

{USUAL}"""
OPTIONS: Mapping[str, Any] = {**POOL_OPTIONS, "pool": 8, "shots": 2}
"""How a query's pool is chosen, and how many demonstrations are picked of it."""


def read_verbs(side: str, options: BenchmarkOptions) -> Loaded:
    """The queries of one of SIDES, each with its own pool.

    The option `each` asks so many questions of each verb and form, about others and to other
    desks. Raises InputError for another side or option, InputError for a number below 1.
    """
    look_up(SIDES, side, "side of verbs")
    chosen = dict(options.over({**OPTIONS, "each": 1}))
    each = chosen.pop("each")
    if not isinstance(each, int) or each < 1:
        raise InputError(
            f"{each!r} questions of each verb and form", field="options.each", fix="1 or more"
        )
    return Loaded(with_pools(demonstrations(), verb_queries(side, each), chosen))


@cache
def demonstrations() -> DemonstrationSet:
    """Every verb of "shown" in every form."""
    made = [Demonstration(q.id, q.question, q.answers[0]) for q in _questions("shown", 1, 1)]
    return DemonstrationSet("verbs", INSTRUCTION, tuple(made))


@cache
def verb_queries(side: str, each: int = 1) -> tuple[Query, ...]:
    """Every verb of a side in every form, so often as `each` says; none is asked twice."""
    asked: dict[str, Query] = {}
    for query in _questions(side, 0, each):
        asked.setdefault(query.question.content, query)
    return tuple(asked.values())


def past_of(entry: str) -> tuple[str, str]:
    """A verb of VERBS and its past: as it is written there, else by the rules of spelling."""
    verb, _, written = entry.partition(":")
    if written:
        return verb, written
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb, f"{verb[:-1]}ied"
    return verb, f"{verb}d" if verb.endswith("e") else f"{verb}ed"


def _questions(side: str, place: int, each: int) -> Iterator[Query]:
    """Every verb of a side in every form; who, and which of the desks, is by a hash."""
    for number, (verb, past) in product(range(each), map(past_of, VERBS[side])):
        again = f" {number}" if number else ""
        for form, conjugate in FORMS.items():
            chance = int(sha256_text(f"{verb} {form}{again}")[:8], 16)
            chance, pronoun = _pick(chance, [*PEOPLE])
            chance, person = _pick(chance, PEOPLE[pronoun])
            _, desk = _pick(chance, DESKS[form][place])
            asked = Message("user", f"{person}: {verb}. Desk: {desk}")
            answer = f"{pronoun} {conjugate(verb, past)}"
            name = f"verbs-{verb}-{form}{again.replace(' ', '-')}"
            yield Query(name, asked, (answer,), conversation=f"verbs-{verb}")


def _pick(chance: int, options: Sequence[str]) -> tuple[int, str]:
    """One of the options by a number, and what is left of it."""
    left, place = divmod(chance, len(options))
    return left, options[place]


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """The test queries: the frozen model's accuracy after the selection."""
    chosen = options.over(OPTIONS)
    items = with_pools(demonstrations(), verb_queries("test"), chosen)
    return Benchmark("demos/verbs", items, accuracy, "exact 1", options=chosen)


class Verbs(DemosTask):
    """Verbs as queries: `task = "path:experiments/demos/verbs.py"`."""

    name = "demos-verbs"
    sources = {"verbs": read_verbs}  # noqa: RUF012
    benchmarks = {"demos/verbs": benchmark}  # noqa: RUF012


TASK = Verbs()
