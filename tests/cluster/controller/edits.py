"""Draws what users, nodes and accidents do to a CompiledModel: sequences of steps, by a state machine of hypothesis.

The machine knows what a user knows, and no more: what they wrote. What the controller makes of it is not known when a
sequence is drawn, so a step may find nothing to do. Sequences are drawn first and played afterwards, since many are played
at once against one controller.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A user is quicker than the controller, or about as quick, or slower.
PAUSES = st.sampled_from([0.0, 0.0, 0.1, 0.4, 1.0])
#: How a compile Job's pod ends; the player says what each means.
ENDS = ("kept", "kept", "mixed", "rejected", "failed", "no torch", "out of memory", "message lost")
#: Those after which somebody waits ten seconds or longer; each once in a sequence.
SLOW_ENDS = ("killed", "crashed")
_OF_SO_MANY = 5
_NEW_IMAGE = 4


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a user wrote. `labels`, `replicas` and `cpu` decide nothing; `weights` empty: none are named."""

    model: bool = True
    workload: bool = True
    image: int = 1
    args: str = ""
    labels: int = 0
    replicas: int = 1
    cpu: str = "1"
    buckets: tuple[str, ...] = ("one",)
    hardware: tuple[str, ...] = ("cpu",)
    min_speedup: str = "1.05"
    when_missing: str = "Cold"
    restart: str = "Never"
    weights: str = ""
    suspend: bool = False

    @property
    def image_name(self) -> str:
        return f"registry/vision:{self.image}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is done, and for how many seconds nobody does anything after it.

    `edit`: what the user has written from now on. Otherwise `name` with `detail` is something else that happens.
    """

    name: str
    detail: str = ""
    edit: Inputs | None = None
    pause: float = 0.0


class Author(RuleBasedStateMachine):
    """Writes one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = Inputs()
        self.steps: list[Step] = []
        self.slow_ends = set(SLOW_ENDS)
        self.pods = 0
        self.deletions = 3

    def _write(self, name: str, pause: float, **fields: object) -> None:
        after = replace(self.inputs, **fields)  # type: ignore[arg-type]
        if after != self.inputs:
            self.inputs = after
            self.steps.append(Step(name=name, edit=after, pause=pause))

    def _happens(self, name: str, detail: str = "", pause: float = 0.0) -> None:
        self.steps.append(Step(name=name, detail=detail, pause=pause))

    @rule(image=st.integers(1, 3), pause=PAUSES)
    def another_image(self, image: int, pause: float) -> None:
        self._write("image", pause, image=image)

    @rule(image=st.integers(1, 3), pause=st.sampled_from([0.0, 0.2]))
    def there_and_back(self, image: int, pause: float) -> None:
        before = self.inputs.image
        self._write("image", pause, image=image)
        self._write("image back", 0.0, image=before)

    @rule(args=st.sampled_from(["", "--fast", "--slow"]), pause=PAUSES)
    def template_that_matters(self, args: str, pause: float) -> None:
        self._write("args", pause, args=args)

    @rule(labels=st.integers(0, 2), replicas=st.integers(1, 3), cpu=st.sampled_from("12"), pause=PAUSES)
    def template_that_does_not_matter(self, labels: int, replicas: int, cpu: str, pause: float) -> None:
        self._write("immaterial", pause, labels=labels, replicas=replicas, cpu=cpu)

    @rule(buckets=st.sampled_from([("one",), ("one", "two")]), pause=PAUSES)
    def buckets(self, buckets: tuple[str, ...], pause: float) -> None:
        self._write("buckets", pause, buckets=buckets)

    @rule(hardware=st.sampled_from([("cpu",), ("cpu", "gpu")]), pause=PAUSES)
    def profiles(self, hardware: tuple[str, ...], pause: float) -> None:
        self._write("profiles", pause, hardware=hardware)

    @rule(min_speedup=st.sampled_from(["1.05", "1.2"]), pause=PAUSES)
    def keep_if(self, min_speedup: str, pause: float) -> None:
        self._write("keepIf", pause, min_speedup=min_speedup)

    @rule(when_missing=st.sampled_from(["Cold", "Wait"]), restart=st.sampled_from(["Never", "Rollout"]), pause=PAUSES)
    def rollout(self, when_missing: str, restart: str, pause: float) -> None:
        self._write("rollout", pause, when_missing=when_missing, restart=restart)

    @rule(weights=st.sampled_from(["", "6", "7"]), pause=PAUSES)
    def weights(self, weights: str, pause: float) -> None:
        self._write("weights", pause, weights=weights)

    @rule(suspend=st.booleans(), pause=PAUSES)
    def suspend(self, suspend: bool, pause: float) -> None:
        self._write("suspend", pause, suspend=suspend)

    @rule(pause=PAUSES)
    def model_goes_or_comes(self, pause: float) -> None:
        self._write("model", pause, model=not self.inputs.model)

    @precondition(lambda self: self.inputs.model)
    @rule(pause=st.sampled_from([0.0, 0.5]))
    def model_is_made_again(self, pause: float) -> None:
        self._write("model goes", pause, model=False)
        self._write("model comes", 0.0, model=True)

    @rule(pause=PAUSES)
    def workload_goes_or_comes(self, pause: float) -> None:
        self._write("workload", pause, workload=not self.inputs.workload)

    @rule(pause=PAUSES)
    def everything_is_compiled(self, pause: float) -> None:
        self._happens("compiled", pause=pause)

    @rule(pause=PAUSES)
    def everything_is_compiled_again(self, pause: float) -> None:
        """The same: without it, few models would ever be ready."""
        self._happens("compiled", pause=pause)

    @rule(how=st.sampled_from(ENDS), pause=PAUSES)
    def a_job_ends(self, how: str, pause: float) -> None:
        self._happens("job ends", how, pause)

    @precondition(lambda self: self.slow_ends)
    @rule(how=st.sampled_from(SLOW_ENDS), pause=PAUSES)
    def a_job_is_tried_again_later(self, how: str, pause: float) -> None:
        if how in self.slow_ends:
            self.slow_ends.discard(how)
            self._happens("job ends", how, pause)

    @precondition(lambda self: self.deletions > 0)
    @rule(what=st.sampled_from(["job", "compile pod"]), pause=PAUSES)
    def somebody_deletes(self, what: str, pause: float) -> None:
        self.deletions -= 1
        self._happens("delete", what, pause)

    @rule(what=st.sampled_from(["rebuild", "rollback", "unpin", "pin"]), pause=PAUSES)
    def asked(self, what: str, pause: float) -> None:
        self._happens("asked", what, pause)

    @rule(how=st.sampled_from(["well", "wrong", "crashed"]), pause=PAUSES)
    def a_pod_comes(self, how: str, pause: float) -> None:
        self.pods += 1
        self._happens("pod", how, pause)

    @rule(how=st.sampled_from(["wrong", "crashed"]), pause=PAUSES)
    def two_pods_come_to_harm(self, how: str, pause: float) -> None:
        self.pods += 2
        self._happens("pod", how)
        self._happens("pod", how, pause)

    @precondition(lambda self: self.pods > 0)
    @rule(pause=PAUSES)
    def a_pod_goes(self, pause: float) -> None:
        self.pods -= 1
        self._happens("pod goes", pause=pause)


