"""Decides, call by call, who answers for a module: its package, torch's compiler (warm or cold), or eager.

Why it exists: this is where all checks meet. The rule is one: a package answers only when everything that was compiled
in is known to hold now. Any difference, doubt or error of ours ends in what torch does by itself, and is said once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from . import policy, warm
from . import revision as revisions
from .asked import module_of, off_reason
from .bind import Mismatch, ModuleState, grad_reason, process_reason
from .calls import Matcher
from .fallback import EAGERLY, Fallback
from .fingerprint import changed_settings
from .levers import Levers
from .locks import ForkLock
from .package import TargetUnreadable
from .reasons import ON_MISS_EAGER, ON_REJECT_COMPILE
from .records import dataclass
from .regions import install, open_package
from .replacement import PreheatedModule, callable_for, is_preheated
from .report import Answer, Reporter
from .verify import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .bind import BoundPackage
    from .policy import Serving
    from .regions import RegionalPackage
    from .revision import Candidate, Revision
    from .steady import Steady
    from .verify import Check

#: So many calls in a row that find the module changed, and it is taken for one that changes with every call.
MAX_CHANGES_IN_A_ROW = 32
#: So many failures of the library itself, and it is not used again.
MAX_FAILURES = 3
_FIRST = "its first answer is not timed"


@dataclass(frozen=True, kw_only=True)
class Session:
    """What all modules of a process share."""

    revision: Revision
    reporter: Reporter
    serving: Serving
    verifier: Verifier

    @functools.cached_property
    def warm_reason(self) -> str | None:
        """Why compiler caches cannot be used, or None; the first look sets the process up to use them."""
        caches = [candidate for candidate in self.revision.candidates if candidate.kind == "caches"]
        return warm.prepare(caches, os.environ)


@functools.lru_cache(maxsize=1)
def session() -> Session:
    """Read what fetch brought; once in the life of a process."""
    revision = revisions.load(os.environ)
    reporter = Reporter(os.environ, manifest=revision.manifest)
    serving, odd = policy.read(os.environ)
    if odd is not None:
        reporter.failed("the policy of serving", ValueError(odd))
    return Session(revision=revision, reporter=reporter, serving=serving, verifier=Verifier(serving.verify, reporter))


def serve(real: Callable[..., Any], model: Any, arguments: dict[str, Any]) -> Any:
    """The object to return from `torch.compile(model, **arguments)`, or None when the real one shall answer."""
    if torch.compiler.is_compiling():
        return None
    for compiled in (model, getattr(model, "__self__", None)):
        if is_preheated(compiled) and compiled.__dict__["_preheat_arguments"] == arguments:
            return model
    # With other arguments, what was compiled already is compiled anew, as torch does with its own.
    model = model._orig_mod if is_preheated(model) else model
    module = module_of(model)
    shared = session()
    reason: str | None = "it is not a module's own call, and artifacts are of modules"
    if module is not None:
        if type(module).__module__.startswith("torch._dynamo") or is_preheated(module):
            return None
        reason = _refused_arguments(arguments)
        if reason is None and shared.serving.on_miss == "Compile":
            reason = _refused_levers(arguments, shared.revision.candidates)
        reason = reason or off_reason()
    if module is None or reason is not None:
        if shared.revision.candidates or module is not None:
            name = getattr(model, "__qualname__", type(model).__qualname__)
            shared.reporter.answered(Answer(outcome="cold", reason=str(reason), class_name=name))
        return real(model, **arguments)
    server = Server(module, functools.partial(real, model), model, arguments, shared)
    return PreheatedModule(module, server, arguments) if module is model else callable_for(server, model)


def _refused_arguments(arguments: Mapping[str, Any]) -> str | None:
    """Which argument of torch.compile asks for something no artifact was made for, in words.

    `dynamic`, `fullgraph` and the limits of recompiling change how torch compiles, not what the model computes: a
    package is one whole graph, and is not compiled again.
    `mode` and `options` are a matter between the call and each artifact: see `Levers`.
    """
    allowed = {
        "backend": (None, "inductor"),
        "disable": (False,),
        "name": (None,),
        "dynamic": (None, False, True),
        "fullgraph": (False, True),
        "dynamic_shapes": (None,),
    }
    if arguments.get("mode") is not None and arguments.get("options") is not None:
        return "torch.compile was called with mode and options, which torch itself refuses"
    for name, value in arguments.items():
        if name in ("mode", "options", "recompile_limit", "isolate_recompiles"):
            continue
        if not any(value is each or (isinstance(each, str) and value == each) for each in allowed.get(name, ())):
            return f"torch.compile was called with {name}={value!r}"[:200] + ", which no artifact was made for"
    return None


def _refused_levers(arguments: Mapping[str, Any], candidates: Sequence[Candidate]) -> str | None:
    """Why no artifact was made with the mode and options of this call, in words; None when one may have been."""
    if not candidates or Levers().refusal(arguments) is None:
        return None  # it asks for nothing of its own
    reasons = []
    for candidate in candidates:
        try:
            reason = candidate.target.levers.refusal(arguments)
        except TargetUnreadable as error:
            reason = str(error)
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[0]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Who answers a call, and why; `tensors` and `package` when it is a package, `check` when that is to be checked.

    `settled`: it is not for `onMiss` to change. `uncovered`: no bucket is for the call.
    """

    outcome: str
    reason: str
    candidate: Candidate | None = None
    package: BoundPackage | RegionalPackage | None = None
    tensors: list[torch.Tensor] | None = None
    check: Check | None = None
    settled: bool = False
    uncovered: bool = False


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """A candidate that is for this module: its package, or for the other kinds only what calls it takes."""

    candidate: Candidate
    package: BoundPackage | RegionalPackage | None
    matcher: Matcher | None
    check: Check | None = None

    def match(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor] | str:
        """The call's tensors, or why it is another call."""
        return (self.package or self.matcher).match(args, kwargs)  # type: ignore[union-attr]


