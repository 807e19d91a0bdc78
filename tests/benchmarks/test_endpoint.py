"""The benchmark of the endpoint client: its ratios are those of its rounds, over both."""

import pytest
from benchmarks.endpoint import CALLS, Round, Service, bare_request, measure, summary

from benchmarks import endpoint

SERVICE = Service(0.5, 50)


def rounds(bare: float, wall: float) -> list[dict[str, Round]]:
    """A first round that counts for nothing, and three of which one is an outlier."""
    first = {name: Round(99.0, 9.0, 9.0) for name in ("bare", "from_threads")}
    steady = {"bare": Round(bare, 0.2, 0.4), "from_threads": Round(wall, 0.8, 0.6)}
    outlier = {"bare": Round(50.0, 5.0, 5.0), "from_threads": Round(50.0, 5.0, 5.0)}
    return [first, steady, outlier, steady]


def test_the_overhead_is_over_the_bare_client_and_the_ideal_beside_it():
    assert SERVICE.ideal == 2.0, "four rounds of half a second"
    found = summary(SERVICE, rounds(2.5, 2.7), "from_threads")
    assert found["over_bare"] == pytest.approx(0.08) and found["over_ideal"] == pytest.approx(0.35)
    assert found["bare_over_ideal"] == pytest.approx(0.25) and found["meets_target"]
    assert found["cpu_ms_per_call"] == pytest.approx(800 / CALLS)
    assert found["server_cpu_ms_per_call"] == pytest.approx(600 / CALLS)
    assert found["first_wall"] == 99.0 and len(found["walls"]) == 3
    assert not summary(SERVICE, rounds(2.5, 2.76), "from_threads")["meets_target"]


def test_a_bare_request_is_one_that_servers_read():
    head, _, body = bare_request(7, 80).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\n")
    assert head.endswith(b"Content-Length: %d" % len(body)) and b'"7. Solve' in body


@pytest.mark.slow
def test_both_ways_and_the_bare_client_are_measured_on_one_server(monkeypatch):
    monkeypatch.setattr(endpoint, "CALLS", 6)
    monkeypatch.setattr(endpoint, "ROUNDS", 2)
    ways = measure(Service(0.05, 6))
    assert [each["work"] for each in ways] == ["httpx", "from_threads", "as_one_batch"]
    for each in ways:
        assert each["wall"] >= 0.05 <= each["bare_wall"] and len(each["walls"]) == 2
        assert each["cpu_ms_per_call"] > each["bare_cpu_ms_per_call"] > 0
