"""Synchronous drivers in threads: deadlines hold, threads come back, no late reply is read."""

from __future__ import annotations

import itertools
import random
import selectors
import socket
import threading
from collections import Counter
from contextlib import contextmanager

import psutil
import pytest
import trio

from testbed.errors import (
    DeviceError,
    DeviceLost,
    DeviceRefused,
    DeviceTimeout,
    InternalError,
    ProtocolError,
)
from testbed.hal.capabilities import OpticalPowerMonitor, OpticalSwitch, PowerController
from testbed.hal.sync import (
    ThreadedCommandHost,
    ThreadedMeteredSwitch,
    ThreadedPower,
    ThreadedSwitch,
)
from testbed.hal.threads import MAX_ABANDONED, ThreadedSession
from testbed.hal.types import (
    Circuit,
    CommandResult,
    HostHealth,
    Identity,
    OutletState,
    PortDirection,
    PortInfo,
)
from testbed.timing.clock import run


class EchoServer:
    """One thread that answers ``<number> <how>`` with ``<number>``: at once, late, never.

    *late*: when the next thing happens on any connection, so that a client which kept the
    connection would read the old answer first. *drop*: the connection is closed midway.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = self._listener.getsockname()
        self._wake, self._stop = socket.socketpair()
        self._late: list[tuple[socket.socket, bytes]] = []
        self.sent_late = 0
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> EchoServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.send(b"x")
        self._thread.join()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake:
                        for open_key in list(selector.get_map().values()):
                            open_key.fileobj.close()
                        self._stop.close()
                        return
                    if key.fileobj is self._listener:
                        selector.register(self._listener.accept()[0], selectors.EVENT_READ)
                    else:
                        self._answer(selector, key.fileobj)

    def _answer(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        try:
            request = connection.recv(1000)
        except OSError:
            request = b""
        for waiting, reply in self._late:
            try:
                waiting.send(reply)
                self.sent_late += 1
            except OSError:
                pass
        self._late.clear()
        number, _, how = request.decode().strip().partition(" ")
        if how == "answer":
            connection.sendall(f"{number}\n".encode())
        elif how == "late":
            self._late.append((connection, f"{number}\n".encode()))
        elif how != "mute":  # "drop", or the client has gone
            if how == "drop":
                connection.send(number[:1].encode())
            selector.unregister(connection)
            connection.close()


class EchoDriver:
    """As a lab would write it: blocking, no timeouts, no threads in sight."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket = socket.socket()

    def open(self) -> Identity:
        self._socket.connect(self._address)
        return Identity("test", "echo")

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def ask(self, number: int, how: str) -> int:
        self._socket.sendall(f"{number} {how}\n".encode())
        reply = b""
        while not reply.endswith(b"\n"):
            part = self._socket.recv(100)
            if not part:
                raise EOFError("closed by the device")
            reply += part
        return int(reply)


class ListDriver:
    """Calls what the test puts into ``behaviour``."""

    def __init__(self, behaviour, events):
        self._behaviour, self._events = behaviour, events

    def open(self) -> Identity:
        self._events.append("open")
        return Identity("test", "list")

    def close(self) -> None:
        self._events.append("close")

    def abort(self) -> None:
        self._events.append("abort")

    def work(self) -> object:
        return self._behaviour()


def scripted(behaviour, **options):
    """A session whose ``work`` does that; returns it with the list of what its driver saw."""
    events: list[str] = []
    return ThreadedSession("dev0", lambda: ListDriver(behaviour, events), **options), events


async def no_thread_left(prefix: str = "testbed-") -> None:
    """Wait for threads that have nothing more to do but to end."""
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            await trio.to_thread.run_sync(thread.join, 5.0)
            assert not thread.is_alive()


@contextmanager
def flat_resources():
    """Neither threads nor file descriptors are left behind, save trio's one cached thread, and
    the server's ends of the last connections, which it may not have seen closing yet."""
    process = psutil.Process()
    before = threading.active_count(), process.num_fds()
    yield
    assert threading.active_count() <= before[0] + 2
    assert process.num_fds() <= before[1] + 3


