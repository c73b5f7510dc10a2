"""The queue of leaves: what is swept out changes no answer, and dead nodes do not pile up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from v4sim.cache.leaves import LeafQueue
from v4sim.cache.node import SpanNode

PUSH, TOUCH, DIE, LOCK, POP = range(5)
STEPS = st.lists(st.tuples(st.integers(PUSH, POP), st.integers(0, 7)), max_size=60)


class Eager(LeafQueue):
    """Sweeps before every push."""

    def push(self, node: SpanNode) -> None:
        self._sweep_at = 0
        super().push(node)


def nodes() -> list[SpanNode]:
    return [SpanNode(uid, 0, 4 * (1 + uid % 3), None, 0) for uid in range(8)]


def play(queue: LeafQueue, steps: list[tuple[int, int]]) -> list[int | None]:
    """What the queue answers while nodes are pushed, used, locked and removed."""
    found, world = [], nodes()
    for tick, (verb, number) in enumerate(steps, 1):
        node = world[number]
        if verb == PUSH and node.alive:
            node.locks = 0
            queue.push(node)
        elif verb == TOUCH:
            node.access = tick
        elif verb == DIE:
            node.alive = False
        elif verb == LOCK:
            node.locks = 1
        elif verb == POP:
            popped = queue.pop()
            found.append(popped.uid if popped is not None else None)
            if popped is not None:
                popped.alive = False
    while (left := queue.pop()) is not None:
        found.append(left.uid)
        left.alive = False
    return found


@given(STEPS)
def test_sweeping_changes_no_answer(steps: list[tuple[int, int]]) -> None:
    assert play(Eager(), steps) == play(LeafQueue(), steps)


def test_oldest_first_and_the_deepest_of_what_was_used_at_once() -> None:
    old, shallow, deep = (SpanNode(0, 0, end, None, tick) for end, tick in ((4, 1), (4, 2), (8, 2)))
    queue = LeafQueue()
    for node in (shallow, deep, old):
        queue.push(node)
    assert [queue.pop(), queue.pop(), queue.pop(), queue.pop()] == [old, deep, shallow, None]


def test_leaves_that_went_otherwise_do_not_pile_up() -> None:
    queue, longest = LeafQueue(), 0
    for tick in range(20_000):
        node = SpanNode(tick, 0, 4, None, tick)
        queue.push(node)
        node.alive = tick % 1000 == 0
        longest = max(longest, len(queue))
    assert longest <= 1024
