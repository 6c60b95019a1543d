"""The line protocol: what goes in comes out, and nothing else gets through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.training import protocol
from experiments.training.protocol import (
    MAX_LINE,
    encode,
    parse_command,
    parse_report,
)
from testbed.errors import ProtocolError

COUNT = st.integers(0, 2**62)
TIME = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=30)

COMMANDS = st.one_of(
    st.builds(protocol.Form, COUNT, COUNT, st.lists(TEXT).map(tuple)),
    st.builds(protocol.Restore, TEXT, COUNT, TEXT, COUNT),
    st.builds(protocol.Start, COUNT, COUNT),
    st.builds(protocol.Ping, COUNT),
    st.sampled_from([protocol.Checkpoint(), protocol.Stop()]),
)
REPORTS = st.one_of(
    st.builds(protocol.Ready, TIME),
    st.builds(protocol.Heartbeat, TIME),
    st.builds(protocol.Formed, TIME, COUNT),
    st.builds(protocol.Restored, TIME, COUNT, COUNT),
    st.builds(protocol.StepDone, TIME, COUNT, COUNT, TIME, COUNT, TIME, TIME, COUNT),
    st.builds(protocol.Checkpointed, TIME, COUNT),
    st.builds(protocol.PeerLost, TIME, COUNT, TEXT, TEXT),
    st.builds(protocol.GpuFault, TIME, COUNT, COUNT, TEXT),
    st.builds(protocol.Failed, TIME, TEXT),
    st.builds(protocol.Pong, TIME, COUNT),
    st.builds(protocol.Bye, TIME),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(COMMANDS)
def test_commands_survive_the_line(command: Any) -> None:
    line = encode(command)
    assert "\n" not in line
    assert parse_command(line) == command


@given(REPORTS)
def test_reports_survive_the_line(report: Any) -> None:
    line = encode(report)
    assert "\n" not in line
    assert parse_report(line, device="host0") == report


def refused(line: str) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse_report(line, device="host0")
    assert caught.value.device == "host0"
    return caught.value


@given(st.text())
def test_garbage_is_a_protocol_error_and_nothing_else(line: str) -> None:
    refused(line)


@given(JSON)
def test_json_that_is_no_report_is_a_protocol_error(value: Any) -> None:
    refused(json.dumps(value))


@given(REPORTS, st.data())
def test_a_report_with_one_field_gone_wrong_is_refused(report: Any, data: st.DataObject) -> None:
    record = json.loads(encode(report))
    field = data.draw(st.sampled_from(sorted(record)))
    record[field] = data.draw(st.sampled_from([None, [], {}, True, float("nan")]))
    refused(json.dumps(record))


@given(REPORTS, st.data())
def test_a_report_cut_short_or_with_more_fields_is_refused(
    report: Any, data: st.DataObject
) -> None:
    line = encode(report)
    refused(line[: data.draw(st.integers(0, len(line) - 1))])
    record = json.loads(line)
    refused(json.dumps({**record, "more": 1}))
    del record[data.draw(st.sampled_from(sorted(record)))]
    refused(json.dumps(record))


@pytest.mark.parametrize(
    "line",
    [
        "[" * 50_000,
        "1" * 5_000,
        '{"kind":"ready","t":1e999}',
        '{"kind":"formed","t":1,"generation":-1}',
        '{"kind":"formed","t":1,"generation":1.0}',
        '{"kind":"form","generation":1,"rank":0,"members":[]}',
        '{"kind":["ready"],"t":1}',
    ],
)
def test_known_traps_are_refused(line: str) -> None:
    refused(line)


def test_a_line_without_end_is_refused_by_its_length() -> None:
    assert f"{MAX_LINE + 1} characters" in refused(" " * (MAX_LINE + 1)).message


def test_the_error_says_what_the_stream_is_for() -> None:
    error = refused("WARNING: NCCL version 2.21")
    assert "no JSON" in error.message
    assert "standard error" in (error.remedy or "")