def test_500_rounds_of_timeouts_leave_nothing_behind_and_no_stale_answer():
    """TC25, TC26: mute, late and broken answers; threads and descriptors stay flat."""
    rng = random.Random(26)
    outcomes: Counter[str] = Counter()
    most_threads = 0

    async def main(rounds: int) -> None:
        nonlocal most_threads
        session = ThreadedSession("echo0", lambda: EchoDriver(server.address))
        await session.open()
        for number in range(rounds):
            how = rng.choice(["answer", "mute", "late", "drop"])
            try:
                answer = await session.call(
                    "ask",
                    lambda driver, n=number, h=how: driver.ask(n, h),
                    deadline_s=5.0 if how in ("answer", "drop") else 0.005,
                )
            except DeviceTimeout as error:
                assert how in ("mute", "late")
                assert error.elapsed_s < 0.5
                outcomes["timeout"] += 1
            except DeviceLost:
                assert how == "drop"
                outcomes["lost"] += 1
            else:
                assert (answer, how) == (number, "answer")
                outcomes["answer"] += 1
            most_threads = max(most_threads, threading.active_count())
        await session.close()
        assert session.abandoned == ()
        await no_thread_left()

    with EchoServer() as server:
        before = threading.active_count()
        run(main, 20)  # loads what Python and trio make once
        outcomes.clear()
        with flat_resources():
            run(main, 500)
        assert most_threads <= before + 4
        assert server.sent_late > 50
    assert outcomes["timeout"] > 200
    assert outcomes["lost"] > 80
    assert outcomes["answer"] > 80


def test_a_timeout_names_device_operation_deadline_elapsed_and_last_state():
    """TC27, TC28."""
    release = threading.Event()
    session, _ = scripted(release.wait, grace_s=0.01)

    async def main() -> None:
        await session.call("ports", lambda driver: 7, state_of=lambda n: f"{n} ports")
        try:
            with pytest.raises(DeviceTimeout) as caught:
                with trio.fail_after(0.02):
                    await session.call("apply", lambda driver: driver.work())
        finally:
            release.set()
        error = caught.value
        assert (error.device, error.operation) == ("dev0", "apply")
        assert error.deadline_s == pytest.approx(0.02, abs=0.005)
        assert error.elapsed_s >= error.deadline_s
        assert error.last_state.startswith("7 ports, ")
        assert "dev0: apply took longer than its deadline of" in error.message
        await session.close()

    run(main)


def test_the_earlier_of_two_deadlines_counts_and_overshoot_is_small():
    session = ThreadedSession("echo0", lambda: EchoDriver(server.address))

    async def main(own_s: float, scope_s: float) -> float:
        await session.open()
        start_s = trio.current_time()
        with pytest.raises(DeviceTimeout):
            with trio.fail_after(scope_s):
                await session.call("ask", lambda driver: driver.ask(1, "mute"), deadline_s=own_s)
        elapsed_s = trio.current_time() - start_s
        await session.close()
        return elapsed_s

    with EchoServer() as server:
        assert 0.02 <= run(main, 0.02, 60.0) < 0.5
        assert 0.02 <= run(main, 60.0, 0.02) < 0.5


def test_a_cancellation_stays_one_and_tears_the_session_down():
    """Ctrl-C or a failed neighbour is no timeout; the session is gone all the same."""
    entered = threading.Event()
    made = itertools.count(1)

    def make() -> EchoDriver:
        next(made)
        return EchoDriver(server.address)

    session = ThreadedSession("echo0", make)

    def ask(driver: EchoDriver) -> int:
        entered.set()
        return driver.ask(1, "mute")

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.call, "ask", ask)
                await trio.to_thread.run_sync(entered.wait)
                scope.cancel()
        assert scope.cancelled_caught
        await no_thread_left("testbed-echo0")
        assert await session.call("ask", lambda driver: driver.ask(2, "answer")) == 2
        assert next(made) == 3  # a second object has been made
        await session.close()

    with EchoServer() as server:
        run(main)


