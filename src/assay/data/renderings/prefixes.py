"""What a template writes of a conversation's beginnings, by runs of it that share their work.

A template is a program: what it writes of a beginning is known by running it on that. Most of
such a run repeats an earlier one. All that the body of the template's loop over the messages reads
is watched: how many there are, other messages, its place in the loop, variables that were set
before, values of namespaces, and what comparisons with those gave. Where all of it is for a message
as it was before, the loop writes and sets what it did before, and its body does not run. So it is
with a statement before the loop that sets nothing, such as one that writes the tools. A template
with parts that cannot be watched is refused: its user runs it on each beginning as it stands.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from jinja2 import TemplateError, Undefined, nodes
from jinja2.utils import Namespace

from assay.data.renderings.template import (
    DATE,
    reads_parts_alone,
    template_messages,
    template_source,
)
from assay.data.row import Message
from assay.data.tools import openai_tool

Tools = Sequence[Mapping[str, Any]]
Writes = Callable[[int, bool], str]
"""The text of so many first messages, with the generation prompt or without it."""


def answer_pairs(
    tokenizer: Any,
    messages: Sequence[Message],
    tools: Tools,
    answers: Sequence[int],
    generation: bool,
) -> tuple[Mapping[int, tuple[str, str]], str]:
    """For each assistant message, by its name in `answers`, the text before it as a prompt and the
    text that ends with it; and the whole text. Nothing of a template that cannot be watched."""
    source = template_source(tokenizer, bool(tools))
    dated = "strftime_now" in source
    if dated or (write := beginnings(tokenizer, source, messages, tools)) is None:
        return {}, ""
    spoken = (k for k, message in enumerate(messages) if message.role == "assistant")
    try:
        whole = write(len(messages), generation)
        pairs = {
            name: (write(k, True), write(k + 1, False))
            for name, k in zip(answers, spoken, strict=True)
        }
    except Exception:
        return {}, ""  # `apply_template` meets the same, and says it
    return pairs, whole


def beginnings(
    tokenizer: Any, source: str, messages: Sequence[Message], tools: Tools
) -> Writes | None:
    """What writes a conversation's beginnings; None for a template that cannot be watched. It
    raises what the template raises, and TypeError for what can only be seen while it runs."""
    if (watched := _watched(source)) is None or reads_parts_alone(tokenizer, source):
        return None
    dumped = template_messages(messages)
    tool_list = [_tool(openai_tool(tool)) for tool in tools] or None
    fixed = {"tools": tool_list, "documents": None, "date_string": DATE}
    known = dict[Any, list[_Step]]()

    def write(count: int, generation: bool) -> str:
        run = _Run(count, tool_list, known)
        context = {**tokenizer.special_tokens_map, **fixed, "namespace": run.namespace}
        context["messages"], context[RUN] = _Messages(dumped, 0, run), run
        context["add_generation_prompt"] = generation
        for piece in watched.root_render_func(watched.new_context(context)):
            run.written.append(piece)
        if not run.ended:
            raise TypeError("the loop over the messages was left, or did not begin")
        return "".join(run.written)

    return write


class _Tool(dict[str, Any]):
    """A tool, or its function, with the texts that were made of it."""

    _texts: dict[str, str]


def _tool(value: Mapping[str, Any]) -> _Tool:
    made = _Tool({k: _tool(v) if k == "function" else v for k, v in value.items()})
    made._texts = {}
    return made


SCALARS = (str, int, bool, float, type(None))
COMPARISONS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "gt": operator.gt}
COMPARISONS |= {"lteq": operator.le, "gteq": operator.ge}
MIRRORED = {"lt": "gt", "gt": "lt", "lteq": "gteq", "gteq": "lteq"}
"""What a comparison is called with its sides the other way around, where that is another one."""
_ABSENT = object()


@dataclass(slots=True)
class _Step:
    """What the loop's body did for a message, and what it asked."""

    questions: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = field(default_factory=list)
    """Questions to a run, what about, and the answer."""
    sets: dict[tuple[int, str], Any] = field(default_factory=dict)
    """Namespace and name -> value."""
    text: str = ""


