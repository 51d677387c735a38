"""The ways of a start that are compared, and their names in tables."""

from __future__ import annotations

#: Without torch.compile: what everything is compared with.
EAGER = "eager"
COLD, WARM, MEGA, B10, PREHEAT = "cold", "warm", "mega", "b10", "preheat"
#: A warm cache directory with torch's experimental cache of what Dynamo traced, which is off by default.
TRACED = "traced"
#: Fill the caches of the others; are not compared.
PREPARE, PREPARE_TRACED = "prepare", "prepare-traced"
#: Those that get the full number of rounds.
QUICK = (EAGER, WARM, MEGA, B10, PREHEAT)
WORDS = {
    EAGER: "eager",
    COLD: "`torch.compile`, cold",
    WARM: "warm cache directory",
    TRACED: "the same, `TORCH_CACHING_PRECOMPILE`",
    MEGA: "mega-cache",
    B10: "b10-transfer",
    PREHEAT: "Preheat",
}
