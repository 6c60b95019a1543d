"""Running several operations side by side, with errors that stay readable.

A trio nursery wraps what its children raise in an exception group. Callers of device
operations look at the kind of an error and at its device, so these two helpers hand errors
out as they are. Only :class:`~testbed.errors.TestbedError` is treated so: anything else is a
defect and stays in its group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from testbed.errors import TestbedError

Key = TypeVar("Key")
Result = TypeVar("Result")


async def settle(
    works: Mapping[Key, Callable[[], Awaitable[Result]]],
) -> tuple[dict[Key, Result], dict[Key, TestbedError]]:
    """Run all works and wait for every one, whatever becomes of the others.

    For changes of devices: cancelling one midway because another failed would only add a
    second device in an unknown state.

    :returns: results and errors by key, both in the order of ``works``.
    """
    results: dict[Key, Result] = {}
    errors: dict[Key, TestbedError] = {}

    async def one(key: Key, work: Callable[[], Awaitable[Result]]) -> None:
        try:
            results[key] = await work()
        except TestbedError as error:
            errors[key] = error

    if len(works) == 1:  # no nursery: one wake-up less, and the common case
        for key, work in works.items():
            await one(key, work)
        return results, errors
    async with trio.open_nursery() as nursery:
        for key, work in works.items():
            nursery.start_soon(one, key, work)
    return {k: results[k] for k in works if k in results}, {
        k: errors[k] for k in works if k in errors
    }


async def gather(works: Mapping[Key, Callable[[], Awaitable[Result]]]) -> dict[Key, Result]:
    """Run all works; the first that fails cancels the others and its error is raised.

    For reading, where nothing is left behind by a cancellation.
    """
    results: dict[Key, Result] = {}
    failures: list[TestbedError] = []
    if len(works) == 1:
        return {key: await work() for key, work in works.items()}

    async def one(key: Key, work: Callable[[], Awaitable[Result]]) -> None:
        try:
            results[key] = await work()
        except TestbedError as error:
            failures.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for key, work in works.items():
            nursery.start_soon(one, key, work)
    if failures:
        raise failures[0]
    return {key: results[key] for key in works}
