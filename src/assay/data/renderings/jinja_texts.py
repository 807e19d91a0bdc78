"""The renderings as Jinja, for programs that know chat templates and not Assay.

`hermes` is written as a beginning for the model's own template, the Qwen renderings stand alone.
One thing of `qwen3_fc` has no words in Jinja: a call that stands in an earlier answer as mere text
is not read and written anew. Which text a checkpoint gets is `exported_template`'s part.
"""

from functools import cache
from importlib.resources import files

from assay.data.renderings import hermes, qwen

DATE = "26 Jul 2024"
"""The date every template is told: the one Llama 3's own template falls back to."""

DATED = f'{{%- if date_string is not defined %}}{{%- set date_string = "{DATE}" %}}{{%- endif %}}\n'
"""Tells a template the date of training, unless its caller names another."""


@cache
def hermes_beginning() -> str:
    """What goes before a template that writes plain messages, to make it write `hermes`."""
    return _text("hermes.jinja").replace("INSTRUCTION", _quoted(hermes.INSTRUCTION))


@cache
def qwen_template(handler: bool) -> str:
    """The whole template of `qwen3_fc` where `handler`, else of `qwen3`."""
    text = _text("qwen.jinja").replace("NAME", "qwen3_fc" if handler else "qwen3")
    text = text.replace("HANDLER", "true" if handler else "false")
    text = text.replace("BEFORE_TOOLS", _quoted(qwen.BEFORE_TOOLS))
    return text.replace("AFTER_TOOLS", _quoted(qwen.AFTER_TOOLS))


def undressed(source: str) -> str:
    """A model's own template, without what `exported_template` put before it."""
    return source.removeprefix(DATED).removeprefix(hermes_beginning())


def _text(name: str) -> str:
    return (files("assay.data.renderings") / name).read_text(encoding="utf-8")


def _quoted(text: str) -> str:
    """The text inside single quotes, as Jinja reads them."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
