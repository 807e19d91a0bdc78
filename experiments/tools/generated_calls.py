"""Generated questions that ask for one call: arguments to copy, to convert and to leave out.

`source = "generated_calls:COUNT"` gives the first COUNT questions of a stream that is the same
every time; `"generated_calls_held_out:COUNT"` those of another, about other functions. A question
names one function's task in its own description, each required argument and about half of the
optional ones, in an order and in words of its own: numbers with separators or as words,
percentages where the function takes a fraction, dates in another format than the function asks
for, yes and no for flags, lists as lists of words. What is not named may be left out or given as
its default.

Function docs are those of BFCL's categories of single answers, without any function of
`simple_python`, which is the usual test; words and sentences are those of `generated/calls.toml`.
How a value is drawn and worded follows from the parameter's type, name and description, which is
code, not data. Answers are right by BFCL's own checker, as those of its entries. Questions that
take several turns are in `simulated`.
"""

import datetime
import functools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drawing import Draw, Names, Side, row_count, tables

from assay.data.row import Message, Row, ToolCall
from assay.labs.tools.multi_turn import HINT
from assay.labs.tools.rewards import ast_check
from assay.labs.tools.single_turn import CATEGORIES, entries
from assay.tasks.task import Loaded

CATEGORY = "generated"
TEST = "simple_python"
SEED = 20262
HELD_OUT = 5
"""Every so-many-th function is held out."""
PARAMETERS = 5
CHARACTERS = 1000
"""Functions with more of them are left out: their prompts cost more than they teach."""
FRACTIONS = frozenset({"rate", "interest", "ratio", "probability", "share"})


@dataclass(frozen=True, slots=True)
class Value:
    """An argument, and the words in which a question names it."""

    value: Any
    words: str


def read_generated_calls(count: str) -> Loaded:
    """The rows of `generated_calls:COUNT`. Raises InputError."""
    return generated(count, "train")


def read_held_out_calls(count: str) -> Loaded:
    """The rows of `generated_calls_held_out:COUNT`. Raises InputError."""
    return generated(count, "held_out")


def generated(count: str, side: Side) -> Loaded:
    """The first questions of a side; those whose answer the checker refuses are dropped."""
    rows, dropped = [], {}
    for row in draw_rows(row_count(count, "generated_calls", "questions"), side):
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
        draw = Draw(random.Random(f"{SEED} {side} {number}"), side)
        names = Names(draw, tables("calls")["values"], {})
        lap, place = divmod(number, len(docs))
        order = random.Random(f"{SEED} {side} lap {lap}").sample(range(len(docs)), len(docs))
        yield draw_row(names, docs[order[place]], f"{CATEGORY}_{side}_{number}")


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


def draw_row(names: Names, doc: dict[str, Any], name: str) -> Row:
    """One question about one function."""
    parameters, needed = doc["parameters"]["properties"], doc["parameters"].get("required", [])
    chosen, possible = {}, {}
    for key, schema in parameters.items():
        kind = _kind(schema)
        if key in needed or (kind in DRAWS and names.draw.random.random() < 0.5):
            chosen[key] = DRAWS[kind](names, key, schema)
            possible[key] = [chosen[key].value]
        else:
            possible[key] = [schema["default"], ""] if "default" in schema else [""]
    call = ToolCall(doc["name"], {key: value.value for key, value in chosen.items()})
    return Row(
        id=name,
        messages=(
            Message("user", question(names, doc, chosen)),
            Message("assistant", "", tool_calls=(call,)),
        ),
        tools=(doc,),
        gold=[{doc["name"]: possible}],
        conversation=doc["name"],
        extra={"category": CATEGORY},
    )


def question(names: Names, doc: Mapping[str, Any], chosen: Mapping[str, Value]) -> str:
    """The function's description and the arguments, in one of several forms."""
    draw, forms = names.draw.random, tables("calls")["forms"]
    task = first_sentence(doc["description"])
    named = draw.sample(list(chosen.items()), len(chosen))
    clause = draw.choice(forms["clause"])
    details = "; ".join(clause.format(name=spoken(key), words=value.words) for key, value in named)
    if not details:
        return f"{task}."
    return draw.choice(forms["question"]).format(task=task, details=details)


