"""The presets, here and in other tools, as Markdown: `python -m tests.docs.preset_tables`."""

import re

from assay.rl.presets import ELSEWHERE, PRESETS


def presets() -> str:
    """A table of what each preset sets."""
    head = (
        "preset | advantage | loss | aggregation | clip low, high | dual | dropped groups | source"
    )
    lines = [
        f"| {head} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, preset in PRESETS.items():
        clip = f"{preset.clip_low:g}, {preset.clip_high:g}"
        dual = f"{preset.dual_clip:g}" if preset.dual_clip else "none"
        dropped = "counted" if preset.keep_dropped_in_denominator else "not counted"
        names = f"`{preset.advantage}` | `{preset.loss}` | `{preset.aggregation}`"
        source = re.split(r"[:;(]| with ", preset.source)[0].strip()
        lines.append(f"| `{name}` | {names} | {clip} | {dual} | {dropped} | {source} |")
    return "\n".join(lines)


def other_tools() -> str:
    """The same settings in TRL, verl and ms-swift."""
    lines = ["| preset | TRL | verl | ms-swift |", "|---|---|---|---|"]
    for name, tools in ELSEWHERE.items():
        cells = [
            "<br>".join(f"`{key}={value}`" for key, value in settings.items()) or "–"
            for settings in tools.values()
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(presets(), other_tools(), sep="\n\n")
