"""Questions about a company that two lookups answer: someone's manager, and the manager's room.

`source = "staff:COUNT"` gives the first COUNT of a stream that is the same every time, with gold
conversations for SFT; `"staff_held_out:COUNT"` those of one with other people. Rooms are drawn
anew for each row, so only who looks them up knows them. A row's `extra.facts` is what the agents'
tools read.
"""

import random
from functools import partial

from assay.data.row import Message, Row, ToolCall
from assay.tasks.task import BaseTask, Loaded

PEOPLE = {
    "staff": [
        "Anna",
        "Bela",
        "Carl",
        "Dora",
        "Emil",
        "Fred",
        "Gina",
        "Hugo",
        "Ines",
        "Jack",
        "Kate",
        "Liam",
        "Mona",
        "Nils",
        "Olga",
        "Paul",
        "Rita",
        "Sven",
        "Tina",
        "Uwe",
        "Vera",
        "Walt",
        "Xena",
        "Yuri",
        "Zoe",
        "Amir",
        "Bert",
        "Cleo",
        "Dina",
        "Egon",
    ],
    "staff_held_out": [
        "Alma",
        "Boris",
        "Clara",
        "Dario",
        "Elsa",
        "Felix",
        "Greta",
        "Hans",
        "Irene",
        "Jonas",
        "Karla",
        "Leo",
        "Maria",
        "Noah",
        "Oscar",
        "Petra",
        "Ralf",
        "Sonja",
        "Tom",
        "Ulla",
        "Viktor",
        "Wanda",
        "Yara",
        "Zack",
    ],
}
ASKS = (
    "In which room does the manager of {name} sit?",
    "Where is the room of {name}'s manager?",
    "I am looking for the manager of {name}. Which room is it?",
)
SYSTEM = "Look up what you need with the tools, one call at a time, then answer with the number."


def tool(name: str, about: str) -> dict:
    """A function of one name, as OpenAI's tools are written."""
    person = {"type": "string"}
    parameters = {"type": "object", "properties": {"name": person}, "required": ["name"]}
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": parameters},
    }


TOOLS = (
    tool("manager_of", "The name of the manager of a person."),
    tool("room_of", "The number of the room in which a person sits."),
)


def make_row(stream: str, number: int) -> Row:
    """Row NUMBER of a stream, ending with its gold conversation."""
    draw = random.Random(f"{stream} {number}")
    name, manager, other = draw.sample(PEOPLE[stream], 3)
    rooms = [str(room) for room in draw.sample(range(100, 1000), 3)]
    people = (name, manager, other)
    facts = {
        "manager_of": {name: manager, manager: other},
        "room_of": dict(zip(people, rooms, strict=True)),
    }
    answer = facts["room_of"][manager]
    calls = (("manager_of", name, manager), ("room_of", manager, answer))
    talk = [Message("system", SYSTEM), Message("user", draw.choice(ASKS).format(name=name))]
    for place, (function, asked, told) in enumerate(calls):
        call = ToolCall(function, {"name": asked}, f"call_{place}")
        talk += [
            Message("assistant", "", (call,)),
            Message("tool", told, tool_call_id=call.id, name=function),
        ]
    talk.append(Message("assistant", f"Room {answer}."))
    columns = {"facts": facts}
    return Row(
        f"{stream}-{number}",
        tuple(talk),
        TOOLS,
        gold=answer,
        extra=columns,
        columns=columns,
    )


def read_staff(stream: str, count: str) -> Loaded:
    """The first COUNT rows of a stream."""
    return Loaded(tuple(make_row(stream, number) for number in range(int(count))))


class StaffTask(BaseTask):
    """The task called "staff": its rewards are the agents'."""

    name = "staff"
    sources = {stream: partial(read_staff, stream) for stream in PEOPLE}  # noqa: RUF012
