"""Generated questions that ask for one call: arguments to copy, to convert and to leave out.

`source = "generated_calls:COUNT"` gives the first COUNT questions of a stream that is the same
every time; `"generated_calls_held_out:COUNT"` those of another, about other functions. A question
names one function's task in its own description, each required argument and about half of the
optional ones, in an order and in words of its own: numbers with separators or as words,
percentages where the function takes a fraction, dates in another format than the function asks
for, yes and no for flags, lists as lists of words. What is not named may be left out or given as
its default.

Function docs are those of BFCL's categories of single answers, without any function of
`simple_python`, which is the usual test; values and sentences are made here. Answers are right by
BFCL's own checker, as those of its entries. Questions that take several turns are in `simulated`.
"""

import datetime
import functools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.data.row import Message, Row, ToolCall
from assay.errors import InputError
from assay.tasks.task import Loaded
from assay.tasks.tools.checker import ast_check
from assay.tasks.tools.multi_turn import HINT
from assay.tasks.tools.simulated_draw import PEOPLE, THINGS, TOPICS, Side
from assay.tasks.tools.single_turn import CATEGORIES, entries

CATEGORY = "generated"
TEST = "simple_python"
SEED = 20262
MOST = 20_000
HELD_OUT = 5
"""Every so-many-th function is held out."""
PARAMETERS = 5
CHARACTERS = 1000
"""Functions with more of them are left out: their prompts cost more than they teach."""

CITIES = ("Lisbon", "Oslo", "Quito", "Nairobi", "Hanoi", "Perth", "Tartu", "Leeds", "Cusco", "Pune")
COUNTRIES = ("Portugal", "Norway", "Ecuador", "Kenya", "Vietnam", "Estonia", "Peru", "Ghana")
STATES = ("TX", "CA", "NY", "OR", "WA", "OH", "FL", "CO")
SURNAMES = ("Abara", "Brandt", "Castel", "Dunne", "Ekholm", "Farkas", "Girard", "Haddad", "Ito")
FIRST_NAMES = (
    "Maria",
    "John",
    "Ahmed",
    "Laura",
    "Peter",
    "Chen",
    "Sofia",
    "David",
    "Amara",
    "Emma",
)
PHRASES = (
    *("machine learning", "jazz", "solar energy", "the French Revolution", "vegetarian pizza"),
    *("blue jeans", "mountain bike", "Moby Dick", "Spanish", "science fiction", "basketball"),
    *("coffee beans", "climate change", "the Great Wall", "chicken soup", "red wine", "chess"),
    *("running shoes", "Beethoven", "ancient Rome", "apple juice", "gold", "wooden table"),
    *("summer holiday", "world history", "black tea", "quantum physics", "guitar", "rice"),
    *("oil painting", "electric car", "birthday party", "brown bear", "fresh bread", "opera"),
    *("tennis", "lung cancer", "poetry", "green salad", "winter coat", "Mona Lisa", "football"),
)
COLOURS = ("red", "amber", "green", "blue", "grey", "white", "black", "violet")
NUMBER_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FRACTIONS = frozenset({"rate", "interest", "ratio", "probability", "share"})


class BadCount(InputError):
    """A source that does not say how many questions."""


@dataclass(frozen=True, slots=True)
class Value:
    """An argument, and the words in which a question names it."""

    value: Any
    words: str


def read_generated_calls(count: str) -> Loaded:
    """The rows of `generated_calls:COUNT`. Raises BadCount."""
    return generated(count, "train")


def read_held_out_calls(count: str) -> Loaded:
    """The rows of `generated_calls_held_out:COUNT`. Raises BadCount."""
    return generated(count, "held_out")


def generated(count: str, side: Side) -> Loaded:
    """The first questions of a side; those whose answer the checker refuses are dropped."""
    if not count.isdecimal() or len(count) > 5 or not 0 < int(count) <= MOST:
        fix = f'write "generated_calls:500"; at most {MOST}'
        raise BadCount(f"{count!r} is no number of questions", field="source", fix=fix)
    rows, dropped = [], {}
    for row in draw_rows(int(count), side):
        verdict = ast_check(row, row.messages[-1].tool_calls)
        if verdict.valid:
            rows.append(row)
        else:
            why = f"the answer does not pass the checker: {verdict.error_type}"
            dropped[why] = (*dropped.get(why, ()), row.id)
    return Loaded(tuple(rows), dropped)


def draw_rows(count: int, side: Side) -> Iterator[Row]:
    """Questions about different functions in turn, until all were asked about; then again."""
    docs = functions(side)
    for number in range(count):
        draw = random.Random(f"{SEED} {side} {number}")
        lap, place = divmod(number, len(docs))
        order = random.Random(f"{SEED} {side} lap {lap}").sample(range(len(docs)), len(docs))
        yield draw_row(draw, docs[order[place]], f"{CATEGORY}_{side}_{number}")


