"""The settings of torch.compile that an artifact was made with, and the calls they answer.

Why it exists: they stand in the CompiledModel, so that no code has to change: a plain `torch.compile(model)` is answered
by whatever was made. But code that asks for a mode or an option of its own must get that, or torch itself. The compile
Job and the pod both make torch's arguments from this record, because Inductor's cache keys hold every option.
"""

from __future__ import annotations

from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

import torch

from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN_MODE = "default"
_any_autocast = torch._C._is_any_autocast_enabled


@dataclass(frozen=True, kw_only=True)
class Levers:
    """torch's own words: `mode` as torch.compile takes it, `options` by name, `autocast` the dtype or None."""

    mode: str = PLAIN_MODE
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    autocast: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Levers:
        """Raises TypeError for what is not one of ours."""
        return cls(**{**data, "options": dict(data["options"])})

    def to_json(self) -> dict[str, Any]:
        """As `target.json` holds it."""
        return asdict(self)

    @property
    def plain(self) -> bool:
        """Whether torch.compile is called without mode and options."""
        return self.mode == PLAIN_MODE and not self.options

    def refusal(self, arguments: Mapping[str, Any]) -> str | None:
        """Why a call of torch.compile with these arguments asks for something else, in words; None when it does not."""
        mode, options = arguments.get("mode"), arguments.get("options") or {}
        if mode not in (None, PLAIN_MODE, self.mode):
            return f"torch.compile was called with mode={mode!r}, made with {self.mode!r}"
        for name, value in options.items():
            made = self.options.get(name.replace("-", "_"))
            if type(made) is not type(value) or made != value:
                return f"torch.compile was called with options {name}={value!r}"[:200] + ", not made with it"
        return None

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the real torch.compile: the given ones, with mode and options as they were in the compile Job."""
        if self.plain:
            return dict(given)
        # torch takes a mode or options, not both; a mode is nothing but a set of options.
        options = {**torch._inductor.list_mode_options(self.mode), **self.options} if self.options else None
        mode = None if self.options else self.mode
        return {**given, "mode": mode, "options": options}

    def autocast_reason(self, device: str) -> str | None:
        """Why autocast, as it is now, is not as it was compiled in, in words. Cheap: it is asked at every call."""
        if self.autocast is None:
            return "autocast is on" if _any_autocast() else None
        if not torch.is_autocast_enabled(device):
            return f"autocast is off, compiled with {self.autocast}"
        now = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        return None if now == self.autocast else f"autocast is {now}, compiled with {self.autocast}"