class Server:
    """Answers for one module. Thread-safe."""

    def __init__(
        self,
        module: torch.nn.Module,
        compile_: Callable[..., Callable[..., Any]],
        eager: Callable[..., Any],
        arguments: Mapping[str, Any],
        shared: Session,
    ) -> None:
        """`compile_` is the real torch.compile of the model, `arguments` what the user called it with."""
        self._compile = compile_
        self._arguments = arguments
        self.fallback = Fallback(lambda: compile_(**arguments), eager)
        self._as_made: dict[Candidate, Fallback] = {}
        self._module = module
        self._session = shared
        self._created = time.perf_counter()
        self._lock = ForkLock()
        self._state: ModuleState | None = None
        self._fitting: tuple[Fitting, ...] = ()
        self._unfit = ""
        self._changes = 0
        self._failures: dict[Candidate, int] = {}
        self._steady: dict[Candidate, Steady | str | None] = {}
        self._said: set[tuple[int, str, str, Candidate | None]] = set()

    def answer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Answer one call. Raises only what torch or the user's own code raises."""
        begin = time.perf_counter()
        candidate, users_code, checked = None, False, None
        try:
            choice = self._choose(args, kwargs)
            package = choice.package
            if package is not None and choice.tensors is not None:
                candidate = choice.candidate
                if choice.check is not None:
                    checked = choice.check.begin(choice.tensors, args, kwargs)
                users_code = package.runs_the_module
                result = package.answer(choice.tensors, args, kwargs)
                users_code = False
                if package.missed:
                    path, why = next(iter(package.missed.items()))
                    choice = replace(choice, reason=f"package, but not of region {path}: {why}"[:600])
                if checked is not None:
                    call, checked = checked, None
                    result, wrong = call.compared(result)
                    choice = choice if wrong is None else replace(choice, outcome="eager", reason=wrong)
                elif choice.check is None:
                    self._time(choice.candidate, begin)
                self._report(choice, args, kwargs, begin)
                return result
        except Exception as error:  # whatever it is, torch can still answer
            if users_code:
                raise  # it would do the same again, with all that it did before
            if candidate is not None:
                self._failures[candidate] = self._failures.get(candidate, 0) + 1
            self._session.reporter.failed("the package was not used", error)
            choice = Choice(outcome="cold", reason=f"Preheat failed: {type(error).__name__}: {error}"[:300])
        finally:
            if checked is not None:
                checked.forget()
        return self._without_package(self._by_policy(choice, args, kwargs, begin), args, kwargs, begin)

    def _time(self, candidate: Candidate | None, begin: float) -> None:
        """Time one of a package's later answers, until there are enough; a call that is compared takes longer."""
        if candidate is None:
            return
        if candidate not in self._steady:
            self._steady[candidate] = _FIRST
            return
        steady = self._steady[candidate]
        if steady is None:
            return
        if isinstance(steady, str):
            # Not with the first answer, which imports nothing that it does not need.
            from .steady import steady_of

            self._steady[candidate] = steady_of(candidate)
        elif steady.add(time.perf_counter() - begin):
            self._steady[candidate] = None
            self._session.reporter.steady(steady)

    def _by_policy(self, choice: Choice, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float) -> Choice:
        """What `onMiss` makes of a call that nothing answers. Raises NotServed."""
        on_miss = self._session.serving.on_miss
        if choice.outcome != "cold" or choice.settled or on_miss == "Compile":
            return choice
        if on_miss == "Fail":
            self._report(replace(choice, outcome="refused"), args, kwargs, begin)
            raise policy.not_served(self._session.reporter.model, choice.reason)
        return replace(choice, outcome="eager", reason=choice.reason + ON_MISS_EAGER)

    def _without_package(self, choice: Choice, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float) -> Any:
        if choice.outcome == "eager":
            result = self.fallback.eager(*args, **kwargs)
        else:
            counter = warm.HitCounter()
            fallback = self._fallback_of(choice)
            result = fallback(args, kwargs)
            if fallback.unable is not None:
                choice = replace(choice, outcome="eager", reason=f"{choice.reason}; {fallback.unable}{EAGERLY}")
            elif choice.outcome == "warm" and counter.missed():
                choice = Choice(
                    outcome="cold", reason="the compiler caches did not hold it", candidate=choice.candidate
                )
        self._report(choice, args, kwargs, begin)
        return result

    def _fallback_of(self, choice: Choice) -> Fallback:
        """torch's own compile; where caches shall be found, with the settings that are part of their keys."""
        candidate = choice.candidate
        if choice.outcome != "warm" or candidate is None or candidate.target.levers.plain:
            return self.fallback
        with self._lock:
            if candidate not in self._as_made:
                arguments = candidate.target.levers.arguments(self._arguments)
                self._as_made[candidate] = Fallback(lambda: self._compile(**arguments), self.fallback.eager)
            return self._as_made[candidate]

    def _report(self, choice: Choice, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float) -> None:
        """Count a call that no bucket is for, and say how a call was answered unless that was said before."""
        if choice.uncovered:
            self._session.reporter.uncovered(
                args, kwargs, self._fitting[0].candidate.entry.module if self._fitting else None
            )
        elif choice.outcome in ("hot", "warm"):
            self._session.reporter.by_artifact += 1
        key = _key(choice)
        if key in self._said:
            return
        now = time.perf_counter()
        entry = choice.candidate.entry if choice.candidate is not None else None
        if len(self._said) < 1000:
            self._said.add(key)
        self._session.reporter.answered(
            Answer(
                outcome=choice.outcome,
                reason=choice.reason,
                module=entry.module if entry else None,
                bucket=entry.bucket if entry else None,
                hardware=entry.hardware if entry else None,
                class_name=type(self._module).__qualname__,
                size=choice.candidate.size if choice.candidate is not None else None,
                first_answer_seconds=now - begin,
                since_compile_seconds=now - self._created,
            )
        )

    def _choose(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Choice:
        if not self._session.revision.candidates:
            return Choice(outcome="cold", reason=self._session.revision.reason)
        state = self._current_state()
        if state is None:
            return Choice(outcome="cold", reason=self._unfit)
        # Modes forbid a package, never torch itself.
        forbidden = process_reason()
        reasons, covered = [], False
        wrong: Choice | None = None
        for fitting in self._fitting:
            matched = fitting.match(args, kwargs)
            if isinstance(matched, str):
                reasons.append(f"{fitting.candidate.entry.bucket}: {matched}")
                continue
            covered = True
            if fitting.candidate in self._session.verifier.wrong:
                words = self._session.verifier.wrong[fitting.candidate]
                wrong = wrong or self._not_good_enough(words, fitting.candidate)
                continue
            choice = self._offer(fitting, matched, forbidden or grad_reason(state, matched))
            if isinstance(choice, Choice):
                return choice
            reasons.append(f"{fitting.candidate.entry.bucket}: {choice}")
        if not self._fitting:
            return Choice(outcome="cold", reason=self._unfit)
        if wrong is not None:
            return wrong
        reason = f"no bucket answers this call: {' | '.join(reasons)}"[:600]
        return Choice(outcome="cold", reason=reason, uncovered=not covered)

    def _offer(self, fitting: Fitting, tensors: list[torch.Tensor], forbidden: str | None) -> Choice | str:
        """The choice of this candidate for a call that is one of its own; or why not, in words."""
        candidate = fitting.candidate
        other_autocast = candidate.target.levers.autocast_reason(candidate.fingerprint.device)
        if other_autocast is not None:
            return other_autocast
        if candidate.kind == "rejected":
            return self._not_good_enough(f"{candidate.entry.reason}: {candidate.entry.message}", candidate)
        if candidate.kind == "caches":
            why = self._session.warm_reason
            return why if why is not None else Choice(outcome="warm", reason="compiler caches", candidate=candidate)
        reason = forbidden or changed_settings(candidate.fingerprint)
        if reason is None and self._failures.get(candidate, 0) >= MAX_FAILURES:
            reason = "its library failed repeatedly"
        if reason is not None:
            return reason
        check = fitting.check if fitting.check is not None and fitting.check.due else None
        return Choice(
            outcome="hot", reason="package", candidate=candidate, package=fitting.package, tensors=tensors, check=check
        )

    def _not_good_enough(self, reason: str, candidate: Candidate) -> Choice:
        """Who answers for an artifact that is Rejected, or was found wrong here: `onReject`."""
        if self._session.serving.on_reject == "Eager":
            return Choice(outcome="eager", reason=reason, candidate=candidate)
        return Choice(outcome="cold", reason=reason + ON_REJECT_COMPILE, candidate=candidate, settled=True)

    def _current_state(self) -> ModuleState | None:
        """What the module is now; None when it is not worth looking any more."""
        state = self._state
        if state is not None and state.unchanged():
            self._changes = 0
            return state
        with self._lock:
            if self._state is not None and self._state.unchanged():
                return self._state
            if self._changes > MAX_CHANGES_IN_A_ROW:
                return None
            if self._state is not None:
                self._changes += 1
            if self._changes > MAX_CHANGES_IN_A_ROW:
                self._unfit = "the module changes with every call"
                self._fitting, self._state = (), None
                return None
            try:
                self._state, self._fitting, self._unfit = self._attach()
            except Exception as error:  # another thread may be changing the module; or it is too odd, now and later
                self._changes += MAX_CHANGES_IN_A_ROW // 4
                self._fitting, self._state = (), None
                self._unfit = f"the module cannot be described: {type(error).__name__}: {error}"[:300]
            return self._state

    def _attach(self) -> tuple[ModuleState, tuple[Fitting, ...], str]:
        """Compare the module with every candidate, from the one that varies least to the widest range."""
        fitting: list[Fitting] = []
        others: list[str] = []
        self._let_regions_ask()
        state = ModuleState(self._module)
        name = type(self._module).__qualname__
        for candidate in sorted(self._session.revision.candidates, key=_least_varying_first):
            try:
                fitting.append(self._fit(candidate, state))
            except (Mismatch, TargetUnreadable, ValueError) as error:
                others.append(f"{candidate.entry.module}/{candidate.entry.bucket}: {error}")
        shown = " | ".join(others)[:600] or self._session.revision.reason
        return state, tuple(fitting), f"no artifact is for this {name}: {shown}"

    def _let_regions_ask(self) -> None:
        for candidate in self._session.revision.candidates:
            with contextlib.suppress(Mismatch, TargetUnreadable):  # said when the candidate is compared
                install(self._module, candidate.target)

    def _fit(self, candidate: Candidate, state: ModuleState) -> Fitting:
        refusal = candidate.target.levers.refusal(self._arguments)
        if refusal is not None:
            raise Mismatch(refusal)
        if candidate.kind == "package":
            package = open_package(candidate.target, candidate.directory, self._module, state)
            check = self._session.verifier.check(candidate, package, self._module, state)
            return Fitting(candidate=candidate, package=package, matcher=None, check=check)
        reason = state.against(candidate.target)
        if reason is not None:
            raise Mismatch(reason)
        return Fitting(candidate=candidate, package=None, matcher=Matcher(candidate.target.call, self._module.forward))


def _key(choice: Choice) -> tuple[int, str, str, Candidate | None]:
    """What is said once: with the process in it, since a forked child speaks for itself."""
    return os.getpid(), choice.outcome, choice.reason, choice.candidate


def _least_varying_first(candidate: Candidate) -> tuple[bool, int, Sequence[str]]:
    try:
        dims = len(candidate.target.call.dims)
    except TargetUnreadable:
        dims = 0
    return candidate.kind != "package", dims, candidate.entry.key
