"""What an experiment is given, and how it is declared.

Why it exists: an experiment says what it saw as it goes, so that a crash or a timeout costs only what was not yet seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """`run` in a process of its own for at most `seconds`; `question` is what its facts answer.

    `alone` keeps the machine free of the others meanwhile, for timings. `needs` names experiments whose files it uses.
    `environment` is what its process gets beside the caller's.
    """

    name: str
    question: str
    run: Callable[[Context], None]
    seconds: int
    cuda_only: bool = False
    alone: bool = False
    needs: tuple[str, ...] = ()
    environment: Callable[[], dict[str, str]] = dict


@dataclass(kw_only=True)
class Context:
    """One running experiment. `work` is its own empty folder, `shared` holds what others left, by their names."""

    device: str
    work: Path
    shared: Path
    answer: Path
    deadline: float
    options: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, **facts: Any) -> None:
        """Add facts and make them safe at once."""
        self.facts.update(facts)
        partial = self.answer.with_suffix(".partial")
        partial.write_text(json.dumps(self.facts), encoding="utf-8")
        partial.replace(self.answer)

    def attempt(self, name: str, function: Callable[[], Any]) -> None:
        """Note what `function` returns under `name`, or the error it raises: one of several questions of an experiment."""
        try:
            self.note(**{name: function()})
        except Exception as error:
            self.note(**{name: f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"})

    def left(self) -> float:
        """Seconds until this experiment is ended."""
        return self.deadline - time.monotonic()

    def answer_of(
        self,
        way: str,
        net: str,
        *,
        python: str | None = None,
        environment: Mapping[str, str | None] | None = None,
        **more: str,
    ) -> dict[str, Any]:
        """The facts of a fresh process that answers once (answer.py); an `error` among them when it did not.

        A variable that is None in `environment` is taken away.
        """
        arguments = ["--way", way, "--net", net, "--device", self.device]
        for name, value in more.items():
            arguments += [f"--{name}", value]
        try:
            done = subprocess.run(
                [python or sys.executable, str(HERE / "answer.py"), *arguments, "--started", repr(time.monotonic())],
                env={name: value for name, value in {**os.environ, **(environment or {})}.items() if value is not None},
                capture_output=True,
                text=True,
                timeout=max(1.0, self.left()),
            )
        except subprocess.TimeoutExpired:
            return {"error": "no time left"}
        try:
            facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return {"error": f"exit {done.returncode}: {' '.join(done.stderr.split())[-400:]}"}
        return facts