@dataclass(slots=True)
class _Run:
    """One run of a template over the first `count` messages."""

    count: int
    tools: Any
    known: dict[Any, list[_Step]]
    written: list[str] = field(default_factory=list)
    spaces: list["_Space"] = field(default_factory=list)
    """The namespaces that were made before the loop."""
    step: _Step | None = None
    """What the body does at this moment."""
    ended: bool = False

    def ask(self, question: Callable[..., Any], *about: Any) -> Any:
        """The answer to a question, on which the present step depends from here on."""
        answer = question(self, *about)
        if self.step is not None:
            self.step.questions.append((question, about, answer))
        return answer

    def alike(self, steps: Sequence[_Step]) -> _Step | None:
        """The latest step of which all that it asked has the same answer."""
        for step in reversed(steps):
            for question, about, answer in step.questions:
                if question(self, *about) != answer:
                    break
            else:
                return step
        return None

    def has(self, index: int) -> bool:
        """Whether there is a message `index`."""
        return index < self.count

    def counted(self) -> int:
        """How many messages there are."""
        return self.count

    def value(self, place: int, name: str) -> Any:
        """What stands in a namespace under a name."""
        return self.frozen(self.spaces[place]._attrs.get(name, _ABSENT))

    def compared(self, place: int, name: str, how: str, other: Any) -> bool:
        """What a comparison with that gives."""
        return COMPARISONS[how](self.spaces[place]._attrs[name], other)

    def namespace(self, *values: Any, **named: Any) -> "_Space":
        """Jinja's `namespace`."""
        made = _Space(*values, **named)
        if self.step is None and not self.ended:
            made._run, made._place = self, len(self.spaces)
            self.spaces.append(made)
        return made

    def frozen(self, value: Any, lasting: bool = False) -> Any:
        """A value that equals another one only where templates cannot tell them apart. Raises
        TypeError for what has none, and for what ends with the run where it has to be `lasting`."""
        if value is _ABSENT or value is self.tools:
            return "absent" if value is _ABSENT else "tools"
        if type(value) in (*SCALARS, Undefined):
            return type(value), repr(value)  # 0.0 equals -0.0
        if isinstance(value, (list, tuple)):
            return type(value), [self.frozen(each, lasting) for each in value]
        if isinstance(value, dict):
            return "table", [self.frozen(item, lasting) for item in value.items()]
        if type(value) in (_Messages, _Space) and value._run is self and not lasting:
            return type(value), value._place
        raise TypeError(f"a template's {type(value).__name__} cannot be watched")


class _Space(Namespace):
    """A namespace whose reads and writes are noted where a run made it before its loop."""

    _run: _Run | None = None
    _place = -1

    def __init__(self, *values: Any, **named: Any) -> None:
        self._attrs = dict(*values, **named)
        _refuse_hidden(*self._attrs)

    def __getattribute__(self, name: str) -> Any:
        if name in ("_run", "_place", "_attrs", "_asked", "__class__"):
            return object.__getattribute__(self, name)
        self._asked(name, _Run.value)
        if name not in self._attrs:
            raise AttributeError(name)
        return self._attrs[name]

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_hidden(name)
        if self._run is not None and self._run.step is not None:
            self._run.frozen(value, lasting=True)
            self._run.step.sets[self._place, name] = value
        self._attrs[name] = value

    def _asked(self, name: str, question: Callable[..., Any], *more: Any) -> None:
        """Note a question about a value, unless the present step wrote it."""
        run = self._run
        if run is not None and run.step and (self._place, name) not in run.step.sets:
            run.ask(question, self._place, name, *more)


def _refuse_hidden(*names: str) -> None:
    if any(name.startswith("_") for name in names):
        raise TypeError("Transformers keeps no such names in a namespace")


def _compared(space: Any, name: str, how: str, other: Any) -> Any:
    """A comparison with a value of a namespace, of which only what it gives is noted."""
    if type(space) is not _Space:
        raise TypeError("what its name says is no namespace")
    value = space._attrs.get(name, _ABSENT)
    if type(value) in SCALARS and type(other) in SCALARS:
        space._asked(name, _Run.compared, how, other)
        return COMPARISONS[how](value, other)
    return COMPARISONS[how](getattr(space, name), other)


