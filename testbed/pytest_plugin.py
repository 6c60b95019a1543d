"""Playbooks and racks in pytest: ``--testbed-rack``, and the fixtures ``rack`` and
``run_playbook``.

In a lab's CI the tests run on mock twins in virtual time; with ``--testbed-rack my-rack.yaml`` the
same tests run on the lab's own rack, in real time. Nothing of the framework is imported before a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from testbed.rack.rack import Rack
    from testbed.store.reader import StoredRun

RunPlaybook = Callable[..., "StoredRun"]
OPTION = "--testbed-rack"
DEFAULT_RACK = "mock"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our one option."""
    group = parser.getgroup("testbed", "hardware testbed")
    group.addoption(
        OPTION,
        default=None,
        metavar="RACK",
        help="rack file or built-in rack for the fixtures rack and run_playbook (default: the "
        "mock twins of the playbook's own rack)",
    )


@pytest.fixture(scope="session")
def rack(request: pytest.FixtureRequest) -> Rack:
    """The checked rack that ``--testbed-rack`` names; the built-in mock rack without it."""
    from testbed.rack.loader import load_rack

    return load_rack(request.config.getoption(OPTION) or DEFAULT_RACK)


@pytest.fixture
def run_playbook(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> RunPlaybook:
    """Runs a playbook and returns the stored run.

    ``run_playbook(path, set={...}, trials=..., seed=..., faults=[...])``: without
    ``--testbed-rack`` on the mock twins of the rack that the playbook names. A mock rack runs in
    virtual time, any other in real time. Cleanup is the engine's: it holds, with its own
    deadlines, whatever the test does afterwards. Median and 95th percentile of every measure become
    properties of the test, which JUnit reports carry.

    ``faults`` are arguments of ``fault.inject``, made at the start of each trial: ``{"device":
    "ocs", "kind": "refuse", "operation": "apply"}``.
    """

    def run(
        playbook: str | Path,
        *,
        set: Mapping[str, Any] | None = None,
        trials: int | None = None,
        seed: int = 0,
        virtual: bool | None = None,
        faults: Sequence[Mapping[str, Any]] = (),
    ) -> StoredRun:
        from testbed.engine.paths import state_dir
        from testbed.engine.run import RunOptions, execute
        from testbed.store.reader import open_run

        reference = request.config.getoption(OPTION)
        checked, on = _load(Path(playbook), reference, set or {}, trials, faults, tmp_path)
        private = on.backend_label == "mock" if virtual is None else virtual
        outcome = execute(
            RunOptions(
                playbook=checked,
                rack=on,
                seed=seed,
                virtual=private,
                results_dir=tmp_path / "results",
                state_dir=state_dir(),
            )
        )
        if outcome.folder is None:
            raise outcome.error or RuntimeError("the run ended before anything was stored")
        stored = open_run(outcome.folder)
        _record(stored, record_property)
        return stored

    return run


def _load(
    path: Path,
    reference: str | None,
    variables: Mapping[str, Any],
    trials: int | None,
    faults: Sequence[Mapping[str, Any]],
    folder: Path,
) -> Any:
    import json

    from testbed.playbook.loader import load_playbook

    if faults:
        path = _with_faults(path, faults, folder)
    return load_playbook(
        path,
        # JSON is YAML, so that every value arrives as it is.
        assignments={name: json.dumps(value) for name, value in variables.items()},
        rack=reference,
        mock=reference is None,
        trials=trials,
    )


def _with_faults(path: Path, faults: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """A copy of the playbook whose trials begin with these faults."""
    import json

    from testbed.source.reader import parse, read_text

    document = parse(read_text(path), str(path))
    document.check()
    changed = dict(document.value)
    injected = [{"fault.inject": dict(fault)} for fault in faults]
    changed["tasks"] = [*injected, *changed.get("tasks", [])]
    beside = path.parent / str(changed.get("rack"))
    if beside.is_file():  # a path in a playbook begins at the playbook
        changed["rack"] = str(beside.absolute())
    copy = folder / f"with-faults-{path.name}"
    copy.write_text(json.dumps(changed, indent=1), "utf-8")
    return copy


def _record(stored: StoredRun, record_property: Callable[[str, object], None]) -> None:
    summary = stored.summary()
    record_property("testbed.run", summary["run"])
    record_property("testbed.backend", summary["backend"])
    for name, measure in summary["measures"].items():
        for statistic in ("n", "median", "p95"):
            if measure.get(statistic) is not None:
                record_property(f"testbed.{name}.{statistic}", measure[statistic])
