"""Links, the circuits that make them, and what topologies and replacements need."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.errors import RackError
from testbed.hal.types import Circuit
from testbed.hal.wiring import Endpoint, Fibre, SwitchPort, Wiring
from testbed.rack.circuits import Link, PlacedCircuit, circuits_of, endpoints_in, links_in
from testbed.rack.links import pairs, replacement, ring


def wired(hosts: int, interfaces: int, *, rails: bool = False) -> Wiring:
    """Hosts with all interfaces on one switch, or interface ``n`` of each on switch ``n``."""
    fibres = []
    used: Counter[str] = Counter()
    for host in range(hosts):
        for interface in range(interfaces):
            switch = f"ocs{interface if rails else 0}"
            for transmits in (True, False):
                port = SwitchPort(switch, str(used[switch]))
                used[switch] += 1
                fibres.append(Fibre(Endpoint(f"host{host}", f"p{interface}"), port, transmits))
    return Wiring.of(fibres, ())


def link(one: str, other: str) -> Link:
    return Link.between(Endpoint.parse(one), Endpoint.parse(other))


@st.composite
def wiring_and_links(draw):
    wiring = wired(draw(st.integers(2, 6)), draw(st.integers(1, 4)))
    ends = draw(st.permutations(wiring.endpoints))
    count = draw(st.integers(0, len(ends) // 2))
    return wiring, frozenset(Link.between(ends[2 * n], ends[2 * n + 1]) for n in range(count))


def circuits(links, wiring):
    return {c for item in links for c in circuits_of(item, wiring)}


@given(wiring_and_links())
def test_circuits_of_links_are_those_links_again(case):
    wiring, links = case
    assert links_in(circuits(links, wiring), wiring) == links
    ports = [port for c in circuits(links, wiring) for port in c.ports]
    assert len(ports) == len(set(ports)) == 4 * len(links)
    assert endpoints_in(circuits(links, wiring), wiring) == {e for k in links for e in k.ends}


@given(wiring_and_links(), st.data())
def test_a_circuit_without_its_way_back_makes_no_link(case, data):
    wiring, links = case
    assume(links)
    gone = data.draw(st.sampled_from(sorted(circuits(links, wiring))))
    found = links_in(circuits(links, wiring) - {gone}, wiring)
    assert found == {k for k in links if gone not in circuits_of(k, wiring)}
    # ... and its interfaces are in use all the same.
    assert endpoints_in(circuits(links, wiring) - {gone}, wiring) == {
        e for k in links for e in k.ends
    }


def test_circuits_between_ports_without_hosts_and_loops_make_no_link():
    wiring = wired(2, 1)
    loop = PlacedCircuit("ocs0", Circuit("0", "1"))
    foreign = PlacedCircuit("ocs0", Circuit("90", "91"))
    against = PlacedCircuit("ocs0", Circuit("1", "2"))
    assert links_in([loop, foreign, against], wiring) == frozenset()


@given(st.integers(2, 6), st.integers(2, 4), st.randoms())
def test_a_ring_uses_two_interfaces_of_each_host_and_closes(count, interfaces, random):
    wiring = wired(count, interfaces)
    hosts = [f"host{n}" for n in range(count)]
    random.shuffle(hosts)
    links = ring(hosts, wiring)
    joined = [frozenset((k.a.host, k.b.host)) for k in links]
    assert joined == [frozenset(p) for p in zip(hosts, [*hosts[1:], hosts[0]], strict=True)]
    ends = [end for k in links for end in k.ends]
    assert len(set(ends)) == 2 * count
    assert set(Counter(end.host for end in ends).values()) == {2}


def test_two_hosts_make_a_ring_of_two_links():
    assert ring(["host0", "host1"], wired(2, 2)) == (
        link("host0.p1", "host1.p0"),
        link("host1.p1", "host0.p0"),
    )


def test_a_ring_over_rails_chooses_interfaces_at_the_same_switch():
    wiring = wired(4, 2, rails=True)
    links = ring([f"host{n}" for n in range(4)], wiring)
    assert all(k.a.interface == k.b.interface for k in links)
    assert len(circuits(links, wiring)) == 8
    with pytest.raises(RackError, match="no choice of interfaces makes a ring"):
        ring(["host0", "host1", "host2"], wiring)


def test_a_ring_over_many_rails_is_found_at_once():
    """No dead end is tried twice: 15 hosts cannot close over two rails, with 2^15 ways to try."""
    wiring = wired(15, 2, rails=True)
    start_s = time.perf_counter()
    with pytest.raises(RackError):
        ring([f"host{n}" for n in range(15)], wiring)
    assert time.perf_counter() - start_s < 0.5


@pytest.mark.parametrize(
    ("hosts", "busy", "message"),
    [
        (["host0"], [], "two or more different hosts"),
        (["host0", "host0"], [], "two or more different hosts"),
        ([], [], "not none"),
        (["host0", "host1"], ["host1.p0"], "host1 has 1 free wired"),
        (["host0", "host9"], [], "host9 has 0 free wired"),
    ],
)
def test_an_impossible_ring_names_the_host(hosts, busy, message):
    with pytest.raises(RackError, match=message):
        ring(hosts, wired(2, 2), [Endpoint.parse(e) for e in busy])


def test_pairs_take_free_interfaces_in_order():
    wiring = wired(3, 2)
    assert pairs([("host0", "host1"), ("host0", "host2")], wiring) == (
        link("host0.p0", "host1.p0"),
        link("host0.p1", "host2.p0"),
    )
    with pytest.raises(RackError, match="no free wired interface is left at host0 and host1"):
        pairs([("host0", "host1")] * 3, wiring)
    with pytest.raises(RackError, match="two different hosts"):
        pairs([("host0", "host0")], wiring)


def test_a_pair_over_rails_shares_a_switch():
    wiring = wired(2, 2, rails=True)
    taken = [Endpoint.parse("host0.p0")]
    assert pairs([("host0", "host1")], wiring, taken) == (link("host0.p1", "host1.p1"),)


@given(wiring_and_links(), st.data())
def test_a_replacement_puts_the_spare_where_the_failed_host_was(case, data):
    """Everybody else's links stay, neighbours keep their interfaces, no port is used twice."""
    wiring, links = case
    hosts = sorted({e.host for e in wiring.endpoints})
    failed = data.draw(st.sampled_from(hosts))
    spare = data.draw(st.sampled_from([h for h in hosts if h != failed]))
    busy = {end for k in links for end in k.ends}
    try:
        change = replacement(links, failed, spare, wiring, busy)
    except RackError:
        torn = [k for k in links if k.touches(failed)]
        outward = [k for k in torn if k.peer_of(failed).host != failed]
        free = [e for e in wiring.endpoints_of(spare) if e not in busy]
        assert not torn or len(free) < len(outward) or any(k.touches(spare) for k in torn)
        return
    assert all(k.touches(failed) for k in change.remove)
    after = (links - set(change.remove)) | set(change.add)
    assert not any(k.touches(failed) for k in after)
    assert {k for k in links if not k.touches(failed)} <= after
    ends = [end for k in after for end in k.ends]
    assert len(ends) == len(set(ends))
    assert links_in(circuits(after, wiring), wiring) == after

    def neighbours(of, among):
        return Counter(k.peer_of(of) for k in among if k.touches(of) and k.a.host != k.b.host)

    assert neighbours(spare, change.add) == neighbours(failed, links)


