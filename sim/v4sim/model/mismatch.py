"""The error for a profile that was measured for other shapes than the model has.

One model's rows never answer for another: a V4-Pro deployment priced from V4-Flash rows is 27 to 60 %
too fast (reported against a published planner). So a missing model is an error that says what there is.
"""

from __future__ import annotations

from collections.abc import Iterable

from v4sim.errors import ProfileError


def wrong_model(profile: str, measured_for: Iterable[str], model: str) -> ProfileError:
    """What to raise when `profile` has operations of the models `measured_for` only, and `model` is
    served."""
    known = ", ".join(sorted(set(measured_for))) or "no model"
    return ProfileError(
        f"Profile {profile!r} was measured for {known}; the deployment serves {model!r} (model.name), whose "
        "shapes differ. Choose a profile that has it, measure it with `v4calib run`, or change model.name."
    )