def test_operations_of_a_device_run_one_after_the_other_in_one_thread():
    threads: list[str] = []
    busy = threading.Lock()

    def work() -> None:
        assert busy.acquire(blocking=False)
        threads.append(threading.current_thread().name)
        busy.release()

    session, events = scripted(work)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(session.call, "work", lambda driver: driver.work())
        await session.close()
        await session.close()

    run(main)
    assert len(threads) == 20
    assert len(set(threads)) == 1
    assert events == ["open", "close"]


def test_waiting_for_another_operation_counts_and_sends_nothing():
    release, entered = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        release.wait()

    session, events = scripted(work)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.call, "first", lambda driver: driver.work())
            await trio.to_thread.run_sync(entered.wait)
            with pytest.raises(DeviceTimeout, match="nothing was sent: first was under way"):
                await session.call("second", lambda driver: driver.work(), deadline_s=0.01)
            release.set()
        assert events == ["open"]  # the session of the first was not touched
        await session.close()

    run(main)


def test_a_thread_that_does_not_end_is_abandoned_named_and_counted_out_later():
    """TC25: the worker is reclaimed, or told by name; the next operation works."""
    release = threading.Event()
    session, events = scripted(release.wait, grace_s=0.02)

    async def main() -> None:
        with pytest.raises(DeviceTimeout, match=r"thread testbed-dev0-\d+ hangs") as caught:
            await session.call("work", lambda driver: driver.work(), deadline_s=0.01)
        assert caught.value.fields["abandoned_threads"] == list(session.abandoned)
        assert len(session.abandoned) == 1
        assert events == ["open", "abort"]
        assert await session.call("next", lambda driver: "fresh") == "fresh"
        release.set()
        await no_thread_left(session.abandoned[0])
        assert session.abandoned == ()
        assert events == ["open", "abort", "open", "close"]  # it closed what it held
        await session.close()

    run(main)


def test_a_device_whose_threads_keep_hanging_is_given_up():
    release = threading.Event()
    session, _ = scripted(release.wait, grace_s=0.001)

    async def main() -> None:
        try:
            while len(session.abandoned) < MAX_ABANDONED:
                with pytest.raises(DeviceTimeout):
                    await session.call("work", lambda driver: driver.work(), deadline_s=0.001)
            with pytest.raises(DeviceLost, match="8 threads hang"):
                await session.call("work", lambda driver: driver.work())
        finally:
            release.set()
        await no_thread_left("testbed-dev0")
        assert await session.call("next", lambda driver: 1) == 1
        await session.close()

    run(main)


@pytest.mark.parametrize(
    ("raised", "kind", "stays_open"),
    [
        (TimeoutError("read"), DeviceTimeout, False),
        (ConnectionResetError("reset"), DeviceLost, False),
        (EOFError(), DeviceLost, False),
        (OSError(113, "no route"), DeviceLost, False),
        (ValueError("no number: 'abc'"), ProtocolError, False),
        (KeyError("circuits"), ProtocolError, False),
        (ProtocolError("checksum", device="dev0"), ProtocolError, False),
        (DeviceRefused("port is locked", device="dev0"), DeviceRefused, True),
        (AttributeError("typo"), InternalError, False),
        (SystemExit(3), InternalError, False),
    ],
)
def test_what_a_driver_raises_becomes_one_of_our_errors(raised, kind, stays_open):
    """TC81: an error of the device is never swallowed."""

    def work() -> None:
        raise raised

    session, events = scripted(work)

    async def main() -> None:
        with pytest.raises(kind) as caught:
            await session.call("work", lambda driver: driver.work())
        assert type(caught.value) is kind
        assert caught.value.fields["operation"] == "work"
        assert caught.value.fields["device"] == "dev0"
        assert events == (["open"] if stays_open else ["open", "abort", "close"])
        await session.call("next", lambda driver: None)
        await session.close()

    run(main)


def test_a_refused_connection_is_a_lost_device_and_a_later_open_works():
    """TC23: the device is unplugged between two operations."""
    with EchoServer() as server:
        address = server.address
    session = ThreadedSession("echo0", lambda: EchoDriver(address))

    async def main() -> None:
        with pytest.raises(DeviceLost, match="echo0: cannot connect"):
            await session.open()

    run(main)

    async def again() -> None:
        assert (await session.open()).model == "echo"
        await session.close()

    with EchoServer() as server:
        address = server.address
        run(again)


