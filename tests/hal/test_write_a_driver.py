"""The driver of the guide "Write a driver" is taken out of the page and run."""

from __future__ import annotations

import re
import socket
import threading
import types
from pathlib import Path

import pytest

from testbed.errors import DeviceLost, DeviceRefused, DeviceTimeout, ProtocolError
from testbed.hal.capabilities import OpticalSwitch
from testbed.hal.registry import DriverContext, DriverSpec
from testbed.hal.types import Backend, Circuit
from testbed.hal.wiring import Wiring
from testbed.timing.clock import run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-driver.md"


@pytest.fixture(scope="module")
def driver() -> DriverSpec:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = types.ModuleType("line_switch")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return module.DRIVER


class LineSwitchServer:
    """The switch at the other end: one connection after the other, in a thread."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.circuits = {"5>6"}
        self.answers: dict[str, str] = {}  # instead of the right one
        self.commands: list[str] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> LineSwitchServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("r") as lines:
                for line in lines:
                    command, *words = line.split()
                    self.commands.append(line.strip())
                    answer = self.answers.get(command)
                    if answer == "close":
                        break
                    if answer != "mute":
                        connection.sendall(f"{answer or self._answer(command, words)}\n".encode())

    def _answer(self, command: str, words: list[str]) -> str:
        if command == "identify":
            return "ok Lab,line switch,0042"
        if command == "ports":
            return "ok " + " ".join(f"{n}={'disabled' if n == 8 else 'enabled'}" for n in range(9))
        if command == "change":
            for word in words:
                (self.circuits.add if word[0] == "+" else self.circuits.discard)(word[1:])
            return "ok"
        return "ok " + " ".join(self.circuits)


def test_the_driver_of_the_page_is_a_switch_with_every_promise(driver):
    assert driver.name == "line-switch"

    async def main() -> None:
        options = driver.options.model_validate({"address": "127.0.0.1", "port": server.port})
        switch = driver.backends[Backend.REAL]("ocs0", options, DriverContext("lab", Wiring()))
        assert isinstance(switch, OpticalSwitch)
        assert server.commands == []  # making it connects to nothing
        identity = await switch.open()
        assert (identity.vendor, identity.model, identity.serial) == ("Lab", "line switch", "0042")

        report = await switch.apply([Circuit("1", "2"), Circuit("3", "4")])
        assert report.removed == (Circuit("5", "6"),)
        assert server.circuits == {"1>2", "3>4"}
        assert [c for c in server.commands if c.startswith("change")] == ["change -5>6 +1>2 +3>4"]
        with pytest.raises(DeviceRefused, match="port 8 is disabled; nothing was sent"):
            await switch.apply([Circuit("1", "8")])

        server.answers["change"] = "no port 1 is locked"
        with pytest.raises(DeviceRefused, match="ocs0 refuses: port 1 is locked"):
            await switch.apply([])
        server.answers["change"] = "garbage"
        with pytest.raises(ProtocolError, match="neither ok nor no"):
            await switch.apply([])
        server.answers["change"] = "close"
        with pytest.raises(DeviceLost, match="closed by the switch"):
            await switch.apply([])
        server.answers["change"] = "mute"
        with pytest.raises(DeviceTimeout, match="ocs0: send took longer"):
            await switch.session.call("send", lambda d: d.send([], []), deadline_s=0.02)
        server.answers.clear()
        assert (await switch.apply([])).changed
        assert server.circuits == set()
        assert server.commands.count("identify") == 4  # opened again after each broken session
        await switch.close()

    with LineSwitchServer() as server:
        run(main)
