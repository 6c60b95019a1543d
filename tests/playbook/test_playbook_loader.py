"""The playbook language, from text to checked steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import EXIT_USER
from testbed.playbook.file import MeasureSection, PlaybookFile
from testbed.playbook.loader import load_playbook
from testbed.playbook.model import BlockStep, ParallelStep, TaskStep
from testbed.playbook.steps import BLOCK_KEYS, TASK_KEYS
from testbed.source.places import FileFaults

Faults = Callable[..., str]
Load = Callable[..., Any]
PLAYBOOKS = Path(__file__).parents[2] / "playbooks"


def test_every_key_of_a_task(load: Load) -> None:
    playbook, _ = load(
        """
vars: {host: host1, loud: true}
tasks:
  - name: look at {{ host }}
    host.health: "{{ host }}"
    when: loud
    tags: [health, quick]
    register: health
    until: health.uptime_s > 5
    retries: 7
    delay: 200 ms
    deadline: 2 s
    on_timeout: retry
    ignore_errors: true
"""
    )
    (step,) = playbook.tasks
    assert isinstance(step, TaskStep)
    assert step.name == "look at {{ host }}"
    assert step.spec.name == "host.health"
    assert step.args == {"host": "{{ host }}"}
    assert step.fixed is None
    assert (step.when, step.until, step.register) == ("loud", "health.uptime_s > 5", "health")
    assert step.tags == {"health", "quick"}
    assert (step.retries, step.delay_s, step.deadline_s) == (7, 0.2, 2.0)
    assert (step.on_timeout, step.ignore_errors) == ("retry", True)
    assert step.place.line == 6


def test_until_without_retries_tries_three_times_more(load: Load) -> None:
    playbook, _ = load(
        "tasks:\n  - host.health: host0\n    register: h\n    until: h.uptime_s > 1\n"
    )
    assert playbook.tasks[0].retries == 3


def test_arguments_without_expressions_are_checked_once_for_all(load: Load) -> None:
    playbook, _ = load("tasks:\n  - wait: 1.5 s\n  - fabric.connect: {ring: [host0, host1]}\n")
    first, second = playbook.tasks
    assert first.fixed.duration == 1.5
    assert second.fixed.ring == ("host0", "host1")


def test_blocks_and_parallels_to_any_depth(load: Load) -> None:
    playbook, _ = load(
        """
tasks:
  - name: outer
    deadline: 1 min
    block:
      - parallel:
          - wait: 1 s
          - block:
              - fail: on purpose
            rescue:
              - log: "{{ failure.message }}"
            always:
              - log: done
    always:
      - wait: 1 ms
"""
    )
    (outer,) = playbook.tasks
    assert isinstance(outer, BlockStep)
    assert (outer.name, outer.deadline_s) == ("outer", 60.0)
    (parallel,) = outer.block
    assert isinstance(parallel, ParallelStep)
    inner = parallel.children[1]
    assert isinstance(inner, BlockStep)
    assert [len(part) for part in (inner.block, inner.rescue, inner.always)] == [1, 1, 1]


def test_the_failure_is_known_in_a_rescue_only(faults: Faults) -> None:
    assert "it is there in a rescue" in faults('tasks:\n  - log: "{{ failure.message }}"\n')


def test_sweep_points_in_order(load: Load) -> None:
    playbook, _ = load(
        """
vars: {host: host0}
sweep: {host: [host1, host2], pause: [1 s, 2 s]}
tasks:
  - host.health: "{{ host }}"
  - wait: "{{ pause }}"
"""
    )
    assert [tuple(point.values()) for point in playbook.points()] == [
        ("host1", "1 s"),
        ("host1", "2 s"),
        ("host2", "1 s"),
        ("host2", "2 s"),
    ]


def test_every_sweep_point_is_checked(faults: Faults) -> None:
    """TC49: a bad point is told before anything runs, and says which point it is."""
    found = faults(
        """
sweep: {host: [host1, host9], pause: [1 s, soon]}
tasks:
  - host.health: "{{ host }}"
  - wait: "{{ pause }}"
