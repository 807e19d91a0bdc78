"""The training tables of a matrix: epochs of every run, what its KL means, and the data files.

Plain values for HTML, Markdown and the terminal. Figures come from the matrix.
"""

from assay.lab.sweep.matrix.model import Matrix
from assay.lab.sweep.matrix.training_epochs import DataFile, Epoch, StageEpochs
from assay.pages.matrix.matrix_changes import BlockView, PlainTable
from assay.pages.words import Words, number, visible

METRICS = (
    "loss",
    "validation_loss",
    "policy_loss",
    "kl",
    "advantage_std",
    "advantage_max",
    "kl_coef",
    "reward_mean",
)
CHANGING = ("loss", "policy_loss", "kl")
"""Metrics that are shown with their change since the epoch before."""
AT_START = 0.01
"""A KL of the first step above this, against the start itself, has another cause than training."""


def training_views(matrix: Matrix, words: Words) -> list[BlockView]:
    """One view for each stage of each run, with what its figures mean."""
    return [_view(each, words) for each in matrix.trainings]


def _view(found: StageEpochs, words: Words) -> BlockView:
    shown = [name for name in METRICS if any(name in e.values for e in found.epochs)]
    head = (words("training.epoch"), *(words(f"training.{name}") for name in shown))
    before: list[Epoch | None] = [None, *found.epochs]
    rows = [
        (f"{epoch.number}", *(_value(earlier, epoch, name) for name in shown))
        for earlier, epoch in zip(before, found.epochs, strict=False)
    ]
    title = words("training.title", run=visible(found.run), stage=found.stage, method=found.method)
    said = [line for line in (_identity(found, words), *_kl(found, words)) if line]
    return BlockView(title, (PlainTable(head, tuple(rows)),), tuple(said))


def _value(earlier: Epoch | None, epoch: Epoch, name: str) -> str:
    value = epoch.values.get(name)
    if value is None:
        return "–"
    text = f"{value:.4g}".replace("-", "−")
    change = percent_change(earlier, epoch, name) if earlier and name in CHANGING else None
    return text if change is None else f"{text} ({change:+.1%})".replace("-", "−")


def percent_change(before: Epoch, after: Epoch, name: str) -> float | None:
    """The change of a metric as a share of its value before; None where that is not above 0, which
    no change is a share of."""
    first, second = before.values.get(name), after.values.get(name)
    return None if first is None or second is None or first <= 0 else second / first - 1


def _identity(found: StageEpochs, words: Words) -> str:
    """That the loss is the sum of its parts, or where it is not."""
    identity = found.identity
    if identity is None:
        return ""
    if not identity.wrong:
        return words("training.identity_holds", steps=identity.steps)
    steps = ", ".join(map(str, identity.wrong[:5]))
    figures = {"wrong": len(identity.wrong), "steps": steps, "gap": f"{identity.largest:.3g}"}
    return words("training.identity_broken", **figures)


def _kl(found: StageEpochs, words: Words) -> list[str]:
    """In which direction the policy moved, by its KL."""
    measured = [e for e in found.epochs if "kl" in e.values]
    if not measured or not found.reference:
        return []
    first, last = (e.values["kl"] for e in (measured[0], measured[-1]))
    reference = words(f"training.reference_{found.reference}")
    kind = "fell" if last < first else "rose" if last > first else "same"
    figures = {"first": f"{first:.4g}", "last": f"{last:.4g}", "reference": reference}
    said = [words(f"training.kl_{kind}", **figures)] if len(measured) > 1 else []
    if found.reference == "stage_start" and (found.first_kl or 0) > AT_START:
        said.append(words("training.kl_at_start", kl=f"{found.first_kl:.4g}"))
    return said


def data_view(matrix: Matrix, words: Words) -> BlockView | None:
    """What the runs learned from; None where no run has a manifest that says so."""
    files = matrix.data_files
    if not files:
        return None
    columns = ("data", "contents", "rows", "mean_reward", "positive_queries")
    head = tuple(words(f"training.{c}") for c in (*columns, "positive_candidates", "runs"))
    rows = tuple(_file_row(each, words) for each in files)
    names = [each.name for each in files]
    several = sorted({name for name in names if names.count(name) > 1})
    said = [words("training.files_differ", name=visible(f"data.{name}")) for name in several]
    return BlockView(words("training.files"), (PlainTable(head, rows),), tuple(said))


def _file_row(found: DataFile, words: Words) -> tuple[str, ...]:
    groups = found.groups
    shares = [
        _share(groups.get(f"positive_{each}"), groups.get(each), words)
        for each in ("queries", "candidates")
    ]
    mean = f"{groups['mean_reward']:.4f}" if "mean_reward" in groups else "–"
    runs = words.listing.join(map(visible, found.runs))
    name, contents = visible(f"data.{found.name}"), f"sha256:{found.contents[:8]}"
    return (name, contents, number(found.rows), mean, *shares, runs)


def _share(count: float | None, total: float | None, words: Words) -> str:
    if count is None or not total:
        return "–"
    return words("training.share", count=count, total=total, share=f"{count / total:.1%}")