def first_sentence(description: str) -> str:
    """The first sentence of a description, without its full stop and the language hint."""
    text = description.replace(HINT, "").strip()
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]


def spoken(name: str) -> str:
    """A parameter's name as words: `startDate` and `start_date` are "start date"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.]", " ", name).lower().strip()


def draw_enum(names: Names, _: str, schema: Mapping[str, Any]) -> Value:
    """One of the choices, in its own words."""
    value = names.draw.random.choice(schema["enum"])
    return Value(value, str(value))


def draw_boolean(names: Names, _: str, schema: Mapping[str, Any]) -> Value:
    """Yes or no; a flag that has a default is more often named where it differs from it."""
    default = str(schema.get("default", "")).lower() == "true"
    value = default if names.draw.random.random() < 0.25 else not default
    return Value(value, names["yes" if value else "no"])


def draw_integer(names: Names, key: str, _: Mapping[str, Any]) -> Value:
    """Years by the name; large numbers with separators, small ones as words at times."""
    draw = names.draw.random
    if "year" in key.lower() and "years" not in key.lower():
        value = draw.randint(1950, 2024)
        return Value(value, str(value))
    value = draw.choice((draw.randint(2, 12), draw.randint(2, 400), 50 * draw.randint(20, 400)))
    if value <= 10 and draw.random() < 0.4:
        return Value(value, names["number_words"][value - 2])
    return Value(value, f"{value:,}" if draw.random() < 0.5 else str(value))


def draw_float(names: Names, key: str, schema: Mapping[str, Any]) -> Value:
    """Rates and shares are fractions written in percent, unless the function asks for percent."""
    draw, about = names.draw.random, schema.get("description", "").lower()
    if FRACTIONS & set(spoken(key).split()) and "percent" not in about:
        percent = draw.randint(1, 30)
        return Value(percent / 100, f"{percent}%")
    value = draw.choice((round(draw.uniform(0.1, 10), 1), round(draw.uniform(1, 500), 2)))
    return Value(value, f"{value:g}")


def draw_string(names: Names, key: str, schema: Mapping[str, Any]) -> Value:
    """A text that fits the parameter's name; dates in the format that its description asks for."""
    draw, words, about = names.draw.random, spoken(key).split(), schema.get("description", "")
    if "date" in words:
        return _date(draw, about)
    fitting = (table for table in tables("calls")["texts"] if set(table["words"]) & set(words))
    table = next(fitting, None)
    if table is not None:
        text = _fitting(names, table, about)
    else:
        text = names["two_words" if draw.random() < 0.25 else "phrase"]
    return Value(text, f"'{text}'" if draw.random() < 0.2 else text)


def _fitting(names: Names, table: Mapping[str, Any], about: str) -> str:
    with_state = "State" in about or ", " in about[-12:]
    key = "text_with_state" if with_state and "text_with_state" in table else "text"
    return names.bind(table.get("draw", {})).fill(table[key])


def _date(draw: random.Random, about: str) -> Value:
    day = datetime.date(2023, 1, 1) + datetime.timedelta(days=draw.randrange(600))
    iso = f"{day:%Y-%m-%d}"
    written = f"{day:%B} {day.day}, {day.year}"
    if "YYYY-MM-DD" in about:
        return Value(iso, draw.choice((iso, written, written)))
    if "MM/DD/YYYY" in about:
        return Value(f"{day:%m/%d/%Y}", draw.choice((f"{day:%m/%d/%Y}", written)))
    return Value(iso, iso)


def _list_of(one: Callable[..., Value]) -> Callable[..., Value]:
    def draw_list(names: Names, key: str, schema: Mapping[str, Any]) -> Value:
        draw = names.draw.random
        items = [one(names, "", schema["items"]) for _ in range(draw.randint(2, 5))]
        words = [item.words.replace(",", "") for item in items]
        text = draw.choice((", ".join(words), f"{', '.join(words[:-1])} and {words[-1]}"))
        return Value([item.value for item in items], text)

    return draw_list


DRAWS: Mapping[str, Callable[[Names, str, Mapping[str, Any]], Value]] = {
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
