"""Generated scenes of the file system and of the calculator."""

from assay.tasks.tools.simulated_draw import PEOPLE, THINGS, TOPICS, Ask, Draw, Scene, ask, in_order

ENDINGS = ("txt", "md", "csv", "log")


def file_scene(draw: Draw, count: int) -> Scene:
    """A folder with two files and a folder in it; things are listed, read, written and moved."""
    home, folder = draw.pick(TOPICS), f"{draw.pick(THINGS)}_{draw.number(10, 99)}"
    files = [f"{draw.pick(TOPICS)}_{draw.pick(THINGS)}.{draw.any_of(ENDINGS)}" for _ in range(2)]
    words = [draw.pick(PEOPLE) for _ in range(3)]
    lines = [
        [f"{words[i % 3]} repaired the {draw.pick(THINGS)}" for i in range(draw.any_of((2, 3, 4)))]
        for _ in files
    ]
    contents = {
        name: {"type": "file", "content": "\n".join(text)}
        for name, text in zip(files, lines, strict=True)
    }
    config = {
        "root": {
            home: {
                "type": "directory",
                "contents": {**contents, folder: {"type": "directory", "contents": {}}},
            }
        }
    }
    one, other = files
    makers = [
        lambda: read(draw, one),
        lambda: search(draw, one, words[0]),
        lambda: measure(draw, other),
        lambda: arrange(draw, one),
        lambda: compare(draw, one, other),
        lambda: note(draw),
        lambda: new_folder(draw),
        lambda: copy(draw, one, folder),
        lambda: last_lines(draw, other),
        lambda: move(draw, one, folder),
        lambda: rename(draw, other),
    ]
    return Scene("GorillaFileSystem", config, in_order(draw, count, makers))


def read(draw: Draw, name: str) -> Ask:
    """Show a file."""
    text = draw.say(
        f"What does {name} say?",
        f"Please show me the whole content of {name}.",
        f"Open {name} and let me read it.",
    )
    return ask(text, f"This is the content of {name}.", ("cat", {"file_name": name}))


def search(draw: Draw, name: str, word: str) -> Ask:
    """Find lines."""
    text = draw.say(
        f"Which lines of {name} mention {word}?",
        f"Look for {word} in {name} and give me the lines.",
        f"I need every line in {name} that has {word} in it.",
    )
    reply = f"These lines of {name} mention {word}."
    return ask(text, reply, ("grep", {"file_name": name, "pattern": word}))


def measure(draw: Draw, name: str) -> Ask:
    """Count lines, words or characters."""
    mode, what = draw.any_of((("l", "lines"), ("w", "words"), ("c", "characters")))
    text = draw.say(
        f"How many {what} does {name} have?",
        f"Count the {what} of {name}.",
        f"I would like to know the number of {what} in {name}.",
    )
    return ask(text, f"{name} has {{0}} {what}.", ("wc", {"file_name": name, "mode": mode}))


def arrange(draw: Draw, name: str) -> Ask:
    """Sort the lines of a file."""
    text = draw.say(
        f"Put the lines of {name} in alphabetical order for me.",
        f"Show {name} with its lines sorted.",
        f"Sort {name} line by line.",
    )
    return ask(text, f"These are the lines of {name} in order.", ("sort", {"file_name": name}))


def compare(draw: Draw, one: str, other: str) -> Ask:
    """Tell two files apart."""
    text = draw.say(
        f"What differs between {one} and {other}?",
        f"Compare {one} with {other}.",
        f"Tell me where {one} and {other} are not the same.",
    )
    reply = f"These lines differ between {one} and {other}."
    return ask(text, reply, ("diff", {"file_name1": one, "file_name2": other}))


def note(draw: Draw) -> Ask:
    """Make a file and write into it."""
    name = f"{draw.pick(TOPICS)}_note.{draw.any_of(ENDINGS)}"
    content = f"{draw.pick(PEOPLE)} checks the {draw.pick(THINGS)} on day {draw.number(2, 29)}"
    text = draw.say(
        f"Create a file {name} that says '{content}'.",
        f"Write '{content}' into a new file called {name}.",
        f"I want a note {name} with the text '{content}'.",
    )
    write = ("echo", {"content": content, "file_name": name})
    return ask(text, f"{name} is written.", ("touch", {"file_name": name}), write)


def new_folder(draw: Draw) -> Ask:
    """Make a folder."""
    name = f"{draw.pick(TOPICS)}_{draw.number(100, 999)}"
    text = draw.say(
        f"Make a folder named {name} here.",
        f"I need a new directory {name}.",
        f"Create the directory {name} in this place.",
    )
    return ask(text, f"The folder {name} is there.", ("mkdir", {"dir_name": name}))


