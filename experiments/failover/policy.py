"""What a recovery policy is, and which are installed.

A package adds one through the entry-point group ``testbed.policies``; the four that ship are
found in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from testbed.errors import InternalError

if TYPE_CHECKING:
    from .recovery import Recovery


@runtime_checkable
class Policy(Protocol):
    """How a failure is handled, once it is known which hosts have failed.

    :ivar name: name in playbooks.
    :ivar summary: one sentence for people.
    """

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...

    def places(self, members: Sequence[str], failed: Collection[str]) -> tuple[str, ...]:
        """The members whose place another, healthy and free host must take."""

    async def execute(self, recovery: Recovery) -> None:
        """Bring the job back: from the decision to the command to train on.

        Called with spares chosen and checked. May be cancelled at any await outside of a
        change of the fabric, when a further host fails; it is called again then, on a new
        recovery with other spares.
        """


def policy_names() -> tuple[str, ...]:
    """Names of all installed policies, sorted, without importing any."""
    return tuple(sorted({point.name for point in entry_points(group="testbed.policies")}))


@functools.cache
def policy(name: str) -> Policy:
    """The policy of that name.

    :raises ValueError: when none is installed under that name, saying which are.
    :raises InternalError: when its entry point is broken.
    """
    points = [p for p in entry_points(group="testbed.policies") if p.name == name]
    if not points:
        raise ValueError(f"there is no policy {name!r}; there are {', '.join(policy_names())}")
    try:
        found = points[0].load()
    except Exception as error:
        raise InternalError(
            f"policy {name!r} ({points[0].value}) cannot be loaded: {error}",
            remedy="reinstall or remove the package that provides it",
        ) from error
    if not isinstance(found, Policy) or found.name != name:
        raise InternalError(f"entry point {name!r} ({points[0].value}) is no policy of that name")
    return found
