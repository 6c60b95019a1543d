"""Walking over steps: every task of a list of steps, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from testbed.playbook.model import AnyStep, BlockStep, ParallelStep, TaskStep


def task_steps(steps: Iterable[AnyStep]) -> Iterator[TaskStep]:
    """All tasks, those of blocks and of parallel parts included."""
    for step in steps:
        if isinstance(step, TaskStep):
            yield step
        elif isinstance(step, ParallelStep):
            yield from task_steps(step.children)
        elif isinstance(step, BlockStep):
            yield from task_steps((*step.block, *step.rescue, *step.always))