class _Messages(Sequence[Any]):
    """The messages of a run from `place` on, whose reads are noted."""

    def __init__(self, messages: Sequence[Any], place: int, run: _Run):
        self._messages, self._place, self._run = messages, place, run

    def __getitem__(self, index: Any) -> Any:
        behind = isinstance(index, slice) and index.stop is index.step is None
        if behind and (index.start or 0) >= 0:
            return _Messages(self._messages, self._place + (index.start or 0), self._run)
        if not isinstance(index, int) or index < 0:
            return self._messages[self._place : self._run.ask(_Run.counted)][index]
        if not self._run.ask(_Run.has, self._place + index):
            raise IndexError(index)
        return self._messages[self._place + index]

    def __len__(self) -> int:
        return max(self._run.ask(_Run.counted) - self._place, 0)

    def __bool__(self) -> bool:
        return self._run.ask(_Run.has, self._place)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise TypeError(f"the messages have no {name!r} that is watched")

    def __repr__(self) -> str:
        raise TypeError("whoever writes the list itself is not watched")

    def __eq__(self, other: object) -> bool:
        raise TypeError("whoever compares the list itself is not watched")


def _looped(messages: Any, *before: Any) -> Iterator[tuple[Any, "_Loop"]]:
    """The messages whose step is not known, each with its place; `before` are the variables that
    the body reads and what stands before the loop sets."""
    if type(messages) is not _Messages:
        raise TypeError("the last loop is not over the messages")
    run, start = messages._run, messages._place
    key = repr((start, len(run.spaces), *map(run.frozen, before)))
    for index in range(start, run.count):
        item = messages._messages[index], _Loop(messages, index - start)
        yield from _unknown(run, (key, index), item)
    run.ended = True


def _once(run: _Run, number: int, *before: Any) -> Iterator[None]:
    """One turn for a statement before the loop; none where what it writes is known. `before` is as
    above."""
    try:
        key = repr((number, *map(run.frozen, before)))
    except TypeError:
        yield
    else:
        yield from _unknown(run, key, None)


def _unknown(run: _Run, key: Any, item: Any) -> Iterator[Any]:
    """The item, unless what is written and set for it is known, which is done then."""
    steps = run.known.setdefault(key, [])
    if (step := run.alike(steps)) is None:
        step, begin = _Step(), len(run.written)
        run.step = step
        yield item
        run.step = None
        step.text = "".join(run.written[begin:])
        steps.append(step)
    else:
        run.written.append(step.text)
        for (place, name), value in step.sets.items():
            run.spaces[place]._attrs[name] = value


FACTS: dict[str, Callable[[_Messages, int], Any]] = {
    "index0": lambda _, place: place,
    "index": lambda _, place: place + 1,
    "first": lambda _, place: place == 0,
    "last": lambda messages, place: not messages[place + 1 :],
    "length": lambda messages, _: len(messages),
    "previtem": lambda messages, place: messages[place - 1] if place else Undefined(),
    "nextitem": lambda messages, place: next(iter(messages[place + 1 :]), Undefined()),
}


class _Loop:
    """The variable `loop` of the loop over the messages. What it lacks stops the run."""

    def __init__(self, messages: _Messages, place: int):
        self._messages, self._place = messages, place

    def __getattr__(self, name: str) -> Any:
        if name not in FACTS:
            raise TypeError(f"loop.{name} is not watched")
        return FACTS[name](self._messages, self._place)


OWN_LOOP, RUN = "place_in_the_messages_", "run_of_the_template_"
"""What the variable `loop` of the loop over the messages is called, and the run's own."""
HARMLESS = {"startswith", "endswith", "strip", "lstrip", "rstrip", "split", "replace"}
"""Methods of a text that templates call for each message; the sandbox would look at them long."""
APART = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)


