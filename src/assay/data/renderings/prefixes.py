"""What a template writes of a conversation's beginnings, proven by one run of it.

A template is a program. Until it first reads message k it does for the first k messages what it
does for all; where its loop over the messages is what reads it, all that is left to do for those k
is what follows the loop, which may read nothing that the messages change. Reads are watched; the
loop and what follows it are looked at once for each template (`_loop_watched`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, cast

from jinja2 import TemplateError, nodes

from assay.data.renderings.template import (
    DATE,
    reads_parts_alone,
    template_messages,
    template_source,
)
from assay.data.row import Message
from assay.data.tools import openai_tool

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What a template writes of a conversation, and of every part of it that ends before message k
    of those in `ends`: `text[: ends[k]]`, then `question` with the generation prompt or `end`
    without it."""

    text: str
    ends: Mapping[int, int]
    question: str
    end: str


def answer_pairs(
    tokenizer: Any,
    messages: Sequence[Message],
    tools: Tools,
    answers: Sequence[int],
    generation: bool,
) -> tuple[Mapping[int, tuple[str, str]], str]:
    """For each assistant message, by its name in `answers`, the text before it as a prompt and the
    text that ends with it; and the whole text. Only what is proven."""
    source = template_source(tokenizer, bool(tools))
    made = None if "strftime_now" in source else prefixes(tokenizer, source, messages, tools)
    if made is None:
        return {}, ""
    spoken = (k for k, message in enumerate(messages) if message.role == "assistant")
    text, ends = made.text, made.ends
    pairs = {
        name: (text[: ends[k]] + made.question, text[: ends[k + 1]] + made.end)
        for name, k in zip(answers, spoken, strict=True)
        if k in ends and k + 1 in ends
    }
    return pairs, text[: ends[len(messages)]] + made.question if generation else text


def prefixes(
    tokenizer: Any, source: str, messages: Sequence[Message], tools: Tools
) -> Prefixes | None:
    """The texts of a conversation's beginnings from one run of the template; None where that run
    does not prove them."""
    if (looped := _loop_watched(source)) is None or reads_parts_alone(tokenizer, source):
        return None
    dumped = template_messages(messages)
    more = {"tools": [openai_tool(tool) for tool in tools] or None, "documents": None}
    more |= {**tokenizer.special_tokens_map, "date_string": DATE}

    def run(count: int, generation: bool) -> tuple[_Reads, list[int]]:
        reads = _Reads(count)
        context = {**more, "messages": _Watched(dumped[:count], reads)}
        context["add_generation_prompt"] = generation
        for piece in looped.root_render_func(looped.new_context(context)):
            reads.written.append(piece)
        return reads, [0, *accumulate(map(len, reads.written))]

    try:
        reads, lengths = run(len(dumped), False)
        ends = {k: lengths[pieces] for k, pieces in reads.pieces.items() if k}
        least = min(ends, default=len(dumped))
        prompt, prompt_lengths = run(least, True)
    except Exception:
        return None  # `apply_template` meets the same, and says it
    if not (reads.ended and prompt.ended) or reads.behind or prompt.behind:
        return None
    ends[len(dumped)] = lengths[reads.ended]
    text, begun = "".join(reads.written), "".join(prompt.written)
    if begun[: prompt_lengths[prompt.ended]] != text[: ends[least]]:
        return None
    return Prefixes(text, ends, begun[ends[least] :], text[ends[len(dumped)] :])


@dataclass(slots=True)
class _Reads:
    """What a template has read of the messages, and written before."""

    count: int
    written: list[str] = field(default_factory=list)
    furthest: int = -1
    """The last message read; `count` after a read that tells how many there are."""
    pieces: dict[int, int] = field(default_factory=dict)
    """Message -> the pieces that were written when the template's loop was the first to read it."""
    ended: int = 0
    """The pieces that were written when the loop ended."""
    behind: bool = False
    """Whether messages were read after that."""

    def read(self, index: int) -> None:
        """Note a read of message `index`, which may be none."""
        self.behind |= self.ended > 0
        self.furthest = max(self.furthest, index)


