"""Every rule finds its fault, and is silent where the fault is mended."""

from collections.abc import Callable, Iterable

import pytest

from assay.data.reported.reported_record import Reported
from assay.errors import Finding
from assay.judge.audit.rules import RULES, audit, audit_all
from tests.judge.audit.faults import FAULTS, found, record


@pytest.mark.parametrize("key", FAULTS)
def test_the_fault_is_found_and_the_mended_record_left_alone(key: str):
    faulty, mended = FAULTS[key]
    assert found(faulty, key) and not found(mended, key)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_fault(rule: Callable[[Reported], Iterable[Finding]]):
    assert any(list(rule(record(faulty))) for faulty, _ in FAULTS.values())


def test_findings_come_worst_first():
    text = FAULTS["inside_noise"][0].replace("20.0", "20.3") + FAULTS["left_open"][0]
    severities = [flaw.severity for flaw in audit(record(text))]
    assert audit_all([record(text)] * 2) == audit(record(text))
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert len(set(severities)) == 3


def test_an_empty_record_has_no_findings():
    assert audit(record("")) == []
