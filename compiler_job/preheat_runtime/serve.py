"""Answers for a module, call by call: by its package, by torch's compiler (warm or cold), or by eager.

Why it exists: the rule is one: a package answers only when everything that was compiled in is known to hold now, which
`choosing` finds out. Any difference, doubt or error of ours ends in what torch does by itself, and is said once.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from . import policy, warm
from . import revision as revisions
from .asked import module_of, off_reason, refused_arguments, refused_levers
from .choosing import Choice, Chooser
from .fallback import EAGERLY, Fallback, is_on_gpu
from .fingerprint import fits_a_gpu
from .hook import WITHOUT, complain, in_words
from .locks import ForkLock, once, once_property
from .outside import let_through
from .reasons import FAILED, ON_MISS_EAGER
from .records import changed, dataclass
from .replacement import PreheatedModule, callable_for, is_preheated
from .report import Answer, of_this_process
from .verify import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .policy import Serving
    from .report import Reporter
    from .revision import Candidate, Revision
    from .steady import Steady
    from .verify import Call

T = TypeVar("T")
_POLICY = "the policy of serving"
_FIRST = "its first answer is not timed"
_SIZES = "torch learns by itself which sizes vary"
_NOT_COUNTED = "what the compiler caches held was not counted"


@dataclass(frozen=True, kw_only=True)
class Session:
    """What all modules of a process share."""

    revision: Revision
    reporter: Reporter
    serving: Serving
    verifier: Verifier

    @once_property
    def warm_reason(self) -> str | None:
        """Why compiler caches cannot be used, or None; the first look sets the process up to use them."""
        caches = [
            candidate
            for candidate in self.revision.candidates
            if candidate.kind == "caches" and fits_a_gpu(candidate.fingerprint)
        ]
        reason = warm.prepare(caches, os.environ)
        if reason is None:
            try:
                # Not with a package's answer, which imports nothing that it does not need.
                from . import varying

                varying.bring(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
            except Exception as error:
                complain(_SIZES, error, self.reporter)
        return reason


@once
def session() -> Session:
    """Read what fetch brought; once in the life of a process."""
    reporter = of_this_process()
    try:
        revision = revisions.load(os.environ)
    except Exception as error:
        let_through(error)
        complain("the revision was not read", error, reporter)
        revision = revisions.Revision(manifest=None, candidates=(), reason=_words(error))
    reporter.manifest = revision.manifest
    try:
        serving, odd = policy.read(os.environ)
    except Exception as error:
        let_through(error)
        complain(_POLICY, error, reporter)
        serving, odd = policy.Serving(), None
    if odd is not None:
        complain(_POLICY, ValueError(odd), reporter)
    return Session(revision=revision, reporter=reporter, serving=serving, verifier=Verifier(serving.verify, reporter))


def serve(real: Callable[..., Any], model: Any, arguments: dict[str, Any]) -> Any:
    """What `torch.compile(model, **arguments)` returns. Raises only what `real`, the real one, raises."""
    try:
        made, model = _made(real, model, arguments)
    except Exception as error:
        let_through(error)
        complain(WITHOUT, error)
        made = None
    return real(model, **arguments) if made is None else made


def _made(real: Callable[..., Any], model: Any, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """What to return; None where the real one shall be asked, and of what."""
    if torch.compiler.is_compiling():
        return None, model
    for compiled in (model, getattr(model, "__self__", None)):
        if is_preheated(compiled) and compiled.__dict__["_preheat_arguments"] == arguments:
            return model, model
    # With other arguments, what was compiled already is compiled anew, as torch does with its own.
    model = model._orig_mod if is_preheated(model) else model
    module = module_of(model)
    shared = session()
    reason: str | None = "it is not a module's own call, and artifacts are of modules"
    if module is not None:
        if type(module).__module__.startswith("torch._dynamo") or is_preheated(module):
            return None, model
        reason = refused_arguments(arguments)
        if reason is None and shared.serving.on_miss == "Compile":
            reason = refused_levers(arguments, shared.revision.candidates)
        reason = reason or off_reason()
    if module is None or reason is not None:
        if shared.revision.candidates or module is not None:
            name = getattr(model, "__qualname__", type(model).__qualname__)
            shared.reporter.answered(Answer(outcome="cold", reason=str(reason), class_name=name))
        return None, model
    server = Server(module, functools.partial(real, model), model, arguments, shared)
    return PreheatedModule(module, server, arguments) if module is model else callable_for(server, model), model


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
        # Nothing here may hold this object in turn: the module's weights would live until Python looks for cycles.
        self._failed = functools.partial(_failed, shared.reporter)
        self._on_gpu = functools.partial(is_on_gpu, module)
        self.fallback = Fallback(lambda: compile_(**arguments), eager, self._failed, self._on_gpu)
        self._as_made: dict[Candidate, Fallback] = {}
        self._module = module
        self._session = shared
        self._created = time.perf_counter()
        self._lock = ForkLock()
        self.chooser = Chooser(module, arguments, shared)
        self._steady: dict[Candidate, Steady | str | None] = {}
        self._said: set[tuple[int, str, str, Candidate | None]] = set()

    def answer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Answer one call. Raises only what torch or the user's own code raises."""
        begin = time.perf_counter()
        candidate, users_code, call = None, False, None
        failure: Exception | None = None
        try:
            choice = self.chooser.choose(args, kwargs)
            package = choice.package
            if package is not None and choice.tensors is not None:
                candidate = choice.candidate
                if choice.check is not None:
                    call = choice.check.begin(choice.tensors, args, kwargs)
                users_code = package.runs_the_module
                result = package.answer(choice.tensors, args, kwargs)
                users_code = False
                checked, call = call, None
                return self._answered(choice, checked, result, args, kwargs, begin)
        except Exception as error:  # whatever it is, torch can still answer
            if users_code:
                raise  # it would do the same again, with all that it did before
            let_through(error)
            choice, failure = Choice(outcome="cold", reason=_words(error), candidate=candidate), error
        finally:
            if call is not None:
                call.forget()
        try:
            if failure is not None:
                if candidate is not None:
                    return self._instead(choice, candidate, failure, args, kwargs, begin)
                self._failed("the package was not used", failure)
            return self._without_package(self._by_policy(choice, args, kwargs, begin), args, kwargs, begin)
        finally:
            # Its traceback holds this frame, which would hold it, and the call's inputs until Python looks for cycles.
            del failure

    def _answered(
        self, choice: Choice, call: Call | None, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float
    ) -> Any:  # fmt: skip
        """What to answer where a package gave `result`: that, unless `call` finds it wrong. Never raises.

        Whatever fails of ours is said, and no call is made twice for it.
        """
        try:
            if choice.package is not None and choice.package.missed:
                path, why = next(iter(choice.package.missed.items()))
                choice = changed(choice, reason=f"package, but not of region {path}: {why}"[:600])
            if call is not None:
                result, wrong = call.compared(result)
                choice = choice if wrong is None else changed(choice, outcome="eager", reason=wrong)
            elif choice.check is None:
                self._time(choice.candidate, begin)
        except Exception as error:
            let_through(error)
            self._failed("what became of an answer was not found out", error)
        self._report(choice, args, kwargs, begin)
        return result

    def _instead(
        self, choice: Choice, candidate: Candidate, failure: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float
    ) -> Any:  # fmt: skip
        """Eager's answer where a package's code failed with `failure`. Raises what eager raises, or NotServed.

        Eager, because it tells apart what failed: a call that eager refuses as well (an index beyond a table) says nothing
        against the package, and torch must not compile for minutes to refuse it.
        """
        try:
            result = self.fallback.eager(*args, **kwargs)
            self.chooser.failed(candidate)
            self._failed("the package was not used", failure)
        finally:
            del failure  # as there
        choice = self._by_policy(choice, args, kwargs, begin)
        self._report(changed(choice, outcome="eager"), args, kwargs, begin)
        return result

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
            self._steady[candidate] = None  # should that fail, it is not tried at each call
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
            self._report(changed(choice, outcome="refused"), args, kwargs, begin)
            raise policy.not_served(self._session.reporter.model, choice.reason)
        return changed(choice, outcome="eager", reason=choice.reason + ON_MISS_EAGER)

    def _without_package(self, choice: Choice, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float) -> Any:
        if choice.outcome == "eager":
            result = self.fallback.eager(*args, **kwargs)
        else:
            warmly = choice.outcome == "warm"
            counter = self._ours(_NOT_COUNTED, warm.HitCounter, None) if warmly else None
            fallback = self._ours(
                "the settings of the compiler caches", lambda: self._fallback_of(choice), self.fallback
            )
            result = fallback(args, kwargs)
            if fallback.unable is not None:
                choice = changed(choice, outcome="eager", reason=f"{choice.reason}; {fallback.unable}{EAGERLY}")
            elif counter is not None and self._ours(_NOT_COUNTED, counter.missed, 0):
                choice = Choice(
                    outcome="cold", reason="the compiler caches did not hold it", candidate=choice.candidate
                )
        self._report(choice, args, kwargs, begin)
        return result

    def _ours(self, what: str, do: Callable[[], T], otherwise: T) -> T:
        """What `do` gives, which is no code of torch's or the user's; where it fails that is said, and it is `otherwise`."""
        try:
            return do()
        except Exception as error:
            let_through(error)
            self._failed(what, error)
            return otherwise

    def _fallback_of(self, choice: Choice) -> Fallback:
        """torch's own compile; where caches shall be found, with the settings that are part of their keys."""
        candidate = choice.candidate
        if choice.outcome != "warm" or candidate is None or candidate.target.levers.plain:
            return self.fallback
        with self._lock:
            if candidate not in self._as_made:
                compile_, arguments = self._compile, candidate.target.levers.arguments(self._arguments)
                self._as_made[candidate] = Fallback(
                    lambda: compile_(**arguments), self.fallback.eager, self._failed, self._on_gpu
                )
            return self._as_made[candidate]

    def _report(self, choice: Choice, args: tuple[Any, ...], kwargs: Mapping[str, Any], begin: float) -> None:
        """Count a call that no bucket is for, and say how a call was answered unless that was said before. Never raises."""
        try:
            if choice.uncovered:
                fitting = self.chooser.fitting
                self._session.reporter.uncovered(args, kwargs, fitting[0].candidate.entry.module if fitting else None)
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
        except Exception as error:
            let_through(error)
            self._failed("an answer was not reported", error)


def _failed(reporter: Reporter, what: str, error: Exception) -> None:
    complain(what, error, reporter)


def _words(error: Exception) -> str:
    return f"{FAILED}{in_words(error)}"[:300]


def _key(choice: Choice) -> tuple[int, str, str, Candidate | None]:
    """What is said once: with the process in it, since a forked child speaks for itself."""
    return os.getpid(), choice.outcome, choice.reason, choice.candidate