def test_a_replacement_that_cannot_be_says_why():
    wiring = wired(4, 2)
    links = set(ring(["host0", "host1", "host2"], wiring))
    with pytest.raises(RackError, match="its own spare"):
        replacement(links, "host0", "host0", wiring)
    with pytest.raises(RackError, match="host3 has no links"):
        replacement(links, "host3", "host0", wiring)
    with pytest.raises(RackError, match="linked to host0 already"):
        replacement(links, "host0", "host1", wiring)
    busy = {Endpoint.parse("host3.p1")}
    with pytest.raises(RackError, match=r"host3 has 1 free wired interface\(s\); host0 had 2"):
        replacement(links, "host0", "host3", wiring, busy)


def test_a_replacement_over_rails_keeps_to_the_switch_of_the_peer():
    wiring = wired(4, 2, rails=True)
    links = {link("host0.p0", "host1.p0"), link("host1.p1", "host2.p1")}
    change = replacement(links, "host1", "host3", wiring)
    assert set(change.add) == {link("host0.p0", "host3.p0"), link("host2.p1", "host3.p1")}
    with pytest.raises(RackError, match=r"link to host2.p1, none at the same switch"):
        replacement(
            {link("host1.p1", "host2.p1")}, "host1", "host3", wiring, {Endpoint.parse("host3.p1")}
        )


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (("host0.p0", "host9.p0"), "host9.p0 is not wired"),
        (("host0.p0", "host1.p1"), "no circuit joins two switches"),
        (("host0.p0", "host0.p0"), "linked to itself"),
    ],
)
def test_an_impossible_link_is_named(ends, message):
    with pytest.raises(RackError, match=message):
        circuits_of(link(*ends), wired(2, 2, rails=True))


def test_links_of_a_320_port_switch_are_found_within_two_milliseconds():
    wiring = wired(80, 2)  # 160 interfaces, 320 ports
    hosts = [f"host{n}" for n in range(80)]
    links = ring(hosts, wiring)
    made = circuits(links, wiring)
    assert len(made) == 160
    links_in(made, wiring)
    spent_s = []
    for _ in range(5):
        start_s = time.perf_counter()
        assert links_in(made, wiring) == frozenset(links)
        spent_s.append(time.perf_counter() - start_s)
    assert min(spent_s) < 0.002
