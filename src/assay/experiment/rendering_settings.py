"""How a stage or an evaluation writes conversations as text."""

from typing import Any

from pydantic import Field

from assay.experiment.base_table import Many, Table


class RenderingSettings(Table):
    """How conversations become text. Rows may carry template options of their own."""

    rendering: str = "auto"
    """How conversations become text: `template` (the tokenizer's own), `template_bare` (that
    without a system text of its own), `hermes`, `qwen3` or `qwen3_fc`; `auto` is `template` where
    that writes tools, calls and results, else `hermes`; `completion` is bare text
    without roles."""
    template_options: dict[str, Any] | None = None
    """Variables of the chat template, such as `{ enable_thinking = false }`; rows and their data
    set may name others, or the same values."""
    keep_special: Many[str] | None = Field(default=None, min_length=1)
    """Special tokens that assistant messages may hold, such as `["<think>", "</think>"]`; others
    are written as ordinary text."""


def rendering_key(settings: RenderingSettings) -> str:
    """The same for tables that write conversations alike."""
    return repr([getattr(settings, name) for name in RenderingSettings.model_fields])
