"""Tasks on the fabric and on one switch, over the mock twins."""

from __future__ import annotations

import itertools
import time

import pytest
from pydantic import ValidationError

from testbed.errors import RackError, StateMismatch, TaskFailed
from testbed.hal.types import Circuit, FaultSpec

RING = ["host0", "host1", "host2"]


def test_a_ring_is_made_verified_and_taken_down(bench):
    async def scenario(bench):
        made = await bench.do("fabric.connect", ring=RING)
        assert made["changed"]
        assert len(made["links"]) == 3
        assert made["circuits_added"] == 6
        assert 0 < made["acknowledged_s"] <= made["verified_s"] <= made["link_up_s"]
        await bench.do("fabric.verify", ring=RING, only=True)
        again = await bench.do("fabric.connect", ring=RING)
        assert not again["changed"]
        assert again["links"] == made["links"]
        gone = await bench.do("fabric.disconnect", hosts=["host0"])
        assert len(gone["removed"]) == 2
        with pytest.raises(TaskFailed, match="no link host0-host1, host0-host2"):
            await bench.do("fabric.verify", ring=RING)
        cleared = await bench.do("fabric.clear")
        assert cleared["circuits_removed"] == 2
        assert await bench.fabric.links() == frozenset()

    bench.run(scenario)
    assert bench.marks()[:4] == [
        "fabric.sent",
        "fabric.acknowledged",
        "fabric.verified",
        "fabric.link-up",
    ]


def test_links_and_pairs_are_made_as_named(bench):
    async def scenario(bench):
        await bench.do("fabric.connect", links=[["host1.p1", "host0.p0"]])
        await bench.do("fabric.verify", links=[["host0.p0", "host1.p1"]], only=True)
        made = await bench.do("fabric.connect", pairs=[["host2", "host3"], ["host2", "host3"]])
        assert len(made["links"]) == 2
        with pytest.raises(TaskFailed, match="unexpected link host2-host3"):
            await bench.do("fabric.verify", pairs=[["host2", "host3"]], only=True)

    bench.run(scenario)


def test_links_among_the_hosts_give_way_and_those_of_others_only_when_told(bench):
    async def scenario(bench):
        await bench.do("fabric.connect", ring=["host0", "host1"])
        await bench.do("fabric.connect", ring=["host2", "host3"])
        with pytest.raises(RackError, match="host2 has 0 free"):
            await bench.do("fabric.connect", ring=RING)
        moved = await bench.do("fabric.connect", ring=RING, replace=True)
        assert len(moved["removed"]) >= 2
        await bench.do("fabric.verify", ring=RING, only=True)

    bench.run(scenario)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"ring": RING, "pairs": [["host0", "host1"]]},
        {"ring": ["host0"]},
        {"links": [["a", "b"]]},
    ],
)
def test_a_topology_is_named_in_exactly_one_way(bench, args):
    with pytest.raises(ValidationError):
        bench.plan("fabric.connect", **args)


def test_a_plan_says_which_circuits_change_and_promises_the_links(bench):
    plan = bench.plan("fabric.connect", ring=["host0", "host1"])
    assert plan.devices == ("ocs0", "host0", "host1")
    assert plan.changes[0] == "link host0.p1-host1.p0 up (ocs0:3>6, ocs0:5>4)"
    assert len(bench.links) == 2
    assert bench.plan("fabric.connect", ring=["host0", "host1"]).changes == ()
    assert len(bench.plan("fabric.disconnect", hosts=["host0"]).changes) == 2
    assert bench.links == set()


def test_circuits_of_one_switch_are_applied_whole_or_beside_others(bench):
    async def scenario(bench):
        first = await bench.do("switch.apply", switch="ocs0", circuits=["1>2", [3, 4]])
        assert first["added"] == ["1>2", "3>4"]
        assert first["light_checked"]
        await bench.do("switch.apply", switch="ocs0", circuits=["1>6"], keep_others=True)
        assert await bench.twins["ocs0"].circuits() == {Circuit("1", "6"), Circuit("3", "4")}
        rest = await bench.do("switch.apply", switch="ocs0", circuits=["3>4"])
        assert (rest["removed"], rest["unchanged"]) == (["1>6"], 1)
        none = await bench.do("switch.apply", switch="ocs0", circuits=["3>4"])
        assert none["acknowledged_s"] is None and not none["changed"]

    bench.run(scenario)
    assert bench.marks() == ["switch.sent", "switch.acknowledged", "switch.verified"] * 3


