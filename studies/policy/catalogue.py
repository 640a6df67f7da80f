"""All policies that were tried, in the order of the page that is written."""

from __future__ import annotations

from studies.policy.policies import ByLayer, InHeads, Policy, Superseded
from studies.policy.recent import Share, everything, quarter

BASELINE = "sinks + recent"
CHOSEN = "peak .97 + 2 novelty beyond .25"
FORMER = "peak .999 + 2 novelty, half recent"
_RETRIEVING = ((2, 0), (3, 1))  # the heads of the bundled demo model that look far back

CONTROLS = {
    BASELINE: Policy(recent=everything),
    "chance": Policy(score="chance"),
    "published: |logit| .95": Policy(score="abs_logit", decay=0.95, novelty=0),
    "sum of attention": Policy(score="sum", novelty=0),
    FORMER: Policy(),
}
SHARES = {f"former, recent {part:g} C": Policy(recent=Share(part)) for part in (0.25, 0.7)}
DECAYS = {"former, decay .97, quarter recent": Policy(decay=0.97, recent=quarter)}
TERMS = {
    "former, group's maximum": Policy(group="max"),
    "former, 1 novelty": Policy(novelty=1),
    "former, novelty fades by .999": Policy(fading=0.999),
    "former, novelty to a mean decaying by .95": Policy(mean_decay=0.95),
    "former, novelty carried on by .8": Policy(carry=0.8),
    "former, half a value novelty": Policy(value_novelty=0.5),
    "former, pooled over 1 neighbor": Policy(pooled=1),
    "peak .97, no novelty": Policy(decay=0.97, novelty=0, recent=quarter),
    "superseded keys go": Superseded(novelty=0, decay=0, recent=quarter),
}
MARGINS = {
    CHOSEN: Policy(decay=0.97, margin=0.25, recent=quarter),
    **{
        f"chosen, beyond {margin:g}": Policy(decay=0.97, margin=margin, recent=quarter)
        for margin in (0.0, 0.2, 0.3, 0.4)
    },
    "chosen, 5 novelty": Policy(decay=0.97, margin=0.25, novelty=5, recent=quarter),
    "chosen, decay .999": Policy(margin=0.25, recent=quarter),
    "chosen, half recent": Policy(decay=0.97, margin=0.25),
    "chosen, beyond 0.4, carried on by .8": Policy(
        decay=0.97, margin=0.4, recent=quarter, carry=0.8
    ),
    "chosen, superseded keys go": Superseded(
        decay=0.97, margin=0.25, recent=quarter, distinct=0.5
    ),
    "chosen, in the two heads that retrieve": InHeads(
        decay=0.97, margin=0.25, recent=Share(0.01), inner=quarter, heads=_RETRIEVING
    ),
}
BY_LAYER = {
    "sinks + recent, rows by layer": ByLayer(recent=everything),
    "former, rows by layer": ByLayer(),
    "chosen, rows by layer": ByLayer(decay=0.97, margin=0.25, recent=quarter),
}
ALL = {**CONTROLS, **SHARES, **DECAYS, **TERMS, **MARGINS, **BY_LAYER}
FINALISTS = (
    BASELINE,
    FORMER,
    CHOSEN,
    "chosen, beyond 0.2",
    "chosen, beyond 0.4, carried on by .8",
    *BY_LAYER,
)
