"""What a pod does where no package answers, and whether it holds answers against eager's: `spec.serving` of the model.

Why it exists: the CompiledModel says it, the index carries it as a short text, and the pod's process reads it from
PREHEAT_SERVING; all three mean the same words. Only what is not as by default is written, since admission pays for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .records import dataclass
from .variables import ENV_SERVING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What each word may be, the default first; in the order in which they are written.
WORDS: Mapping[str, tuple[str, ...]] = {
    "onMiss": ("Compile", "Eager", "Fail"),
    "onReject": ("Eager", "Compile"),
    "verify": ("After", "Before", "Never"),
}


class NotServed(RuntimeError):
    """No artifact answers this call, and `spec.serving.onMiss` is Fail; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The policy of one model, in the words of `WORDS`."""

    on_miss: str = "Compile"
    on_reject: str = "Eager"
    verify: str = "After"

    def text(self) -> str | None:
        """`onMiss=Fail,verify=Never`: what is not as by default; None when all is."""
        values = dict(zip(WORDS, (self.on_miss, self.on_reject, self.verify), strict=True))
        return ",".join(f"{name}={value}" for name, value in values.items() if value != WORDS[name][0]) or None


def read(environ: Mapping[str, str]) -> tuple[Serving, str | None]:
    """The policy of this process, and what of PREHEAT_SERVING cannot be understood, in words; that is as by default."""
    values = {name: allowed[0] for name, allowed in WORDS.items()}
    wrong = []
    for entry in filter(None, environ.get(ENV_SERVING, "").split(",")):
        name, _, value = entry.partition("=")
        if value in WORDS.get(name, ()):
            values[name] = value
        else:
            wrong.append(entry[:60])
    serving = Serving(on_miss=values["onMiss"], on_reject=values["onReject"], verify=values["verify"])
    if not wrong:
        return serving, None
    known = "; ".join(f"{name}={'|'.join(allowed)}" for name, allowed in WORDS.items())
    return (
        serving,
        f"{ENV_SERVING}: {', '.join(map(repr, wrong))[:300]} is not one of {known}, so the default holds there",
    )


def not_served(model: str | None, reason: str) -> NotServed:
    """The error of a call that is not to be compiled here."""
    return NotServed(
        f"Preheat has nothing compiled that answers this call ({reason}), and onMiss is Fail. "
        f"Add a bucket for it to spec.torch.modules[].buckets of CompiledModel {model or 'of this pod'}, or set its "
        "spec.serving.onMiss to Compile or Eager."
    )
