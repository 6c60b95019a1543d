"""What a failover trial costs us: engine, store, simulated world and job together.

The goal: 1,000 trials in virtual time within 20 s on one core.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from testbed.engine.run import RunOptions, execute
from testbed.playbook.loader import load_playbook

PLAYBOOK = Path(__file__).parents[2] / "playbooks" / "failover.yaml"
TRIALS = 1000


def test_a_thousand_failover_trials_in_virtual_time(benchmark: Any, tmp_path: Path) -> None:
    playbook, rack = load_playbook(PLAYBOOK, rack="mock")
    playbook = dataclasses.replace(playbook, trials=TRIALS)

    def thousand() -> Any:
        return execute(
            RunOptions(
                playbook,
                rack,
                seed=7,
                virtual=True,
                results_dir=tmp_path / "results",
                state_dir=tmp_path / "state",
            )
        )

    outcome = benchmark.pedantic(thousand, rounds=1, iterations=1)
    assert outcome.status == "passed", outcome.error
    benchmark.extra_info["ms_per_trial"] = benchmark.stats.stats.max / TRIALS * 1e3
