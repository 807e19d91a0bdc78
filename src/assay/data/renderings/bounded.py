"""Tries a chat template in another process with limits, since some never end or fill the memory.

A template is a program that came with a model. This checks only that it ends on a short
conversation; its errors and output appear when the caller renders. Run as a file, this is that
process: it imports nothing of Assay, and reads the template from standard input.
"""

import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache

import jinja2
from jinja2 import meta, nodes, parser
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS = 3
"""A sound template takes milliseconds."""
WALL_SECONDS = 60
"""For machines that have other work to do."""
MEMORY = 1 << 30
USES_TOO_MUCH = 3
"""Exit code where the memory was not enough."""


@lru_cache(maxsize=64)
def ends(source: str) -> bool:
    """Whether the template ends on a short conversation, with tools and without, within limits."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__],
            input=source.encode(errors="surrogatepass"),
            capture_output=True,
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode not in (USES_TOO_MUCH, *range(-64, 0))


@lru_cache(maxsize=64)
def variables(source: str) -> frozenset[str]:
    """The names that a template takes from its caller. Raises jinja2's TemplateSyntaxError."""
    return frozenset(meta.find_undeclared_variables(environment().parse(source)))


def environment() -> ImmutableSandboxedEnvironment:
    """What Transformers reads templates in."""
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )


class Generation(Extension):
    """The `{% generation %}` blocks that some templates mark answers with; taken as they stand."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: parser.Parser) -> list[nodes.Node]:
        """The nodes inside the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def conversations() -> Iterator[dict[str, object]]:
    """What a template may be asked to write."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    for tools in (None, [{"type": "function", "function": function}]):
        for generation in (False, True):
            yield {"messages": messages, "tools": tools, "add_generation_prompt": generation}


def try_out(source: str) -> None:
    """Render every conversation; one on which the template fails ended all the same."""
    reading = environment()
    reading.globals["strftime_now"] = lambda format: ""
    reading.globals["raise_exception"] = raise_exception
    template = reading.from_string(source)
    for given in conversations():
        try:
            template.render(bos_token="", eos_token="", date_string="", **given)
        except MemoryError:
            raise
        except Exception as error:
            print(type(error).__name__)


def raise_exception(message: object) -> None:
    """What templates call to refuse a conversation."""
    raise jinja2.TemplateError(str(message))


def main() -> None:
    """The process: limits first."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        try_out(sys.stdin.buffer.read().decode(errors="surrogatepass"))
    except MemoryError:
        sys.exit(USES_TOO_MUCH)
    except Exception as error:
        print(type(error).__name__)


if __name__ == "__main__":
    main()
