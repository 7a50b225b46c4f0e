"""One sentence on what the program does according to the trace."""

from __future__ import annotations

from snapreport.sentence import bytes_part, listed, sentence
from snapreport.timeline.activity import GRAPH_DROPPED, INFERENCE, TRAINING, Activity

_PHASES = {
    "forward": "forward passes",
    "backward": "backward passes",
    "optimizer step": "optimizer steps",
    "zero_grad": "zero_grad()",
}

_OUTER = {
    "backward": "a backward pass",
    "optimizer step": sentence("an optimizer's `step()`"),
    "zero_grad": "zero_grad()",
}


def activity_text(activity: Activity) -> str:
    """One sentence; "" if no phase was recorded."""
    ran = [text for phase, text in _PHASES.items() if phase in activity.events]
    if activity.kind == TRAINING:
        within = [text for phase, text in _OUTER.items() if phase in activity.outer]
        if within and ran in ([], [_PHASES["forward"]]):
            return sentence(
                "The program trains: the trace shows {} inside {}.", ran[0] if ran else "calls", listed(within)
            )
        if not ran:
            return "The program trains: a backward pass ran on another device."
        if ran == [_PHASES["forward"]]:
            where = "before the trace began, or on another device"
            return sentence("The program trains: a backward pass or an optimizer's `step()` ran {where}.", where=where)
        return sentence("The program trains: the trace shows {}.", listed(ran))
    if activity.kind == GRAPH_DROPPED:
        size = sentence(", {} at once", bytes_part(activity.graph_bytes)) if activity.graph_bytes else ""
        return sentence("Forward passes ran without a backward pass, and their graphs were dropped{size}.", size=size)
    if activity.kind == INFERENCE:
        return "The program runs inference: the trace shows forward passes and no backward pass."
    return "The trace does not show whether its forward pass is for training." if ran else ""