class _Watched(Sequence[Any]):
    """The messages from `start` on, whose reads are noted."""

    def __init__(self, messages: Sequence[Any], reads: _Reads, start: int = 0):
        self._messages, self._reads, self._start = messages, reads, start

    def __getitem__(self, index: Any) -> Any:
        behind = isinstance(index, slice) and index.stop is index.step is None
        if behind and (index.start or 0) >= 0:
            return _Watched(self._messages, self._reads, self._start + (index.start or 0))
        ahead = self._reads.count if isinstance(index, slice) or index < 0 else index + self._start
        self._reads.read(ahead)
        return self._messages[self._start :][index]

    def __len__(self) -> int:
        self._reads.read(self._reads.count)
        return len(self._messages) - self._start

    def __bool__(self) -> bool:
        self._reads.read(self._start)
        return len(self._messages) > self._start

    def __iter__(self) -> Iterator[Any]:
        for index in range(self._start, len(self._messages)):
            self._reads.read(index)
            yield self._messages[index]
        self._reads.read(self._reads.count)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise TypeError("whoever writes the list itself is not watched")

    def __eq__(self, other: object) -> bool:
        raise TypeError("whoever compares the list itself is not watched")

    def looped(self) -> Iterator[Any]:
        """The same for the loop whose reads part the text."""
        reads = self._reads
        for index in range(self._start, len(self._messages)):
            if index > reads.furthest:
                reads.pieces[index] = len(reads.written)
            reads.read(index)
            yield self._messages[index]
        # Where the count is known already, so may be what the last answer says.
        reads.ended = len(reads.written) if reads.furthest < reads.count else 0
        reads.furthest = reads.count


FORWARD = ("first", "index", "index0", "previtem", "depth", "depth0", "cycle", "changed")
"""What a template may ask of its loop without looking at the next message."""


@lru_cache(maxsize=64)
def _loop_watched(source: str) -> Any:
    """The template as Transformers compiles it, with its loop over the messages watched; None for
    one whose end depends on more than the caller's variables, or whose loop looks ahead."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        environment = _compile_jinja_template(source).environment.overlay()
    except TemplateError:
        return None
    tree = environment.parse(source)
    loops = [n for n, node in enumerate(tree.body) if isinstance(node, nodes.For)]
    if not loops:
        return None
    loop = cast(nodes.For, tree.body[loops[-1]])
    before, behind = tree.body[: loops[-1]], tree.body[loops[-1] + 1 :]
    apart = (nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
    names = [name.name for each in (*before, loop) for name in each.find_all(nodes.Name)]
    # What the loop sets may differ from one beginning to the next, and a namespace of any name.
    within = tree if [*tree.find_all(nodes.NSRef)] else loop
    changed = {name.name for name in within.find_all(nodes.Name) if name.ctx != "load"} | {"loop"}
    changed |= {macro.name for macro in tree.find_all(nodes.Macro)}
    used = {name.name for each in behind for name in each.find_all(nodes.Name)}
    if (
        loop.test is not None
        or loop.else_
        or loop.recursive
        or [*tree.find_all(apart)]
        or {"add_generation_prompt", "cycler", "joiner", "self", "caller"} & {*names}
        or changed & used
        or not all(isinstance(n, nodes.Getattr) and n.attr in FORWARD for n in _own_loop(loop.body))
    ):
        return None
    loop.iter = nodes.Filter(loop.iter, "watched", [], [], None, None, lineno=loop.lineno)
    environment.filters = {**environment.filters, "watched": _watched}
    tree.set_environment(environment)
    return environment.from_string(tree)


def _watched(messages: Any) -> Iterator[Any]:
    return messages.looped() if isinstance(messages, _Watched) else iter(messages)


def _own_loop(body: Iterable[nodes.Node]) -> Iterator[nodes.Node]:
    """The nodes right above each use of a loop's own variable `loop`."""
    for node in body:
        inner = [*node.iter_child_nodes()]
        if isinstance(node, nodes.For):
            inner = [node.iter, *node.else_]
        if any(isinstance(each, nodes.Name) and each.name == "loop" for each in inner):
            yield node
        yield from _own_loop(inner)
