"""Random trees of steps against a tiny interpreter that says what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.errors import TaskFailed


@dataclass
class Leaf:
    """A task that takes a time, and fails or not."""

    name: str
    fails: bool
    ignored: bool


@dataclass
class Tree:
    """A block, or a parallel part."""

    kind: str
    children: list[Any]
    rescue: list[Any] = field(default_factory=list)
    always: list[Any] = field(default_factory=list)


def leaves() -> st.SearchStrategy[Leaf]:
    return st.builds(Leaf, st.just(""), st.booleans(), st.booleans())


def trees(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(children, min_size=1, max_size=3)
    few = st.lists(children, max_size=2)
    return st.one_of(
        st.builds(Tree, st.just("block"), some, few, few),
        st.builds(Tree, st.just("parallel"), some),
    )


TREES = st.lists(st.recursive(leaves(), trees, max_leaves=14), min_size=1, max_size=4)


def name_leaves(nodes: list[Any], prefix: str = "t") -> None:
    for number, node in enumerate(nodes):
        if isinstance(node, Leaf):
            node.name = f"{prefix}.{number}"
        else:
            for part in ("children", "rescue", "always"):
                name_leaves(getattr(node, part), f"{prefix}.{number}{part[0]}")


# --- the reference: what ran (as a set, for parallel parts have no order), and what failed -------


def reference(nodes: list[Any], ran: set[str]) -> str | None:
    for node in nodes:
        failure = _reference_one(node, ran)
        if failure:
            return failure
    return None


def _reference_one(node: Any, ran: set[str]) -> str | None:
    if isinstance(node, Leaf):
        ran.add(node.name)
        return node.name if node.fails and not node.ignored else None
    if node.kind == "parallel":
        failures = [_reference_one(child, ran) for child in node.children]
        return next((failure for failure in failures if failure), None)
    failure = reference(node.children, ran)
    if failure and node.rescue:
        failure = reference(node.rescue, ran)
    late = [_reference_one(step, ran) for step in node.always]
    return failure or next((error for error in late if error), None)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(TREES)
def test_steps_mean_what_the_reference_says(
    tmp_path_factory: Any,
    make_engine: Any,
    make_task: Any,
    make_block: Any,
    make_parallel: Any,
    nodes: list[Any],
) -> None:
    """DESIGN 7.2."""
    name_leaves(nodes)
    ran: list[str] = []

    def build(node: Any) -> Any:
        if isinstance(node, Leaf):

            async def body(context: Any, args: Any) -> None:
                ran.append(node.name)
                await trio.sleep(1)
                if node.fails:
                    raise TaskFailed(node.name)

            return make_task(body, node.name, ignore_errors=node.ignored)
        children = [build(child) for child in node.children]
        if node.kind == "parallel":
            return make_parallel(*children)
        return make_block(
            *children,
            rescue=tuple(map(build, node.rescue)),
            always=tuple(map(build, node.always)),
        )

    engine = make_engine(tmp_path_factory.mktemp("s"))
    outcome = engine.execute(*map(build, nodes))
    expected: set[str] = set()
    failure = reference(nodes, expected)
    assert sorted(ran) == sorted(expected)  # each once
    assert (outcome.error and outcome.error.message) == failure
    assert outcome.status == ("failed" if failure else "passed")
    started = [e["name"] for e in engine.of("task.started")]
    finished = [e["name"] for e in engine.of("task.finished")]
    assert sorted(started) == sorted(finished) == sorted(ran)
