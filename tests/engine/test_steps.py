"""Steps: order, conditions, loops, tries, blocks, parallel parts, deadlines."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio

from testbed.errors import EXIT_DEVICE, EXIT_USER, DeviceTimeout, TaskFailed, TaskTimeout
from testbed.timing.clock import now_s

Make = Callable[..., Any]


class Log(list[str]):
    """What ran, in order."""

    def does(self, name: str, *, takes_s: float = 0.0, fails: Any = False) -> Any:
        async def body(context: Any, args: Any) -> Any:
            self.append(name)
            if takes_s:
                await trio.sleep(takes_s)
            if isinstance(fails, BaseException):
                raise fails
            if fails:
                raise TaskFailed(f"{name} failed")
            return {"name": name}

        body.__name__ = name
        return body


@pytest.fixture
def log() -> Log:
    return Log()


def test_tasks_run_in_order_until_one_fails(engine: Any, make_task: Make, log: Log) -> None:
    """DESIGN 7.2. TC81: a task that fails fails the run."""
    outcome = engine.execute(
        make_task(log.does("a")), make_task(log.does("b", fails=True)), make_task(log.does("c"))
    )
    assert log == ["a", "b"]
    assert (outcome.status, outcome.exit_code) == ("failed", EXIT_DEVICE)
    assert outcome.error.fields["task"] == "b"
    assert outcome.error.fields["place"] == "test.yaml:1:1"


def test_a_failed_block_is_rescued_and_always_runs(
    engine: Any, make_task: Make, make_block: Make, log: Log
) -> None:
    """DESIGN 7.2."""
    outcome = engine.execute(
        make_block(
            make_task(log.does("a", fails=True)),
            make_task(log.does("never")),
            rescue=(make_task(log.does("rescue")),),
            always=(make_task(log.does("always")),),
        ),
        make_task(log.does("after")),
    )
    assert log == ["a", "rescue", "always", "after"]
    assert outcome.status == "passed"


def test_rescue_knows_the_failure(engine: Any, make_task: Make, make_block: Make, log: Log) -> None:
    seen = []

    async def look(context: Any, args: Any) -> None:
        seen.append(args.message)

    engine.execute(
        make_block(
            make_task(log.does("a", fails=True)),
            rescue=(make_task(look, args={"message": "{{ failure.message }}"}),),
        )
    )
    assert seen == ["a failed"]


def test_all_of_always_runs_and_its_failure_counts(
    engine: Any, make_task: Make, make_block: Make, log: Log
) -> None:
    """TC04: a step of a teardown that fails does not stop the next."""
    outcome = engine.execute(
        make_block(
            make_task(log.does("a")),
            always=(make_task(log.does("x", fails=True)), make_task(log.does("y"))),
        ),
        make_task(log.does("after")),
    )
    assert log == ["a", "x", "y"]
    assert "x failed" in outcome.error.message


def test_always_is_not_killed_by_the_deadline_that_led_to_it(
    engine: Any, make_task: Make, make_block: Make, log: Log
) -> None:
    """TC03: cleanup gets a fresh deadline, not the spent one."""
    outcome = engine.execute(
        make_block(
            make_block(
                make_task(log.does("slow", takes_s=100)),
                always=(make_task(log.does("x", takes_s=20)), make_task(log.does("y"))),
            ),
            deadline_s=10,
        )
    )
    assert log == ["slow", "x", "y"]
    assert isinstance(outcome.error, TaskTimeout)
    assert outcome.error.fields["deadline_s"] == 10


def test_deadlines_nest_and_the_inner_one_can_be_rescued(
    engine: Any, make_task: Make, make_block: Make, log: Log
) -> None:
    times = []

    async def note(context: Any, args: Any) -> None:
        times.append(context.timeline.elapsed_s())

    outcome = engine.execute(
        make_task(note),
        make_block(
            make_block(
                make_task(log.does("slow", takes_s=100), deadline_s=3),
                rescue=(make_task(note),),
            ),
            make_task(log.does("slow", takes_s=100)),
            deadline_s=10,
        ),
        always=(make_task(note),),
    )
    start_s, inner_s, outer_s = times
    assert (inner_s - start_s, outer_s - start_s) == (pytest.approx(3), pytest.approx(10))
    assert isinstance(outcome.error, TaskTimeout)


def test_parallel_waits_for_all_then_raises_the_first_in_order(
    engine: Any, make_task: Make, make_parallel: Make, log: Log
) -> None:
    """TC31: others go on when one fails, and their next task still runs."""
    outcome = engine.execute(
        make_parallel(
            make_task(log.does("slow", takes_s=2, fails=True)),
            make_task(log.does("quick", takes_s=1, fails=True)),
            make_task(log.does("long", takes_s=9)),
        )
    )
    assert sorted(log) == ["long", "quick", "slow"]
    assert outcome.error.message == "slow failed"
    assert [error["message"] for error in outcome.error.fields["also"]] == ["quick failed"]
    assert engine.of("trial.finished")[0]["t"] - engine.of("trial.started")[0]["t"] >= 9


def test_when_skips_and_registers_the_skip(engine: Any, make_task: Make, log: Log) -> None:
    engine.execute(
        make_task(log.does("a"), when="go", register="a"),
        make_task(log.does("b"), when="a.status == 'skipped' and not a.ok"),
        vars={"go": False},
    )
    assert log == ["b"]
    assert engine.of("task.finished")[0]["status"] == "skipped"


def test_a_loop_runs_over_all_items_then_fails(engine: Any, make_task: Make) -> None:
    seen = []

    async def each(context: Any, args: Any) -> Any:
        seen.append(args.item)
        if args.item == 2:
            raise TaskFailed("two")
        return {"value": args.item * 10}

    async def look(context: Any, args: Any) -> None:
        seen.append(args.values)

    outcome = engine.execute(
        make_task(
            each, args={"item": "{{ item }}"}, loop="range(1, 4)", register="all",
            ignore_errors=True,
        ),
        make_task(look, args={"values": "{{ all.results | map(attribute='ok') | list }}"}),
        make_task(each, args={"item": "{{ item }}"}, loop=[1, "{{ two }}", 3]),
        make_task(each, args={"item": 99}),
        vars={"two": 2},
    )  # fmt: skip
    assert seen == [1, 2, 3, [True, False, True], 1, 2, 3]
    assert outcome.error.message == "two"


def test_until_is_tried_again_until_it_is_true(engine: Any, make_task: Make) -> None:
    tries = []

    async def count(context: Any, args: Any) -> Any:
        tries.append(now_s())
        return {"n": len(tries)}

    outcome = engine.execute(
        make_task(count, register="r", until="r.n == 3 and r.attempts == 3", retries=5, delay_s=2)
    )
    assert outcome.status == "passed"
    assert [b - a for a, b in itertools.pairwise(tries)] == [2, 2]


def test_until_that_is_never_true_fails(engine: Any, make_task: Make, log: Log) -> None:
    outcome = engine.execute(
        make_task(log.does("a"), register="r", until="r.name == 'z'", retries=2)
    )
    assert log == ["a"] * 3
    assert "not true after 3 tries" in outcome.error.message


@pytest.mark.parametrize(
    ("on_timeout", "tries", "status"), [("fail", 1, "failed"), ("retry", 3, "failed"),
                                        ("continue", 1, "passed")]
)  # fmt: skip
@pytest.mark.parametrize("whose", ["task", "device"])
def test_on_timeout_says_what_a_timeout_means(
    engine: Any, make_task: Make, log: Log, on_timeout: str, tries: int, status: str, whose: str
) -> None:
    """TC30: fail, go on, or try again, per step; for the task's deadline and a device's."""
    body = (
        log.does("a", takes_s=10)
        if whose == "task"
        else log.does("a", fails=DeviceTimeout("silent", device="ocs"))
    )
    outcome = engine.execute(
        make_task(body, deadline_s=2, on_timeout=on_timeout, retries=2, register="r"),
        make_task(log.does("next"), when="r.status == 'timeout'"),
    )
    assert log == ["a"] * tries + (["next"] if status == "passed" else [])
    assert outcome.status == status


def test_ignored_errors_are_registered(engine: Any, make_task: Make, log: Log) -> None:
    outcome = engine.execute(
        make_task(log.does("a", fails=True), ignore_errors=True, register="r"),
        make_task(log.does("b"), when="r.error.message == 'a failed'"),
    )
    assert log == ["a", "b"]
    assert outcome.status == "passed"


def test_a_fault_of_the_playbook_is_never_ignored(engine: Any, make_task: Make, log: Log) -> None:
    outcome = engine.execute(
        make_task(log.does("a"), args={"x": "{{ nothing_here }}"}, ignore_errors=True, retries=3)
    )
    assert log == []
    assert outcome.exit_code == EXIT_USER
    assert outcome.error.fields["place"] == "test.yaml:1:1"


def test_tags_choose_steps(engine: Any, make_task: Make, make_block: Make, log: Log) -> None:
    steps = (
        make_task(log.does("a"), tags=frozenset({"x"})),
        make_block(make_task(log.does("b")), tags=frozenset({"y"})),
        make_task(log.does("c"), tags=frozenset({"always"})),
    )
    engine.execute(*steps, options={"tags": frozenset({"y"})})
    assert log == ["b", "c"]
    log.clear()
    engine.execute(*steps, options={"skip_tags": frozenset({"y"})})
    assert log == ["a", "c"]


def test_set_variables_last_for_the_trial_only(engine: Any, make_task: Make) -> None:
    """TC16: what a trial sets is not there in the next."""
    seen = []

    async def assign(context: Any, args: Any) -> Any:
        return {"v": 7}

    async def look(context: Any, args: Any) -> None:
        seen.append(args.v)

    engine.execute(
        make_task(look, args={"v": "{{ v }}"}),
        make_task(assign, sets_variables=True),
        make_task(look, args={"v": "{{ v }}"}),
        vars={"v": 1},
        trials=2,
    )
    assert seen == [1, 7, 1, 7]


def test_a_task_timeout_says_where_it_was(engine: Any, make_task: Make) -> None:
    """TC27: step, place, device, operation, deadline and elapsed time."""
    from testbed.hal.capabilities import FaultInjectable, Host
    from testbed.hal.types import FaultSpec

    async def hang(context: Any, args: Any) -> None:
        await context.device("host0", FaultInjectable).inject(FaultSpec("silent", operation="run"))
        await context.device("host0", Host).run(["true"])

    outcome = engine.execute(make_task(hang, "ask host0", deadline_s=2.5))
    error = outcome.error
    assert isinstance(error, TaskTimeout)
    assert "'ask host0' was not done within 2.50 s" in error.message
    assert "while it waited for run of host0" in error.message
    assert error.fields["place"] == "test.yaml:1:1"
    assert error.fields["elapsed_s"] == pytest.approx(2.5)
