"""``apply`` of every switch: nothing sent in vain, nothing assumed, nothing half done unseen."""

from __future__ import annotations

import time

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.errors import DeviceRefused, StateMismatch
from testbed.hal.types import Circuit, PortState
from testbed.timing.clock import run

PORTS = 12
_port = st.integers(0, PORTS - 1).map(str)
_any_target = st.frozensets(st.builds(Circuit, _port, _port), max_size=5)


@st.composite
def valid_target(draw):
    ports = draw(st.permutations([str(n) for n in range(PORTS)]))
    count = draw(st.integers(0, PORTS // 2))
    return frozenset(Circuit(ports[2 * n], ports[2 * n + 1]) for n in range(count))


def virtually(main, *args):
    return run(main, *args, virtual=True)


@given(st.lists(valid_target(), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_sequence_of_valid_targets_is_reached_with_the_least_commands(make_switch, targets):
    switch = make_switch(PORTS)

    async def main():
        for target in targets:
            before, commands = frozenset(switch.now), len(switch.sent)
            report = await switch.apply(target)
            assert frozenset(switch.now) == target
            assert set(report.added) == target - before
            assert set(report.removed) == before - target
            assert report.unchanged == len(before & target)
            assert len(switch.sent) - commands == (1 if target != before else 0)
            if report.changed:
                assert report.sent_s < report.acknowledged_s <= report.verified_s
            else:
                assert report.sent_s is report.acknowledged_s is report.verified_s is None

    virtually(main)


@given(_any_target, st.sets(_port, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_refused_is_refused_before_anything_is_sent(make_switch, target, disabled):
    switch = make_switch(PORTS - 1)  # the last port does not exist
    for port in disabled - {str(PORTS - 1)}:
        switch.disable(port)
    uses = [p for c in target for p in (c.ingress, c.egress)]
    bad = len(uses) != len(set(uses)) or any(p in disabled or p == str(PORTS - 1) for p in uses)

    async def main():
        if not bad:
            await switch.apply(target)
            assert frozenset(switch.now) == target
            return
        with pytest.raises(DeviceRefused, match="nothing was sent") as caught:
            await switch.apply(target)
        assert caught.value.fields["faults"]
        assert switch.sent == []
        assert not switch.now

    virtually(main)


def test_every_fault_of_a_target_is_told_at_once(make_switch):
    switch = make_switch(6, ingress=3)
    switch.disable("1", PortState.FAILED)

    async def main():
        with pytest.raises(DeviceRefused) as caught:
            await switch.apply(
                [Circuit("0", "4"), Circuit("2", "4"), Circuit("1", "9"), Circuit("5", "0")]
            )
        assert caught.value.fields["faults"] == [
            "port 0 is ingress only: no light can leave there",
            "port 0 is used twice",
            "port 1 is failed",
            "port 4 is used twice",
            "port 5 is egress only: no light can enter there",
            "port 9 does not exist",
        ]

    virtually(main)


def test_a_circuit_that_exists_can_be_kept_on_a_port_that_was_disabled_meanwhile(make_switch):
    switch = make_switch()

    async def main():
        await switch.apply([Circuit("0", "1")])
        switch.disable("0")
        report = await switch.apply([Circuit("0", "1"), Circuit("2", "3")])
        assert (report.added, report.unchanged) == ((Circuit("2", "3"),), 1)

    virtually(main)


def test_a_partial_apply_is_a_mismatch_that_names_the_ports(make_switch):
    """TC66, TC81: what was acknowledged and not done fails the operation."""
    switch = make_switch()
    switch.now = {Circuit("6", "7")}
    switch.lose = {Circuit("2", "3"), Circuit("6", "7")}
    switch.sees_light = False

    async def main():
        with pytest.raises(StateMismatch, match=r"2>3 missing.*6>7 there although") as caught:
            await switch.apply([Circuit("0", "1"), Circuit("2", "3")])
        assert caught.value.fields["missing"] == ["2>3"]
        assert caught.value.fields["unexpected"] == ["6>7"]

    virtually(main)


def test_after_a_failure_the_next_apply_starts_from_what_is_read_back(make_switch):
    """TC78: unknown is never assumed good."""
    switch = make_switch()
    switch.lose = {Circuit("2", "3")}
    target = [Circuit("0", "1"), Circuit("2", "3")]

    async def main():
        with pytest.raises(StateMismatch):
            await switch.apply(target)
        switch.lose = set()
        report = await switch.apply(target)
        assert report.added == (Circuit("2", "3"),)
        assert report.unchanged == 1

    virtually(main)


def test_light_that_comes_late_is_waited_for_and_an_ack_is_not_light(make_switch):
    """TC66: the end is what is seen, and both instants are kept."""
    switch = make_switch()
    switch.light_after_s = 0.3

    async def main():
        report = await switch.apply([Circuit("0", "1")])
        assert report.light_checked
        assert report.acknowledged_s - report.sent_s == pytest.approx(0.010)
        assert 0.3 <= report.verified_s - report.acknowledged_s < 0.3 + 2 * switch.light_poll_s

    virtually(main)


def test_light_that_does_not_come_is_told_after_exactly_its_deadline(make_switch):
    """TC28: the message has what was wanted and what was seen last."""
    switch = make_switch()
    switch.unlit = {Circuit("0", "1")}

    async def main():
        start_s = trio.current_time()
        with pytest.raises(StateMismatch, match="no light through 0>1") as caught:
            await switch.apply([Circuit("0", "1"), Circuit("2", "3")])
        assert trio.current_time() - start_s == pytest.approx(0.010 + switch.light_deadline_s)
        assert caught.value.last_state == "acknowledged; 2 circuits, 1 of them dark"
        assert caught.value.fields["dark"] == ["0>1"]

    virtually(main)


def test_two_applies_of_one_switch_run_one_after_the_other(make_switch):
    switch = make_switch()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(switch.apply, [Circuit("0", "1")])
            nursery.start_soon(switch.apply, [Circuit("0", "2")])
        assert len(switch.now) == 1
        assert len(switch.sent) == 2
        assert switch.sent[1][0] == switch.sent[0][1]  # the second took down what the first made

    virtually(main)


def test_applying_160_circuits_on_320_ports_costs_two_milliseconds_at_most(make_switch):
    """Our own time: the fake's own work is in it, its virtual delays are not."""
    switch = make_switch(320)
    first = [Circuit(str(2 * n), str(2 * n + 1)) for n in range(160)]
    second = [Circuit(str(2 * n + 1), str(2 * n)) for n in range(160)]

    async def main():
        spent_s = []
        for target in [first, second] * 10:
            before_s = time.perf_counter()
            await switch.apply(target)
            spent_s.append(time.perf_counter() - before_s)
        return min(spent_s)

    assert virtually(main) < 0.002