@functools.cache
def functions(side: Side) -> tuple[dict[str, Any], ...]:
    """The docs of a side: short, all required parameters drawable; not to be changed."""
    sources = (name for name in CATEGORIES if name != TEST)
    docs = {doc["name"]: doc for name in sources for row in entries(name) for doc in row.tools}
    tested = {doc["name"] for row in entries(TEST) for doc in row.tools}
    known = sorted(name for name in docs if name not in tested and _drawable(docs[name]))
    held_out = set(known[::HELD_OUT])
    return tuple(dict(docs[name]) for name in known if (name in held_out) == (side == "held_out"))


def _drawable(doc: Mapping[str, Any]) -> bool:
    parameters = doc["parameters"]["properties"]
    if not parameters or len(parameters) > PARAMETERS or len(str(doc)) > CHARACTERS:
        return False
    needed = doc["parameters"].get("required", [])
    return all(_kind(parameters[name]) in DRAWS for name in needed if name in parameters)


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a parameter; of a list that of its elements too, of a choice `enum`."""
    if "enum" in schema:
        return "enum" if schema["type"] == "string" else "unknown"
    if schema["type"] == "array":
        return f"array of {schema.get('items', {}).get('type')}"
    return schema["type"]


def draw_row(draw: random.Random, doc: dict[str, Any], name: str) -> Row:
    """One question about one function."""
    parameters, needed = doc["parameters"]["properties"], doc["parameters"].get("required", [])
    chosen, possible = {}, {}
    for key, schema in parameters.items():
        kind = _kind(schema)
        if key in needed or (kind in DRAWS and draw.random() < 0.5):
            chosen[key] = DRAWS[kind](draw, key, schema)
            possible[key] = [chosen[key].value]
        else:
            possible[key] = [schema["default"], ""] if "default" in schema else [""]
    call = ToolCall(doc["name"], {key: value.value for key, value in chosen.items()})
    return Row(
        id=name,
        messages=(
            Message("user", question(draw, doc, chosen)),
            Message("assistant", "", tool_calls=(call,)),
        ),
        tools=(doc,),
        gold=[{doc["name"]: possible}],
        conversation=doc["name"],
        extra={"category": CATEGORY},
    )


def question(draw: random.Random, doc: Mapping[str, Any], chosen: Mapping[str, Value]) -> str:
    """The function's description and the arguments, in one of several forms."""
    task = first_sentence(doc["description"])
    named = draw.sample(list(chosen.items()), len(chosen))
    clause = draw.choice(CLAUSES)
    details = "; ".join(clause(spoken(key), value.words) for key, value in named)
    if not details:
        return f"{task}."
    form = draw.choice(
        (
            "{task}: {details}.",
            "Please help me with this. {task}. {details}.",
            "I have the following: {details}. {task}.",
            "Can you do this for me? {task}, with {details}.",
        )
    )
    return form.format(task=task, details=details)


CLAUSES: tuple[Callable[[str, str], str], ...] = (
    lambda name, words: f"the {name} is {words}",
    lambda name, words: f"{name} {words}",
    lambda name, words: f"{words} as the {name}",
    lambda name, words: f"{name}: {words}",
)


def first_sentence(description: str) -> str:
    """The first sentence of a description, without its full stop and the language hint."""
    text = description.replace(HINT, "").strip()
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]


