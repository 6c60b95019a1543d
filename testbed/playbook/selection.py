"""Which steps run: ``--tags`` and ``--skip-tags``, with the meaning they have in Ansible."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.errors import PlaybookError
from testbed.playbook.model import AnyStep, BlockStep, ParallelStep
from testbed.source.suggest import did_you_mean

ALWAYS = "always"
NEVER = "never"


class Selection:
    """Tags of a block count for the steps in it too. ``always`` runs whatever is asked for,
    ``never`` only when asked for by name.

    :raises PlaybookError: for a tag that no step has.
    """

    def __init__(
        self,
        steps: Iterable[AnyStep],
        tags: frozenset[str] = frozenset(),
        skip: frozenset[str] = frozenset(),
    ) -> None:
        self._chosen: dict[int, bool] = {}
        self._seen: set[str] = set()
        # Steps are kept alive by the playbook, so that their ids stay theirs.
        for step in steps:
            self._mark(step, frozenset(), tags, skip)
        unknown = sorted((tags | skip) - self._seen - {ALWAYS, NEVER})
        if unknown:
            raise PlaybookError(
                f"no step has the tag {unknown[0]!r}", remedy=did_you_mean(unknown[0], self._seen)
            )

    def selects(self, step: AnyStep) -> bool:
        """Whether the step, or anything in it, is to run."""
        return self._chosen.get(id(step), True)

    def _mark(
        self, step: AnyStep, inherited: frozenset[str], tags: frozenset[str], skip: frozenset[str]
    ) -> bool:
        own = step.tags | inherited
        self._seen |= step.tags
        children: tuple[AnyStep, ...] = ()
        if isinstance(step, BlockStep):
            children = (*step.block, *step.rescue, *step.always)
        elif isinstance(step, ParallelStep):
            children = step.children
        if children:
            chosen = [self._mark(child, own, tags, skip) for child in children]
            self._chosen[id(step)] = any(chosen)
            return any(chosen)
        wanted = not tags or bool(own & tags) or ALWAYS in own
        if NEVER in own and not own & (tags - {NEVER}):
            wanted = False
        self._chosen[id(step)] = wanted and not own & skip
        return self._chosen[id(step)]