@lru_cache(maxsize=64)
def _watched(source: str) -> Any:
    """The template as Transformers compiles it, with its last loop watched; None for one with parts
    that cannot be."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        environment = _compile_jinja_template(source).environment.overlay()
    except TemplateError:
        return None
    tree = environment.parse(source)
    at = max((n for n, node in enumerate(tree.body) if isinstance(node, nodes.For)), default=-1)
    if at < 0:
        return None
    loop = cast(nodes.For, tree.body[at])
    macros = [*tree.find_all(nodes.Macro)]
    if (
        loop.test is not None
        or loop.else_
        or loop.recursive
        or [*tree.find_all(APART), *loop.find_all(nodes.Macro)]
        or sum(isinstance(node, nodes.Macro) for node in tree.body) < len(macros)
        or {"cycler", "joiner", "self", "caller", OWN_LOOP, RUN} & {*_names(tree)}
    ):
        return None
    stored = {*_names(*tree.body[:at], only="store"), "add_generation_prompt"}
    outer = sorted(stored & {*_names(loop, *macros)})
    spaces = {
        each.target.name
        for each in tree.find_all(nodes.Assign)
        if isinstance(each.target, nodes.Name) and "namespace" in _names(each.node)
    }
    loop.body = [_rewritten(node, spaces, True) for node in loop.body]
    loop.iter = _filter(loop.iter, "looped", [nodes.Name(name, "load") for name in outer])
    loop.target = nodes.Tuple([loop.target, nodes.Name(OWN_LOOP, "store")], "store")
    written = environment.filters["tojson"]

    def tojson(value: Any, *how: Any, **named: Any) -> str:
        # Qwen's template puts a function into a table of its own.
        parts = [value, *value.values()] if isinstance(value, dict) else []
        if (tool := next((each for each in parts if type(each) is _Tool), None)) is None:
            return written(value, *how, **named)
        around = () if tool is value else [(k, ... if v is tool else v) for k, v in value.items()]
        if (key := repr((how, named, around))) not in tool._texts:
            tool._texts[key] = written(value, *how, **named)
        return tool._texts[key]

    sandboxed = environment.getattr

    def attribute_of(obj: Any, attribute: str) -> Any:
        # What the sandbox forbids, a namespace refuses to hold.
        known = type(obj) is _Space and attribute in obj._attrs
        known = known or (type(obj) is str and attribute in HARMLESS)
        return getattr(obj, attribute) if known else sandboxed(obj, attribute)

    more = {"looped": _looped, "once": _once, "compared": _compared, "tojson": tojson}
    environment.filters = {**environment.filters, **more}
    environment.getattr = attribute_of
    for number, node in enumerate(tree.body[:at]):
        if isinstance(node, nodes.If | nodes.For) and not _sets(node):
            read = [nodes.Name(name, "load") for name in sorted(stored & {*_names(node)})]
            known = _filter(nodes.Name(RUN, "load"), "once", [nodes.Const(number), *read])
            tree.body[number] = nodes.For(
                nodes.Name("turn_", "store"), known, [node], [], None, False
            )
    for node in tree.find_all(nodes.Node):
        node.set_lineno(loop.lineno)
    tree.set_environment(environment)
    return environment.from_string(tree)


def _sets(node: nodes.Node, within: bool = False) -> bool:
    """Whether a statement sets what others may read: what a loop sets `within` it is its own."""
    if isinstance(node, nodes.Assign | nodes.AssignBlock):
        return not within or isinstance(node.target, nodes.NSRef)
    inner = within or isinstance(node, nodes.For)
    return any(_sets(each, inner) for each in node.iter_child_nodes())


def _names(*trees: nodes.Node, only: str = "") -> list[str]:
    return [
        n.name for tree in trees for n in tree.find_all(nodes.Name) if n.ctx == only or not only
    ]


def _rewritten(node: Any, spaces: Set[str], own: bool) -> Any:
    """A node of the loop's body with OWN_LOOP for `loop`, where that is its `own`, and with its
    comparisons with values of `spaces` noted."""
    for name, value in node.iter_fields():
        inner = own and not (isinstance(node, nodes.For) and name in ("body", "test"))
        if isinstance(value, list):
            value = [
                _rewritten(v, spaces, inner) if isinstance(v, nodes.Node) else v for v in value
            ]
            setattr(node, name, value)
        elif isinstance(value, nodes.Node):
            setattr(node, name, _rewritten(value, spaces, inner))
    if isinstance(node, nodes.Name) and node.name == "loop" and own:
        return nodes.Name(OWN_LOOP, node.ctx)
    if isinstance(node, nodes.Compare) and len(node.ops) == 1 and node.ops[0].op in COMPARISONS:
        how, sides = node.ops[0].op, (node.expr, node.ops[0].expr)
        for side, other, op in ((*sides, how), (*sides[::-1], MIRRORED.get(how, how))):
            if isinstance(side, nodes.Getattr) and getattr(side.node, "name", "") in spaces:
                return _filter(side.node, "compared", [*map(nodes.Const, (side.attr, op)), other])
    return node


def _filter(node: Any, name: str, values: list[nodes.Expr]) -> nodes.Filter:
    return nodes.Filter(node, name, values, [], None, None)