def test_a_session_that_was_refused_is_not_open():
    """A wrong password leaves nothing behind that a later operation could talk to."""
    opened: list[str] = []

    class Locked(ListDriver):
        def open(self) -> Identity:
            super().open()
            raise DeviceRefused("wrong password", device="dev0")

    session = ThreadedSession("dev0", lambda: Locked(lambda: None, opened))

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(DeviceRefused, match="wrong password") as caught:
                await session.call("work", lambda driver: driver.work())
            assert caught.value.operation == "open"
        await no_thread_left("testbed-dev0")

    run(main)
    assert opened == ["open", "abort", "close"] * 2


def test_virtual_time_is_refused():
    session, events = scripted(lambda: None)

    async def main() -> None:
        with pytest.raises(DeviceRefused, match="cannot run in virtual time"):
            await session.open()

    run(main, virtual=True)
    assert events == []


class MemorySwitch:
    """A whole synchronous switch with power meters."""

    def __init__(self, now: set[Circuit]) -> None:
        self._now = now

    def open(self) -> Identity:
        return Identity("test", "memory")

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def ports(self) -> dict[str, PortInfo]:
        return {str(n): PortInfo(str(n), PortDirection.BOTH) for n in range(4)}

    def read_circuits(self) -> list[Circuit]:
        return list(self._now)

    def send(self, remove, add) -> None:
        self._now.difference_update(remove)
        self._now.update(add)

    def port_power_dbm(self, ports) -> dict[str, float]:
        return dict.fromkeys(ports, -3.0)


@pytest.mark.parametrize("adapter", [ThreadedSwitch, ThreadedMeteredSwitch])
def test_a_synchronous_switch_gets_apply_with_all_its_promises(adapter):
    now: set[Circuit] = set()
    switch = adapter("ocs0", lambda: MemorySwitch(now))
    assert isinstance(switch, OpticalSwitch)
    assert isinstance(switch, OpticalPowerMonitor) == (adapter is ThreadedMeteredSwitch)

    async def main() -> None:
        assert (await switch.open()).model == "memory"
        report = await switch.apply([Circuit("0", "1")])
        assert report.added == (Circuit("0", "1"),)
        assert report.light_checked == (adapter is ThreadedMeteredSwitch)
        assert now == {Circuit("0", "1")}
        assert not (await switch.apply([Circuit("0", "1")])).changed
        with pytest.raises(DeviceRefused, match="nothing was sent"):
            await switch.apply([Circuit("0", "9")])
        await switch.close()

    run(main)


class MemoryPower(MemorySwitch):
    def outlets(self) -> dict[str, OutletState]:
        return {"1": OutletState.ON}

    def switch(self, outlet: str, state: OutletState) -> None:
        raise PermissionError(f"outlet {outlet} is locked")


def test_a_synchronous_power_controller_is_one():
    power = ThreadedPower("pdu0", lambda: MemoryPower(set()))
    assert isinstance(power, PowerController)

    async def main() -> None:
        assert await power.outlets() == {"1": OutletState.ON}
        with pytest.raises(DeviceError, match="outlet 1 is locked") as caught:
            await power.switch("1", OutletState.OFF)
        assert caught.value.last_state.startswith("1=on, ")
        await power.close()

    run(main)


class MemoryHost(MemorySwitch):
    def run(self, argv, stdin) -> CommandResult:
        return CommandResult(tuple(argv), 0, stdout=stdin.upper())

    def health(self) -> HostHealth:
        return HostHealth("boot-1", 12.0)


def test_a_synchronous_host_runs_commands():
    host = ThreadedCommandHost("host0", lambda: MemoryHost(set()))

    async def main() -> None:
        assert (await host.run(["tr", "a-z", "A-Z"], stdin="abc")).stdout == "ABC"
        assert (await host.health()).boot_id == "boot-1"
        await host.close()

    run(main)
