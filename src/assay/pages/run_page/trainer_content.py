"""What a run says about another trainer: of a stage that it trained for this run, by which tool, at
what cost, and what of the settings means something else there; of a run that it made, where that is
from and what is not known of it."""

from collections.abc import Mapping
from typing import Any

from assay.pages.facts import RunFacts
from assay.pages.page import Block, Bullets, Mark, Text
from assay.pages.words import Words, number, visible
from assay.runs.manifest_file import IMPORTED, WENT_ON

TITLES = {"trl": "TRL", "verl": "verl", "swift": "ms-swift"}
"""What the tools are called; in small letters, their packages."""


def trainer_blocks(facts: RunFacts, stage: str, words: Words) -> list[Block]:
    """Nothing for a stage that Assay trained, or that was taken over (`imported_blocks`)."""
    spec = facts.experiment.stage[stage]
    if spec.trainer is None or IMPORTED in facts.manifest:
        return []
    tool, lines = TITLES[spec.trainer], facts.metrics[stage]
    unlike = facts.manifest.get("stages", {}).get(stage, {}).get("unlike", {})
    seconds = sum(line.get("cpu_seconds") or 0 for line in lines)
    peak = max((line.get("peak_memory_mb") or 0 for line in lines), default=0)
    given = {"seconds": number(seconds), "memory": number(peak)}
    version = visible(str(facts.manifest.get("packages", {}).get(tool.lower(), "")))
    about = words("trainer.about", tool=tool, version=version, **given)
    found: list[Block] = [Text(about, "soft")]
    for noted in facts.manifest.get("time", {}).get(WENT_ON, ()):
        if noted["stage"] == stage:
            found.append(Text(went_on(noted, words), "soft"))
    if unlike:
        allowed = spec.allow or ()
        found.append(Text(words("trainer.unlike", tool=tool), "soft"))
        told = ((key, words("trainer.allowed") if key in allowed else "") for key in unlike)
        found.append(Bullets([[Mark(key, "code"), f"{mark}: {unlike[key]}"] for key, mark in told]))
    return found


def went_on(noted: Mapping[str, Any], words: Words) -> str:
    """What a training that was killed could not keep."""
    drawn = words(f"trainer.drawn_{'again' if noted['draws_again'] else 'on'}")
    return words("trainer.went_on", at=visible(noted["at"]), step=noted["step"], drawn=drawn)


def imported_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """Nothing of a run that was made here."""
    found = facts.manifest.get(IMPORTED)
    if not found:
        return []
    told = {"package": visible(found["package"]), "folder": visible(found["folder"])}
    blocks: list[Block] = [Text(words("imported.about", **told))]
    if unknown := found.get("unknown"):
        blocks += [Text(words("imported.unknown"))]
        blocks += [Bullets([(Mark(visible(path), "code"),) for path in unknown])]
    if differences := found.get("differences"):
        blocks += [Text(words("imported.differences"))]
        lines = differences.items()
        blocks += [Bullets([(Mark(visible(k), "code"), words.colon, visible(v)) for k, v in lines])]
    if unasked := found.get("unasked"):
        blocks += [Text(words("imported.unasked"))]
        blocks += [Bullets([(Mark(visible(path), "code"),) for path in unasked])]
    if any(measurement.missing for measurement in facts.reported):
        blocks += [Text(words("imported.unmeasured", name=visible(facts.run.name)))]
    return blocks