def spoken(name: str) -> str:
    """A parameter's name as words: `startDate` and `start_date` are "start date"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.]", " ", name).lower().strip()


def draw_enum(draw: random.Random, _: str, schema: Mapping[str, Any]) -> Value:
    """One of the choices, in its own words."""
    value = draw.choice(schema["enum"])
    return Value(value, str(value))


def draw_boolean(draw: random.Random, _: str, schema: Mapping[str, Any]) -> Value:
    """Yes or no; a flag that has a default is more often named where it differs from it."""
    default = str(schema.get("default", "")).lower() == "true"
    value = default if draw.random() < 0.25 else not default
    return Value(value, draw.choice(("yes", "true", "on") if value else ("no", "false", "off")))


def draw_integer(draw: random.Random, key: str, _: Mapping[str, Any]) -> Value:
    """Years by the name; large numbers with separators, small ones as words at times."""
    if "year" in key.lower() and "years" not in key.lower():
        value = draw.randint(1950, 2024)
        return Value(value, str(value))
    value = draw.choice((draw.randint(2, 12), draw.randint(2, 400), 50 * draw.randint(20, 400)))
    if value <= 10 and draw.random() < 0.4:
        return Value(value, NUMBER_WORDS[value - 2])
    return Value(value, f"{value:,}" if draw.random() < 0.5 else str(value))


def draw_float(draw: random.Random, key: str, schema: Mapping[str, Any]) -> Value:
    """Rates and shares are fractions said in percent, unless the function asks for percent."""
    about = schema.get("description", "").lower()
    if FRACTIONS & set(spoken(key).split()) and "percent" not in about:
        percent = draw.randint(1, 30)
        return Value(percent / 100, f"{percent}%")
    value = draw.choice((round(draw.uniform(0.1, 10), 1), round(draw.uniform(1, 500), 2)))
    return Value(value, f"{value:g}")


def draw_string(draw: random.Random, key: str, schema: Mapping[str, Any]) -> Value:
    """A text that fits the parameter's name; dates in the format that its description asks for."""
    name, about = spoken(key), schema.get("description", "")
    if "date" in name.split():
        return _date(draw, about)
    text = next((made(draw, about) for words, made in TEXTS if words & set(name.split())), None)
    if text is None:
        rare = draw.random() < 0.25
        text = f"{draw.choice(TOPICS)} {draw.choice(THINGS)}" if rare else draw.choice(PHRASES)
    return Value(text, f"'{text}'" if draw.random() < 0.2 else text)


def _date(draw: random.Random, about: str) -> Value:
    day = datetime.date(2023, 1, 1) + datetime.timedelta(days=draw.randrange(600))
    iso = f"{day:%Y-%m-%d}"
    written = f"{day:%B} {day.day}, {day.year}"
    if "YYYY-MM-DD" in about:
        return Value(iso, draw.choice((iso, written, written)))
    if "MM/DD/YYYY" in about:
        return Value(f"{day:%m/%d/%Y}", draw.choice((f"{day:%m/%d/%Y}", written)))
    return Value(iso, iso)


def _place(draw: random.Random, about: str) -> str:
    city = draw.choice(CITIES)
    return f"{city}, {draw.choice(STATES)}" if "State" in about or ", " in about[-12:] else city


def _person(draw: random.Random, _: str) -> str:
    first = draw.choice((*FIRST_NAMES, draw.choice(PEOPLE)))
    return f"{first} {draw.choice(SURNAMES)}"


TEXTS: tuple[tuple[frozenset[str], Callable[[random.Random, str], str]], ...] = (
    (frozenset({"city", "location", "place", "destination", "origin", "venue"}), _place),
    (frozenset({"country", "nation", "region"}), lambda draw, _: draw.choice(COUNTRIES)),
    (frozenset({"name", "author", "artist", "person", "player", "actor", "user"}), _person),
    (
        frozenset({"email", "mail"}),
        lambda draw, _: f"{draw.choice(PEOPLE)}@{draw.choice(TOPICS)}.example".lower(),
    ),
    (
        frozenset({"url", "link", "website", "endpoint"}),
        lambda draw, _: f"https://{draw.choice(TOPICS)}.example/{draw.choice(THINGS)}",
    ),
    (
        frozenset({"id", "code", "token", "key", "number"}),
        lambda draw, _: (
            f"{draw.choice('ABCDEFGH')}{draw.choice('KLMNPR')}{draw.randint(100, 9999)}"
        ),
    ),
    (
        frozenset({"time", "start", "end"}),
        lambda draw, _: f"{draw.randint(7, 21):02}:{draw.choice(('00', '15', '30', '45'))}",
    ),
    (frozenset({"color", "colour"}), lambda draw, _: draw.choice(COLOURS)),
)
"""Words in a parameter's name, and texts that fit it."""


def _list_of(one: Callable[..., Value]) -> Callable[..., Value]:
    def draw_list(draw: random.Random, key: str, schema: Mapping[str, Any]) -> Value:
        items = [one(draw, "", schema["items"]) for _ in range(draw.randint(2, 5))]
        words = [item.words.replace(",", "") for item in items]
        text = draw.choice((", ".join(words), f"{', '.join(words[:-1])} and {words[-1]}"))
        return Value([item.value for item in items], text)

    return draw_list


DRAWS: Mapping[str, Callable[[random.Random, str, Mapping[str, Any]], Value]] = {
    "enum": draw_enum,
    "boolean": draw_boolean,
    "integer": draw_integer,
    "float": draw_float,
    "string": draw_string,
    "array of string": _list_of(draw_string),
    "array of integer": _list_of(draw_integer),
    "array of float": _list_of(draw_float),
}
"""How a value of each kind of parameter is drawn, with its words."""
