"""What a comparison says of the demonstrations that selectors picked, in sentences.

Figures are those of `compare.selection_pairs`; nothing is judged here.
"""

from collections.abc import Mapping

from assay.compare.selection_pairs import PickedTable, SelectionPair
from assay.compare.table import Table
from assay.judge.selection_agreement import SelectionUse
from assay.pages.words import Words, number


def picked_sentences(table: Table, labels: Mapping[str, str], words: Words) -> list[str]:
    """One sentence for each pair of checkpoints and one for each checkpoint; none where the answers
    are no selections."""
    found: PickedTable | None = table.picked
    if found is None:
        return []
    pairs = [_pair(pair, labels, words) for pair in found.pairs]
    return [*pairs, *(_use(labels[name], use, words) for name, use in found.uses.items())]


def _pair(pair: SelectionPair, labels: Mapping[str, str], words: Words) -> str:
    found = pair.agreement
    said = words(
        "picked.identical" if found.identical else "picked.pair",
        control=labels[pair.control],
        other=labels[pair.other],
        queries=found.queries,
        order=found.same_order,
        set=found.same_set,
        jaccard=f"{found.jaccard:.3f}",
    )
    if pair.changed is None or pair.moved is None:
        return said
    weights = words("picked.weights", changed=f"{pair.changed:.2%}", moved=f"{pair.moved:.2g}")
    return said + weights


def _use(label: str, use: SelectionUse, words: Words) -> str:
    return words(
        "picked.use",
        label=label,
        queries=use.queries,
        picks=number(use.picks),
        distinct=number(use.distinct),
        effective=f"{use.effective:.1f}",
        entropy=f"{use.entropy:.2f}",
    )