def copy(draw: Draw, name: str, folder: str) -> Ask:
    """Copy a file into a folder."""
    text = draw.say(
        f"Keep a copy of {name} in {folder}.",
        f"Copy {name} into the folder {folder}.",
        f"Put a second {name} into {folder}, and leave the first where it is.",
    )
    reply = f"A copy of {name} is in {folder}."
    # A later turn may move the file to the same folder, so the copy gets a name of its own.
    new = f"copy_{draw.number(2, 99)}_{name}"
    text += f" Call it {new}."
    return ask(
        text,
        reply,
        ("cp", {"source": name, "destination": new}),
        ("mv", {"source": new, "destination": folder}),
    )


def last_lines(draw: Draw, name: str) -> Ask:
    """Show the end of a file."""
    text = draw.say(
        f"Give me the last line of {name}.",
        f"What is the final line in {name}?",
        f"Show only the last line of {name}.",
    )
    call = ("tail", {"file_name": name, "lines": 1})
    return ask(text, f"This is the last line of {name}.", call)


def move(draw: Draw, name: str, folder: str) -> Ask:
    """Move a file into a folder, and go there."""
    text = draw.say(
        f"Move {name} to {folder}.",
        f"{name} belongs into {folder}, put it there.",
        f"Please file {name} under {folder}.",
    )
    reply = f"{name} is in {folder} now."
    return ask(text, reply, ("mv", {"source": name, "destination": folder}))


def rename(draw: Draw, name: str) -> Ask:
    """Give a file another name."""
    new = f"{draw.pick(THINGS)}_{draw.pick(PEOPLE).lower()}.{name.rpartition('.')[2]}"
    text = draw.say(
        f"Rename {name} to {new}.",
        f"{name} should be called {new} from now on.",
        f"Change the name of {name} into {new}.",
    )
    reply = f"{name} is called {new} now."
    return ask(text, reply, ("mv", {"source": name, "destination": new}))


def math_scene(draw: Draw, count: int) -> Scene:
    """Numbers of the user's, without any state."""
    makers = [
        lambda: of_many(draw),
        lambda: of_two(draw),
        lambda: spread(draw),
        lambda: share(draw),
        lambda: root(draw),
    ]
    return Scene("MathAPI", {}, in_order(draw, count, makers))


OF_MANY = (
    ("mean", "mean"),
    ("sum_values", "sum"),
    ("max_value", "largest"),
    ("min_value", "smallest"),
)
"""A function of a list, and the word for its value."""


def of_many(draw: Draw) -> Ask:
    """One value of a list."""
    numbers = [draw.amount(2, 900) for _ in range(draw.any_of((3, 4, 5)))]
    name, what = draw.any_of(
        (
            ("mean", "mean"),
            ("sum_values", "sum"),
            ("max_value", "largest"),
            ("min_value", "smallest"),
        )
    )
    text = draw.say(
        f"What is the {what} of {listed(numbers)}?",
        f"I have the numbers {listed(numbers)}. Tell me the {what} of them.",
        f"Work out the {what} of these for me: {listed(numbers)}.",
    )
    return ask(text, f"The {what} is {{0}}.", (name, {"numbers": numbers}))


def spread(draw: Draw) -> Ask:
    """A standard deviation."""
    numbers = [draw.amount(2, 400) for _ in range(4)]
    text = draw.say(
        f"How far do {listed(numbers)} scatter? Give me the standard deviation.",
        f"Find the standard deviation of {listed(numbers)}.",
        f"I need the standard deviation for {listed(numbers)}.",
    )
    call = ("standard_deviation", {"numbers": numbers})
    return ask(text, "The standard deviation is {0}.", call)


def of_two(draw: Draw) -> Ask:
    """Arithmetic."""
    one, other = draw.amount(20, 900), draw.amount(2, 90)
    name, wordings = draw.any_of(
        (
            ("add", (f"Add {one} and {other}.", f"What do {one} and {other} make together?")),
            ("subtract", (f"Take {other} from {one}.", f"What is left of {one} without {other}?")),
            ("multiply", (f"Multiply {one} by {other}.", f"How much is {one} times {other}?")),
            ("divide", (f"Divide {one} by {other}.", f"How often does {other} go into {one}?")),
        )
    )
    return ask(draw.say(*wordings), "That makes {0}.", (name, {"a": one, "b": other}))


def share(draw: Draw) -> Ask:
    """A percentage."""
    whole = draw.amount(300, 900)
    part = draw.amount(2, 250)
    text = draw.say(
        f"What percentage of {whole} is {part}?",
        f"Express {part} as a percentage of {whole}.",
        f"{part} out of {whole}: how many percent is that?",
    )
    return ask(text, "That is {0} percent.", ("percentage", {"part": part, "whole": whole}))


def root(draw: Draw) -> Ask:
    """A power."""
    base, exponent = draw.amount(2, 40), draw.any_of((2, 3))
    text = draw.say(
        f"Raise {base} to the power of {exponent}.",
        f"How much is {base} to the {exponent}?",
        f"Compute {base} ** {exponent} for me.",
    )
    return ask(text, "The result is {0}.", ("power", {"base": base, "exponent": exponent}))


def listed(numbers: list[float]) -> str:
    """`1.5, 2.5 and 3.5`."""
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
