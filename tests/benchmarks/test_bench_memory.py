"""How much memory trials leave behind: a run of any length must fit into the same machine."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.engine.run import RunOptions, execute
from testbed.playbook.loader import load_playbook

PLAYBOOK = Path(__file__).parents[2] / "playbooks" / "failover.yaml"
TRIALS = 20_000
EARLY = 2_000
"""Trials after which all caches are full."""
GROWTH_LIMIT_MIB = 64.0
"""For the 18,000 trials from there on. They leave behind a few numbers each, for the expectations
over all trials (about 0.1 kB a measure); whatever kept the events of each would take twice that
limit and more."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_thousand_failover_trials_take_no_more_memory_than_two_thousand(
    benchmark: Any, tmp_path: Path
) -> None:
    playbook, rack = load_playbook(PLAYBOOK, rack="mock")
    playbook = dataclasses.replace(playbook, trials=TRIALS)
    process = psutil.Process()
    resident_mib: dict[int, float] = {}

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "trial.finished" and (done := event["trial"] + 1) in (EARLY, TRIALS):
            gc.collect()
            resident_mib[done] = process.memory_info().rss / 2**20

    outcome = benchmark.pedantic(
        lambda: execute(
            RunOptions(
                playbook,
                rack,
                seed=7,
                virtual=True,
                results_dir=tmp_path / "results",
                state_dir=tmp_path / "state",
                observers=(watch,),
            )
        ),
        rounds=1,
    )
    assert outcome.error is None, outcome.error
    growth_mib = resident_mib[TRIALS] - resident_mib[EARLY]
    benchmark.extra_info["resident_mib"] = resident_mib[TRIALS]
    benchmark.extra_info["growth_mib"] = growth_mib
    assert growth_mib <= GROWTH_LIMIT_MIB
