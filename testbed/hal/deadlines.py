"""Default deadline of each device operation, in seconds.

A rack file replaces single ones under ``deadlines``. They are upper bounds after which the device
is taken for lost, not expectations: a robotic patch panel needs a longer ``apply``.
"""

from __future__ import annotations

from collections.abc import Mapping

OPERATION_DEADLINES_S: Mapping[str, float] = {
    "open": 10.0,
    "close": 5.0,
    # switches
    "ports": 5.0,
    "circuits": 5.0,
    "apply": 10.0,
    "port_power_dbm": 5.0,
    "cells": 5.0,
    "program": 10.0,
    # hosts
    "run": 30.0,
    "spawn": 10.0,
    "send_line": 5.0,
    "signal": 5.0,
    "put": 120.0,
    "get": 120.0,
    "health": 5.0,
    "boot": 600.0,  # until a host answers after its power came on
    "processes": 5.0,
    "kill": 5.0,
    "gpus": 5.0,
    "gpu_errors": 5.0,
    "interfaces": 5.0,
    "wait_carrier": 30.0,
    "set_interface": 5.0,
    # power
    "outlets": 5.0,
    "switch": 5.0,
    "outlet_power_w": 5.0,
    # faults
    "inject": 10.0,
    "clear_faults": 10.0,
}