"""
    )
    assert "no host 'host9' (with host='host9', pause='1 s')" in found
    assert "'soon' is no quantity (with host='host1', pause='soon')" in found


def test_a_huge_sweep_of_bad_points_is_told_shortly(faults: Faults) -> None:
    values = ", ".join(f"bad{n}" for n in range(2000))
    found = faults(f'sweep: {{host: [{values}]}}\ntasks:\n  - host.health: "{{{{ host }}}}"\n')
    assert found.count("the rack has no host") <= 10
    points = f"[{', '.join(map(str, range(400)))}]"
    found = faults(f"sweep: {{a: {points}, b: {points}}}\ntasks:\n  - log: '{{{{ a + b }}}}'\n")
    assert "160000 points" in found


def test_every_item_of_a_loop_is_checked(faults: Faults) -> None:
    found = faults('tasks:\n  - host.health: "{{ item }}"\n    loop: [host0, host7, host8]\n')
    assert "'host7'" in found
    assert "'host8'" in found


def test_results_are_typed_by_their_task(load: Load, faults: Faults) -> None:
    text = "tasks:\n  - host.health: host0\n    register: h\n  - log: '{{ h.%s }}'\n"
    for known in ("boot_id", "ok", "elapsed_s", "attempts", "status", "error"):
        load(text % known)
    assert "did you mean 'uptime_s'?" in faults(text % "uptimes")


def test_set_variables_are_names(load: Load, faults: Faults) -> None:
    load("tasks:\n  - set: {peer: host2}\n  - log: '{{ peer }}'\n")
    assert "never used" in faults("tasks:\n  - set: {peer: host2}\n  - log: nothing\n")


def test_result_names_are_not_those_of_variables(faults: Faults) -> None:
    text = "vars: {h: 1}\ntasks:\n  - host.health: host0\n    register: h\n  - log: '{{ h }}'\n"
    assert "is the name of a variable already" in faults(text)


def test_marks_of_measures(load: Load, faults: Faults) -> None:
    measures = "measures:\n  m: {from: %s, to: %s}\n"
    tasks = "vars: {what: load}\ntasks:\n  - mark: '{{ what }}.begins'\n  - mark: load.ends\n"
    load(tasks + measures % ("load.begins", "load.ends"))
    found = faults(tasks + measures % ("load.begins", "load.end"))
    assert "no task of this playbook sets the mark 'load.end'" in found
    # A task may declare a family of marks.
    load(
        "tasks:\n  - failover.watch: {job: train}\n"
        + measures % ("fault.detected", "detect.whatever")
    )


def test_deadlines_nest(faults: Faults) -> None:
    """TC83: the wrong layer must not be the one that gives up."""
    assert "cannot be kept inside one of 10 s" in faults(
        "deadline: 10 s\ntasks:\n  - wait: 1 s\n    deadline: 20 s\n"
    )
    assert "within is 30 s, which does not fit into the task's deadline of 30 s" in faults(
        "tasks:\n  - nic.wait: {interface: host0.p0, carrier: up, within: 30 s}\n"
        "    deadline: 30 s\n"
    )


@pytest.mark.parametrize(
    ("given_", "value"),
    [("7", 7), ("host2", "host2"), ("[a, b]", ["a", "b"]), ("true", True), ("no", "no"), ("", "")],
)
def test_set_is_read_as_yaml(load: Load, given_: str, value: object) -> None:
    text = "vars: {x: 1}\ntasks:\n  - log: 'x is {{ x }}'\n"
    playbook, _ = load(text, assignments={"x": given_})
    assert playbook.vars == {"x": value}


def test_variables_of_a_file_and_of_set(load: Load, tmp_path: Path) -> None:
    text = "vars: {a: 1, b: 1, c: 1}\ntasks:\n  - log: '{{ a }} {{ b }} {{ c }}'\n"
    file = tmp_path / "vars.yaml"
    file.write_text("a: 2\nb: 2\n")
    playbook, _ = load(text, assignments={"b": "3"}, vars_file=file)
    assert playbook.vars == {"a": 2, "b": 3, "c": 1}


def test_set_replaces_a_sweep(load: Load) -> None:
    text = "sweep: {host: [host0, host1]}\ntasks:\n  - host.health: '{{ host }}'\n"
    one, _ = load(text, assignments={"host": "host2"})
    two, _ = load(text, assignments={"host": "[host2, host3]"})
    assert one.sweep == {"host": ("host2",)}
    assert two.sweep == {"host": ("host2", "host3")}


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        ({"hots": "host2"}, "no variable 'hots'\n    did you mean 'host'?"),
        ({"host": "host9"}, "the rack has no host 'host9'"),
        ({"host": "[a"}, "not valid YAML"),
        ({"my-host": "a"}, "is no name of a variable"),
    ],
)
def test_bad_assignments(faults: Faults, assignments: dict[str, str], words: str) -> None:
    text = "vars: {host: host1}\ntasks:\n  - host.health: '{{ host }}'\n"
    assert words in faults(text, assignments=assignments)


def test_bad_files_of_variables(faults: Faults, tmp_path: Path) -> None:
    text = "vars: {host: host1}\ntasks:\n  - host.health: '{{ host }}'\n"
    file = tmp_path / "vars.yaml"
    assert "there is no such file" in faults(text, vars_file=file)
    file.write_text("hots: host2\n")
    assert f"{file}:1:1: the playbook has no variable 'hots'" in faults(text, vars_file=file)
    file.write_text("- host2\n")
    assert "a file of variables is a mapping" in faults(text, vars_file=file)


def test_the_rack_can_be_replaced(load: Load) -> None:
    _, rack = load(
        "tasks:\n  - host.health: host15\n", rack=str(PLAYBOOKS / "racks" / "rack16.yaml")
    )
    assert rack.name == "rack16"


def test_names_are_those_of_the_rack_in_use(faults: Faults) -> None:
    assert "the rack has no host 'host15'" in faults("tasks:\n  - host.health: host15\n")


def test_faults_of_playbook_rack_and_variables_are_told_together(
    faults: Faults, tmp_path: Path
) -> None:
    """TC48: nothing that is wrong is passed over for a default."""
    rack = tmp_path / "rack.yaml"
    rack.write_text("schema: testbed/rack/v1\nname: x\ndevices: {a: {driver: none}}\n")
    found = faults("trails: 3\ntasks:\n  - wiat: 1 s\n", assignments={"x": "1"}, rack=str(rack))
    for words in ("'trails'", "'wiat'", "no variable 'x'", "no driver 'none'"):
        assert words in found


def test_the_error_is_the_users_with_places_as_fields(load: Load) -> None:
    with pytest.raises(FileFaults) as caught:
        load("tasks:\n  - wiat: 1 s\n")
    assert caught.value.exit_code == EXIT_USER
    record = json.loads(json.dumps(caught.value.as_record()))
    assert record["kind"] == "user"
    assert record["diagnostics"][0]["place"].endswith("playbook.yaml:4:5")


LEAVES = st.sampled_from(
    [None, True, 3, -1.5, "host1", "{{ x }}", "{{ item }}", "{{", "1 s", "always", "", "yes"]
)
KEYS = st.sampled_from(
    sorted(
        {*TASK_KEYS, *BLOCK_KEYS, *PlaybookFile.model_fields, *MeasureSection.model_fields}
        | {"parallel", "wait", "fabric.connect", "ring", "set", "host.health", "host", "mark", "x"}
        | {"from", "to"}
    )
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=250, deadline=None)
@given(sections=st.dictionaries(KEYS, TREES, max_size=4), tasks=st.lists(TREES, max_size=4))
def test_any_tree_gives_a_playbook_or_faults(
    tmp_path_factory: pytest.TempPathFactory, sections: dict[str, Any], tasks: list[Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    tree = {"schema": "testbed/v1", "name": "fuzz", **sections, "tasks": tasks}
    path.write_text(json.dumps(tree))  # JSON is YAML
    try:
        load_playbook(path)
    except FileFaults as faults:
        assert all(fault.place.line == 1 for fault in faults.diagnostics)
