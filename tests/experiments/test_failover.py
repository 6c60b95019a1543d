"""Every policy against every fault, and what happens when recovery itself meets a failure."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.failover.detection import Watches
from experiments.failover.policy import policy, policy_names
from experiments.failover.spares import NoSpare
from experiments.failover.tasks import RunArgs, WatchArgs, run, watch
from experiments.training.job import Jobs
from experiments.training.tasks import StartArgs, WaitArgs, start, wait
from testbed.errors import DeviceRefused, TaskFailed
from testbed.rack.links import ring
from testbed.timing.clock import now_s
from testbed.timing.phases import RECOVERY_PHASES, phase_durations_s

POLICIES = ("lumion", "morphlux", "restart", "migrate")
FAULTS = ("process-kill", "power-off", "gpu-xid")
RESTARTING = ("morphlux", "restart", "migrate")


async def trial(
    lab: Any,
    kind: str = "process-kill",
    hosts: tuple[str, ...] = ("host0", "host1"),
    standby: tuple[str, ...] = ("host3",),
    victim: str = "host1",
    job: dict[str, Any] | None = None,
    before_recovery: Any = None,
    **failover: Any,
) -> dict[str, Any]:
    """The playbook of a failover, task by task."""
    lab.connect(*ring(hosts, lab.rack.wiring))
    await start(lab, StartArgs(id="train", hosts=hosts, standby=standby, **(job or {})))
    await wait(lab, WaitArgs(id="train", step=20))
    lab.fault(kind, victim)
    if before_recovery is not None:
        lab.start_soon(before_recovery, name="second fault")
    result = dict(await run(lab, RunArgs(job="train", **failover)) or {})
    after = await wait(lab, WaitArgs(id="train", steps_after_recovery=20))
    return {**result, "after": dict(after or {})}


def test_the_four_policies_are_installed_as_any_other_would_be() -> None:
    assert set(POLICIES) <= set(policy_names())
    with pytest.raises(ValueError, match=r"there are .*lumion"):
        policy("lumio")


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_recovers_from_every_fault_with_all_phases(
    make_lab: Any, name: str, kind: str
) -> None:
    """TC82: each phase of the recovery is visible, in order, and they add up."""
    lab = make_lab(seed=3)
    result = lab.run(lambda lab: trial(lab, kind, policy=name))
    timeline = lab.timeline
    phases = phase_durations_s(timeline)
    assert all(phases[phase.name] is not None for phase in RECOVERY_PHASES), phases
    marks = [timeline.find(phase.end_mark).t_s for phase in RECOVERY_PHASES]
    assert marks == sorted(marks)
    begun = timeline.find("fault.injected").t_s
    assert sum(phases.values()) == pytest.approx(marks[-1] - begun)
    assert result["failed"] == ["host1"]
    assert result["after"]["hosts"] == result["hosts"]
    assert "host1" not in result["hosts"]
    assert result["bandwidth_ratio"] == pytest.approx(1.0, abs=0.02)
    if name == "lumion":
        assert result["lost_steps"] == 0
        assert result["blast_radius"]["workers_kept"] == ["host0/0"]
        assert result["blast_radius"]["workers_ended"] == []
        assert marks[-1] - begun < 1.2
    else:
        assert result["lost_steps"] > 0
        assert result["blast_radius"]["workers_kept"] == []
        assert marks[-1] - begun > 1.3  # a start of the program is part of it
    assert (name == "migrate") == ("host0" not in result["hosts"])


def test_migration_moves_the_whole_job(make_lab: Any) -> None:
    result = make_lab().run(lambda lab: trial(lab, policy="migrate"))
    assert len(result["spares"]) == 2
    assert not {"host0", "host1"} & set(result["hosts"])


def test_circuits_follow_from_the_links_and_touch_nobody_else(make_lab: Any) -> None:
    lab = make_lab()

    async def with_a_neighbour(lab: Any) -> Any:
        lab.connect(*ring(("host4", "host5"), lab.rack.wiring))
        return await trial(lab, hosts=("host0", "host1", "host2"))

    result = lab.run(with_a_neighbour)
    assert len(result["links_removed"]) == len(result["links_added"]) == 2
    assert all("host1" in link for link in result["links_removed"])
    assert all("host3" in link for link in result["links_added"])
    assert result["blast_radius"]["links_of_others"] == []
    assert sum("host4" in str(link) for link in lab.links) == 2


# --- detection ----------------------------------------------------------------------------------


def test_connection_loss_and_heartbeat_are_both_measured(make_lab: Any) -> None:
    """TC86: detection is measured from the injection, by observers that do not share a sign."""
    lab = make_lab()
    result = lab.run(trial)
    timeline = lab.timeline
    begun = timeline.find("fault.injected").t_s
    by_connection = timeline.find("detect.connection-loss").t_s - begun
    by_heartbeat = timeline.find("detect.heartbeat").t_s - begun
    assert by_connection < 0.05 < by_heartbeat <= 0.3 + 1e-9
    assert timeline.find("detect.heartbeat").fields["host"] == "host1"
    assert result["detected_by"] == "connection-loss"


def test_a_hang_is_seen_by_its_silence_only(make_lab: Any) -> None:
    lab = make_lab()
    result = lab.run(lambda lab: trial(lab, "process-hang"))
    assert result["detected_by"] == "heartbeat"
    assert lab.timeline.find("detect.connection-loss") is None
    assert all(p.status is not None for p in lab.processes if p.host == "host1")  # fenced


def test_a_hanging_rank_0_is_replaced_as_well(make_lab: Any) -> None:
    result = make_lab().run(lambda lab: trial(lab, "process-hang", victim="host0"))
    assert result["hosts"] == ["host3", "host1"]
    assert result["detected_by"] == "heartbeat"


def test_survivors_of_a_hang_do_not_wait_at_a_barrier(make_lab: Any) -> None:
    """TC88: a peer that never comes back holds nobody up; what waiting there is, is a phase."""
    lab = make_lab()
    lab.run(lambda lab: trial(lab, "process-hang", job={"collective_timeout": 300.0}))
    assert phase_durations_s(lab.timeline)["regroup"] < 0.1


def test_a_gpu_error_is_told_by_the_worker_that_uses_it(make_lab: Any) -> None:
    lab = make_lab()
    result = lab.run(lambda lab: trial(lab, "gpu-xid"))
    assert result["detected_by"] == "gpu-xid"
    assert lab.timeline.find("detect.gpu-xid").fields["reason"].startswith("XID 79")


ALL_DETECTORS = ("connection-loss", "heartbeat", "gpu-xid", "link-loss")


@pytest.mark.parametrize("hosts", [("host0", "host1"), ("host0", "host1", "host2")])
def test_a_host_cut_off_from_the_fabric_is_found_by_its_links_only(
    make_lab: Any, hosts: tuple[str, ...]
) -> None:
    lab = make_lab()
    result = lab.run(lambda lab: trial(lab, "fibre-cut", hosts=hosts, detectors=ALL_DETECTORS))
    assert result["detected_by"] == "link-loss"
    assert result["failed"] == ["host1"]
    assert result["detectors"] == ["link-loss"]  # its silence after we killed it is none


def test_links_tell_of_a_lost_host_before_its_silence_does(make_lab: Any) -> None:
    lab = make_lab()
    result = lab.run(lambda lab: trial(lab, "power-off", detectors=ALL_DETECTORS))
    assert result["detected_by"] == "link-loss"
    assert result["failed"] == ["host1"]
    assert lab.timeline.find("detect.heartbeat") is not None


def test_nothing_failed_is_said_after_the_time_for_detection(make_lab: Any) -> None:
    async def quiet(lab: Any) -> None:
        lab.connect(*ring(("host0", "host1"), lab.rack.wiring))
        await start(lab, StartArgs(id="train", hosts=("host0", "host1")))
        began = now_s()
        with pytest.raises(TaskFailed, match="no host was found failed within 2 s"):
            await run(lab, RunArgs(job="train", detect_within=2.0))
        assert now_s() - began == pytest.approx(2.0)

    make_lab().run(quiet)


def test_a_second_watch_with_other_settings_is_refused(make_lab: Any) -> None:
    async def twice(lab: Any) -> None:
        lab.connect(*ring(("host0", "host1"), lab.rack.wiring))
        await start(lab, StartArgs(id="train", hosts=("host0", "host1")))
        await watch(lab, WatchArgs(job="train"))
        await watch(lab, WatchArgs(job="train"))
        with pytest.raises(TaskFailed, match="watched already"):
            await watch(lab, WatchArgs(job="train", heartbeat_misses=9))

    make_lab().run(twice)


# --- spares -------------------------------------------------------------------------------------


def test_a_dead_spare_is_passed_over(make_lab: Any) -> None:
    def dead(lab: Any) -> Any:
        lab.dark_hosts.add("host3")
        return trial(lab, standby=(), spare=("host3", "host2"))

    result = make_lab().run(dead)
    assert result["spare"] == "host2"
    assert "not reachable" in result["refused"]["host3"]
    assert result["attempts"] == 1


def test_an_automatic_spare_is_a_warm_one_if_there_is_one(make_lab: Any) -> None:
    assert make_lab().run(lambda lab: trial(lab, standby=("host4",)))["spare"] == "host4"


def test_no_spare_ends_the_task_with_a_reason_for_each_candidate(make_lab: Any) -> None:
    lab = make_lab(hosts=("host0", "host1", "host2", "host3"))

    async def hopeless(lab: Any) -> None:
        lab.dark_hosts.add("host2")
        lab.gpu_faults["host3"] = [object()]
        with pytest.raises(NoSpare) as caught:
            await trial(lab, standby=())
        reasons = caught.value.fields["candidates"]
        assert reasons["host0"] == "it is a member of the slice, or has failed"
        assert "does not answer" in reasons["host2"]
        assert reasons["host3"] == "GPU 0 is not healthy"
        assert caught.value.exit_code == 3

    lab.run(hopeless)
    assert all(p.status is not None for p in lab.processes)


def test_a_spare_in_use_or_without_free_interfaces_is_refused(make_lab: Any) -> None:
    async def taken(lab: Any) -> None:
        lab.connect(*ring(("host4", "host5"), lab.rack.wiring))
        await start(lab, StartArgs(id="other", hosts=("host4", "host5")))
        with pytest.raises(NoSpare) as caught:
            await trial(lab, standby=(), spare=("host4", "nowhere"))
        assert caught.value.fields["candidates"] == {
            "host4": "in use by job other",
            "nowhere": "the rack has no such host",
        }

    make_lab().run(taken)


# --- a second failure ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lumion", "morphlux", "restart"])
def test_a_spare_that_dies_during_recovery_is_replaced_once(make_lab: Any, name: str) -> None:
    lab = make_lab(seed=1)

    async def kill_spare() -> None:
        await lab.until(lambda: lab.timeline.find("fabric.sent"))
        lab.power_off("host3")

    result = lab.run(lambda lab: trial(lab, policy=name, before_recovery=kill_spare))
    assert result["attempts"] == 2
    assert result["failed"] == ["host1", "host3"]
    assert result["spares"] == ["host2"]
    assert result["after"]["hosts"] == ["host0", "host2"]
    assert {k.a.host for k in lab.links} | {k.b.host for k in lab.links} == {"host0", "host2"}


def test_a_survivor_that_dies_during_recovery_is_replaced_too(make_lab: Any) -> None:
    lab = make_lab(seed=1)

    async def kill_survivor() -> None:
        await lab.until(lambda: lab.timeline.find("fabric.sent"))
        lab.kill(lab.process_on("host0"))

    result = lab.run(lambda lab: trial(lab, before_recovery=kill_survivor))
    assert result["attempts"] == 2
    assert result["failed"] == ["host1", "host0"]
    assert set(result["hosts"]) == {"host2", "host3"}
    assert result["lost_steps"] > 0  # nobody was left with the newest state


def test_a_third_failure_is_a_clear_failure(make_lab: Any) -> None:
    lab = make_lab(seed=1)

    async def kill_spares() -> None:
        for host in ("host3", "host2"):
            await lab.until(lambda host=host: any(k.touches(host) for k in lab.links))
            lab.power_off(host)

    async def hopeless(lab: Any) -> None:
        with pytest.raises(TaskFailed, match="host2 failed during recovery number 2"):
            await trial(lab, before_recovery=kill_spares)

    lab.run(hopeless)
    assert all(p.status is not None for p in lab.processes)


def test_a_fabric_that_cannot_be_changed_is_told_as_it_is(make_lab: Any) -> None:
    """No host is to blame for a switch that refuses: no second spare is burnt on it."""

    async def stuck(lab: Any) -> None:
        async def refuse(*_: Any, **__: Any) -> None:
            raise DeviceRefused("switch ocs0: port 7 is disabled", device="ocs0")

        lab.fabric.replace = refuse
        with pytest.raises(DeviceRefused, match="port 7 is disabled"):
            await trial(lab)

    make_lab().run(stuck)


# --- afterwards ---------------------------------------------------------------------------------


def test_a_slower_network_after_recovery_fails_the_task(make_lab: Any) -> None:
    """TC87: the link comes back, its bandwidth does not; the job's own steps show it."""
    lab = make_lab()

    async def one_link_short(lab: Any) -> None:
        lab.connect(*ring(("host0", "host1"), lab.rack.wiring))
        await start(lab, StartArgs(id="train", hosts=("host0", "host1"), standby=("host3",)))
        await wait(lab, WaitArgs(id="train", step=20))
        lab.fault("process-kill", "host1")

        async def lose_a_link() -> None:
            await lab.until(lambda: lab.timeline.find("fabric.link-up"))
            lab.links.pop()
            lab.links_changed()

        lab.start_soon(lose_a_link, name="loses a link")
        with pytest.raises(TaskFailed, match="runs at 50% of the rate before") as caught:
            await run(lab, RunArgs(job="train"))
        assert caught.value.fields["bandwidth_ratio"] == pytest.approx(0.5, abs=0.01)

    lab.run(one_link_short)


def test_one_seed_gives_one_order_of_events(make_lab: Any) -> None:
    def events(seed: int) -> list[dict[str, Any]]:
        lab = make_lab(seed=seed)
        lab.run(lambda lab: trial(lab, policy="restart"))
        return list(lab.events)

    assert events(5) == events(5)
    assert events(5) != events(6)


def test_no_process_outlives_the_trial(make_lab: Any) -> None:
    lab = make_lab()
    lab.run(trial)
    assert lab.processes
    assert all(process.status is not None for process in lab.processes)
    assert lab.shared["testbed-train"]._groups == {}
    assert lab.resources[Jobs] is not None
    assert lab.resources[Watches] is not None
