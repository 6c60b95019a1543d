"""The event log: ``events.jsonl``, append-only, one JSON object a line.

Every event has ``t`` (seconds since the start of the run, monotonic) and ``kind``; events of a
trial have ``trial`` (counted from 0 over the whole run). Kinds and their further fields:

=================== ==============================================================================
``run.started``     ``run``, ``playbook``, ``rack``, ``seed``, ``virtual``, ``backend``
``point.started``   ``point`` (number), ``vars`` of the sweep point
``trial.started``   ``point``, ``warmup``
``task.started``    ``task``, ``name``, ``place``, ``span``
``task.finished``   ``task``, ``name``, ``span``, ``status`` (ok, failed, skipped, timeout,
                    cancelled), ``elapsed_s``, ``result``, ``error``
``mark``            ``name``, ``error_s``, ``source``, fields of the mark
``span``            ``name``, ``id``, ``parent``, ``end``, ``status``; ``t`` is its start
``device``          ``device``, ``operation``, ``elapsed_s``, ``status``, ``error``
``fault``           ``device``, ``fault``: a fault was injected
``log``             ``message``
``cleanup``         ``name``, ``status``, ``elapsed_s``, ``error``
``trial.finished``  ``point``, ``warmup``, ``status`` (passed, failed, interrupted),
                    ``measures`` {name: value or null}, ``phases`` {name: seconds or null},
                    ``error``
``expectation``     ``text``, ``passed``, ``value``, ``limit``, ``point``
``safe-state``      ``device``, ``safe`` (bool), ``detail``
``run.finished``    ``status`` (passed, failed, error, interrupted), ``exit_code``, ``error``
=================== ==============================================================================

A run without ``run.finished`` was cut off; it is readable up to its last whole line.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]

RUN_STARTED = "run.started"
POINT_STARTED = "point.started"
TRIAL_STARTED = "trial.started"
TASK_STARTED = "task.started"
TASK_FINISHED = "task.finished"
MARK = "mark"
SPAN = "span"
DEVICE = "device"
FAULT = "fault"
LOG = "log"
CLEANUP = "cleanup"
TRIAL_FINISHED = "trial.finished"
EXPECTATION = "expectation"
SAFE_STATE = "safe-state"
RUN_FINISHED = "run.finished"
