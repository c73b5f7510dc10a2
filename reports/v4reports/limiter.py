"""What a run says about its limiter: the ranking that `v4sim limiter` made, if it made one."""

from __future__ import annotations

from dataclasses import dataclass

from v4reports import numbers
from v4reports.jsonview import View


@dataclass(frozen=True, slots=True)
class Gain:
    """The objective with more of one resource. `value` is None where calls were not served."""

    name: str
    title: str
    change: str
    value: float | None
    gain: float
    interval: tuple[float, float] | None  # of the difference to the run as it is
    better_share: float | None  # of the resamples
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Limiter:
    """The ranking, best first. `unasked` are (title, reason)."""

    says: str
    unit: str
    step: float
    repeats: int
    calls: int
    value: float | None
    name: str  # of the resource that surely improves the objective most; empty: none does
    gains: tuple[Gain, ...]
    unasked: tuple[tuple[str, str], ...]
    caution: str

    def shown(self, value: float | None) -> str:
        """A figure of the objective in its unit."""
        if value is None:
            return "not served"
        return numbers.ms(value) if self.unit == "ms" else f"{numbers.digits(value)}{numbers.GAP}{self.unit}"

    @property
    def sentence(self) -> str:
        """The answer in one sentence, for the head of the page."""
        for one in self.gains:
            if one.name == self.name:
                return (
                    f"of all resources, more of “{one.title}” ({one.change}) helps most: {self.says} "
                    f"goes from {self.shown(self.value)} to {self.shown(one.value)}"
                )
        text = f"no single resource, {self.step:.0%} larger, surely improves {self.says}"
        best = self.gains[0] if self.gains else None
        if best is None or best.gain <= 0:
            return text
        return f"{text}; the best guess is “{best.title}” ({best.change}), to {self.shown(best.value)}"


def read_limiter(view: View) -> Limiter | None:
    """From the `limiter` entry of result.json; None where there is none."""
    if not view.text("objective"):
        return None
    return Limiter(
        says=view.text("says"),
        unit=view.text("unit"),
        step=view.number("step") or 0.0,
        repeats=view.count("repeats") or 1,
        calls=view.count("calls") or 0,
        value=view.number("value"),
        name=view.text("limiter"),
        gains=tuple(_gain(one) for one in view.children("resources")),
        unasked=tuple((one.text("title"), one.text("reason")) for one in view.children("unasked")),
        caution=view.text("caution"),
    )


def _gain(view: View) -> Gain:
    bounds = view.numbers("difference_ci")
    return Gain(
        name=view.text("name"),
        title=view.text("title"),
        change=view.text("change"),
        value=view.number("value"),
        gain=view.number("gain") or 0.0,
        interval=(bounds[0], bounds[1]) if len(bounds) == 2 else None,
        better_share=view.number("better_share"),
        is_sure=bool(view.data.get("sure")),
    )
