"""Named pools and all-or-nothing reservations over them.

A pool counts tokens (or slots) of one kind of device memory. Admission asks several pools at once;
a `Reservation` takes from each or from none, and is either committed (the amounts now belong to
the call) or rolled back. Contract: used + free == capacity, and used never exceeds capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from v4sim.errors import LawError


class Pool:
    """`capacity` units, some in use. Modified only through take() and give()."""

    __slots__ = ("capacity", "name", "peak", "used")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.used = 0
        self.peak = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def take(self, amount: int) -> None:
        used = self.used + amount
        if used > self.capacity:
            raise LawError(
                f"pool {self.name!r}: {used} of {self.capacity} asked for; a pool can never hold more "
                "than its capacity. This is a defect of v4sim: please report the trace and the seed."
            )
        self.used = used
        if used > self.peak:
            self.peak = used

    def give(self, amount: int) -> None:
        if amount > self.used:
            raise LawError(f"pool {self.name!r}: {amount} units returned of {self.used} taken")
        self.used -= amount

    def __repr__(self) -> str:
        return f"<Pool {self.name} {self.used}/{self.capacity}>"


class Reservation:
    """Amounts taken from several pools for one call, to be kept or undone as a whole."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[tuple[Pool, int]] = []

    @classmethod
    def reserve(cls, pools: Sequence[Pool], amounts: Mapping[str, int]) -> Reservation | str:
        """Take `amounts[pool.name]` from each pool, or nothing.

        Returns the reservation, or the name of the first pool that is too small: the evidence of
        what blocked the admission.
        """
        for pool in pools:
            if amounts.get(pool.name, 0) > pool.free:
                return pool.name
        reservation = cls()
        for pool in pools:
            amount = amounts.get(pool.name, 0)
            if amount:
                pool.take(amount)
                reservation._taken.append((pool, amount))
        return reservation

    def commit(self) -> None:
        """Keep what was taken; the holder now gives it back through the pools."""
        self._taken.clear()

    def roll_back(self) -> None:
        for pool, amount in reversed(self._taken):
            pool.give(amount)
        self._taken.clear()