@pytest.mark.parametrize("circuit", ["1", "1>2>3", ">2", [1], [True, 2], {"in": 1}, 12])
def test_what_is_no_circuit_is_refused(bench, circuit):
    with pytest.raises(ValidationError, match="no circuit"):
        bench.plan("switch.apply", switch="ocs0", circuits=[circuit])


def test_optical_power_is_read_per_port(bench):
    async def scenario(bench):
        await bench.do("switch.apply", switch="ocs0", circuits=["1>2"])
        read = await bench.do("switch.power", switch="ocs0", ports=[1, "2", "24"])
        assert read["dbm"]["1"] > read["dbm"]["2"] > -20
        assert read["lowest_dbm"] == read["dbm"]["24"] <= -50

    bench.run(scenario)


def test_a_soak_reconfigures_reads_back_and_puts_back_what_was_there(bench):
    async def scenario(bench):
        await bench.do("switch.apply", switch="ocs0", circuits=["1>2"])
        before = await bench.twins["ocs0"].circuits()
        result = await bench.do("switch.soak", switch="ocs0", rounds=50)
        assert (result["rounds"], result["failed"]) == (50, 0)
        assert result["circuits_changed"] > 50 * 12
        for part in ("acknowledge", "verify", "total"):
            assert result[part]["n"] == 50
        assert 0 < result["acknowledge"]["median"] <= result["total"]["median"]
        assert await bench.twins["ocs0"].circuits() == before

    bench.run(scenario)


def test_a_soak_over_some_ports_leaves_the_others_alone_and_is_seeded(make_bench):
    def once(seed):
        bench = make_bench(seed=seed)
        seen = []

        async def scenario(bench):
            await bench.do("switch.apply", switch="ocs0", circuits=["1>2"])
            apply = bench.twins["ocs0"].apply

            async def spy(target):
                seen.append(sorted(target))
                return await apply(target)

            bench.twins["ocs0"].apply = spy
            await bench.do(
                "switch.soak",
                switch="ocs0",
                rounds=20,
                circuits=3,
                change=1,
                ports=[str(n) for n in range(10, 20)],
            )

        bench.run(scenario)
        return seen

    seen = once(3)
    assert seen == once(3) != once(4)
    for before, after in itertools.pairwise(seen[:-1]):
        assert Circuit("1", "2") in after
        assert len(after) == 4
        assert len(set(after) - set(before)) <= 1
    assert seen[-1] == [Circuit("1", "2")]


def test_a_soak_fails_at_the_first_wrong_round_unless_it_may_go_on(bench):
    """TC81: a failed reconfiguration is never passed over."""
    partial = FaultSpec("partial", operation="send", count=1, after=2)

    async def scenario(bench):
        await bench.twins["ocs0"].inject(partial)
        with pytest.raises(StateMismatch, match="round 2 of 10, 1 failed"):
            await bench.do("switch.soak", switch="ocs0", rounds=10, circuits=4)
        await bench.twins["ocs0"].apply([])
        await bench.twins["ocs0"].inject(partial)
        result = await bench.do("switch.soak", switch="ocs0", rounds=10, circuits=4, tolerate=1)
        assert (result["failed"], result["acknowledge"]["n"]) == (1, 9)
        assert result["failures"][0]["round"] == 2

    bench.run(scenario)


def test_a_soak_refuses_what_the_ports_cannot_give(bench):
    async def scenario(bench):
        with pytest.raises(TaskFailed, match=r"13 circuits asked for.*allow 12"):
            await bench.do("switch.soak", switch="ocs0", circuits=13)
        with pytest.raises(TaskFailed, match="no port 99"):
            await bench.do("switch.soak", switch="ocs0", ports=["99"])

    bench.run(scenario)


def test_thousands_of_rounds_are_cheap(bench):
    async def scenario(bench):
        start_s = time.perf_counter()
        await bench.do("switch.soak", switch="ocs0", rounds=1000, circuits=8)
        return time.perf_counter() - start_s

    assert bench.run(scenario) < 5.0
