"""What a comparison says of its runs before any figure: overridden checks, and right answers seen.

Refuses nothing; what may not be compared is `fairness`'.
"""

from collections.abc import Sequence

from assay.compare.arm import Arm, Provenance
from assay.judge.finding_words import finding
from assay.judge.findings import Finding
from assay.runs.manifest_file import overridden, saw_answers


def marked_runs(arms: Sequence[Arm]) -> list[Finding]:
    """The findings about the runs that arms of a lab come from."""
    origins = [arm.provenance for arm in arms if arm.provenance is not None]
    return [*_overridden(origins), *_bounds(origins)]


def _overridden(origins: Sequence[Provenance]) -> list[Finding]:
    """A finding for each run that was made although its checks ended with errors."""
    reasons = {str(origin.run): overridden(origin.manifest) for origin in origins}
    return [
        finding("despite", "warning", run=run, reason=reason)
        for run, reason in reasons.items()
        if reason
    ]


def _bounds(origins: Sequence[Provenance]) -> list[Finding]:
    """A finding that names the runs whose model chose by the items' own answers."""
    runs = dict.fromkeys(str(origin.run) for origin in origins if saw_answers(origin.manifest))
    return [finding("saw_answers", "warning", names=", ".join(runs))] if runs else []
