"""What a rule found: how bad it is, what it is, the evidence, and what to do.

Shared by every rule that looks at an experiment, a run or a report. No rule is here.
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, in words fit to be shown as they are."""

    severity: Severity
    what: str
    evidence: str
    fix: str


def worst_first(findings: list[Finding]) -> list[Finding]:
    """The findings with errors first, then warnings, then notes; otherwise in order."""
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(findings, key=lambda finding: order[finding.severity])
