"""Chooses who answers a call of one module: a package that fits it now, compiler caches, eager, or torch.

Why it exists: this is where all checks meet. What the module is was settled when it was described, and is looked at again
before each call; the process, and the call itself, are looked at here. What the choice comes to is `serve`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bind import Mismatch, ModuleState, grad_reason, process_reason, watched_reason
from .calls import Matcher
from .fingerprint import changed_settings, gpu_reasons, needed_flags
from .garbage import not_collected
from .hook import in_words
from .identity import not_imported
from .imports import bring
from .locks import ForkLock
from .outside import let_through
from .package import TargetUnreadable
from .reasons import ON_REJECT_COMPILE
from .records import dataclass
from .regions import install, looks_like, open_package

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from .bind import BoundPackage
    from .regions import RegionalPackage
    from .revision import Candidate
    from .serve import Session
    from .verify import Check

#: So many calls in a row that find the module changed, and it is taken for one that changes with every call.
MAX_CHANGES_IN_A_ROW = 32
#: So many failures of the library itself, and it is not used again.
MAX_FAILURES = 3


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


class Chooser:
    """Chooses for one module. Thread-safe."""

    def __init__(self, module: torch.nn.Module, arguments: Mapping[str, Any], session: Session) -> None:
        """`arguments` is what the user called torch.compile with."""
        self._module = module
        self._arguments = arguments
        self._session = session
        self._lock = ForkLock()
        self._state: ModuleState | None = None
        self.fitting: tuple[Fitting, ...] = ()
        """The candidates that are for this module as it was last described."""
        self._unfit = ""
        self._changes = 0
        self._failures: dict[Candidate, int] = {}

    def failed(self, candidate: Candidate) -> None:
        """Count a failure of its library; after some it is not chosen again."""
        self._failures[candidate] = self._failures.get(candidate, 0) + 1

    def choose(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Choice:
        """Who answers this call. Raises nothing that another call would not raise again."""
        if not self._session.revision.candidates:
            return Choice(outcome="cold", reason=self._session.revision.reason)
        watched = watched_reason()
        if watched is not None:
            return Choice(outcome="cold", reason=watched)
        state = self._current_state()
        if state is None:
            return Choice(outcome="cold", reason=self._unfit)
        # Modes forbid a package, never torch itself.
        forbidden = process_reason()
        reasons, covered = [], False
        wrong: Choice | None = None
        for fitting in self.fitting:
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
        if not self.fitting:
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
                self.fitting, self._state = (), None
                return None
            try:
                with not_collected():
                    self._state, self.fitting, self._unfit = self._attach()
            except Exception as error:  # another thread may be changing the module; or it is too odd, now and later
                let_through(error)
                self._changes += MAX_CHANGES_IN_A_ROW // 4
                self.fitting, self._state = (), None
                self._unfit = f"the module cannot be described: {in_words(error)}"[:300]
            return self._state

    def _attach(self) -> tuple[ModuleState, tuple[Fitting, ...], str]:
        """Compare the module with every candidate, from the one that varies least to the widest range."""
        fitting: list[Fitting] = []
        others: list[str] = []
        elsewhere: list[str] = []
        self._let_regions_ask()
        state = ModuleState(self._module)
        if self._import_for(state):
            state = ModuleState(self._module)
        name = type(self._module).__qualname__
        device = state.gpu
        for candidate in sorted(self._session.revision.candidates, key=_best_first):
            entry, other_gpu = candidate.entry, gpu_reasons(candidate.fingerprint, device)
            if other_gpu:
                elsewhere.append(f"{entry.module}/{entry.bucket}/{entry.hardware}: {'; '.join(other_gpu)}")
                continue
            try:
                fitting.append(self._fit(candidate, state))
            except (Mismatch, TargetUnreadable, ValueError) as error:
                let_through(error)
                others.append(f"{entry.module}/{entry.bucket}: {error}")
        if not others:  # then no artifact is for this process, so far
            said = " | ".join(filter(None, [self._session.revision.reason, *elsewhere]))[:1000]
            return state, tuple(fitting), said
        shown = " | ".join(others)[:600]
        return state, tuple(fitting), f"no artifact is for this {name}: {shown}"

    def _import_for(self, state: ModuleState) -> bool:
        """Import what running the module would; whether there is anything to look at again."""
        absent: set[str] = set()
        for candidate in self._session.revision.candidates:
            try:
                absent |= not_imported(state.identity, candidate.target.identity)
            except TargetUnreadable as error:  # said when the candidate is compared
                let_through(error)
        bring(absent)
        return bool(absent)

    def _let_regions_ask(self) -> None:
        for candidate in self._session.revision.candidates:
            try:
                if candidate.target.regions and looks_like(self._module, candidate.target):
                    install(self._module, candidate.target)
            except (Mismatch, TargetUnreadable) as error:  # said when the candidate is compared
                let_through(error)

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
        return Fitting(
            candidate=candidate,
            package=None,
            matcher=Matcher(candidate.target.call, self._module.forward, any_form=True),
        )


def _best_first(candidate: Candidate) -> tuple[bool, int, int, Sequence[str]]:
    """Packages before caches, fixed sizes before ranges, and of those for several kinds of CPU what uses most of this one."""
    try:
        dims = len(candidate.target.call.dims)
    except TargetUnreadable as error:
        let_through(error)
        dims = 0
    used = needed_flags(candidate.fingerprint.cpu_isa) or ()
    return candidate.kind != "package", dims, -len(used), candidate.entry.key