def to_be_compiled(steps: Sequence[Step]) -> list[Step]:
    """The steps, and in the end an image that was not there before: to be compiled, whatever was before."""
    last = next((step.edit for step in reversed(steps) if step.edit is not None), Inputs())
    return [
        *steps,
        Step(name="new image", edit=replace(last, model=True, workload=True, suspend=False, image=_NEW_IMAGE)),
    ]


def draw(*, count: int, length: int, number: int) -> list[list[Step]]:
    """`count` sequences of at most `length` rules each; the same ones for the same `number`.

    In a process of its own, since what hypothesis draws depends on the modules that are loaded, so on which tests run.
    """
    code = f"from {__name__} import write; write({count}, {length}, {number})"
    drawn = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=600).stdout
    return list(pickle.loads(drawn))


def write(count: int, length: int, number: int) -> None:
    """Write the sequences to stdout."""
    drawn: list[list[Step]] = []

    class Recording(Author):
        def teardown(self) -> None:
            drawn.append(self.steps)

    # What hypothesis draws next is often the former one with a difference: of several, one is taken. The very first example is
    # the simplest there is, and says nothing.
    bounds = settings(
        max_examples=_OF_SO_MANY * count + 1, stateful_step_count=length, phases=[Phase.generate], database=None,
        deadline=None, suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet,
    )  # fmt: skip
    run_state_machine_as_test(seed(number)(Recording), settings=bounds)
    sys.stdout.buffer.write(pickle.dumps(drawn[::-_OF_SO_MANY][:count]))
