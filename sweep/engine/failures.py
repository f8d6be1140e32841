"""Whose fault a lost fit is: the fit's own, or that of a node which was taken away from under it."""

from __future__ import annotations

import re
import time

# Of Ray's reasons why a node is gone (NodeDeathInfo in its protocol), those that come from outside: it was told to
# end (1: `ray stop`, `ray down`, a pod's removal), drained before a preemption (3) or drained as idle (4).
_TAKEN_AWAY = {1, 3, 4}
_NODE = re.compile(r"node ID: ([0-9a-f]+)")
# The news that a node is gone and the reason why take different ways to the driver.
_PATIENCE_SECONDS = 2.0


def is_preemption(error: BaseException) -> bool:
    """Whether a task of this driver failed because its node was preempted, drained or removed.

    Ray's exception for a task names only the node; why it went has to be asked of the cluster. A node that
    vanishes without notice is none: a fit that takes its machine down would otherwise be tried for ever.
    """
    named = _NODE.search(str(error)) if type(error).__name__ == "NodeDiedError" else None
    if named is None:
        return bool(getattr(error, "preempted", False))  # as Ray marks an actor's death
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        told = _taken_away(named[1])
        if told is not None or time.monotonic() > deadline:
            return bool(told)
        time.sleep(0.1)


def _taken_away(node_id: str) -> bool | None:
    """Whether a node's end came from outside; None while the cluster takes it for alive."""
    import ray
    from ray._private.state import state

    # A client (ray://) has no such state; there the node's death decides alone.
    if not ray.util.client.ray.is_connected() and node_id in state.get_draining_nodes():
        return True
    for node in ray.nodes():
        if node["NodeID"] == node_id and not node["Alive"]:
            return node["DeathReason"] in _TAKEN_AWAY
    return None
