"""What a page says of a run that another trainer made: where it is from, what is not known of it,
what its tool does otherwise. Its configuration stands among the fingerprints."""

from assay.pages.facts import RunFacts
from assay.pages.page import Block, Bullets, Mark, Text
from assay.pages.words import Words, visible
from assay.runs.manifest_file import IMPORTED


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
    return blocks
