"""Calls and changes modules at random; each answer must be eager's. Run by test_fuzz.py, in a process that may die.

    python worker.py --steps 1000 --seed 1 --log steps.log [--models mlp conv]

Prints what was done as JSON: how often each kind of change succeeded, how many modules of each model were begun, and how
many of their calls a package answered. The log holds the steps of the module under test, written before each of them is taken.
"""

import argparse
import contextlib
import copy
import faulthandler
import json
import os
import pickle
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import hypothesis
import models
import mutations
import packages
import pytest
import torch
from answers import outcome, same
from calls import CALLS, CONTEXTS, KEYWORDS
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from torch.utils import _pytree as pytree

from preheat_runtime import serve

COUNTS = Counter()
DONE = Counter()
BEGUN, HOT = Counter(), Counter()
LOG = None
NAMES = sorted(models.MODELS)


def note(*words):
    COUNTS["steps"] += 1
    LOG.write(" ".join(map(str, words)) + "\n")
    LOG.flush()


KIND = st.sampled_from(sorted(mutations.MUTATIONS))
PAIR = st.sampled_from(mutations.THERE_AND_BACK)
NESTED = st.lists(st.sampled_from(["no_grad", "no_grad", "inference_mode", *CONTEXTS]), min_size=1, max_size=3)


class Modules(RuleBasedStateMachine):
    """One module, what torch.compile made of it, and all that is done to both."""

    @initialize(number=st.integers(0, 10_000))
    def begin(self, number):
        self.patch = pytest.MonkeyPatch()
        # Whatever the seed, hypothesis begins with the simplest of all examples: the first model, asked the same again and again.
        hypothesis.assume(number)
        self.name = NAMES[number % len(NAMES)]
        BEGUN[self.name] += 1
        LOG.seek(0)
        LOG.truncate()
        note("model", self.name)
        self.net = models.make(self.name, seed=1)
        self.fallbacks = 0

        def compile_(model, **arguments):
            def real(model, **_):
                def compiled(*args, **kwargs):
                    self.fallbacks += 1
                    return model(*args, **kwargs)

                return compiled

            return serve.serve(real, model, arguments)

        self.compile = compile_
        self.patch.setattr(torch, "compile", compile_)
        self.served = compile_(self.net)
        assert self.hot(4), "the package does not answer for a module as it was compiled"

    def teardown(self):
        self.patch.undo()
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(1)
        # Such a call is answered eagerly, so it would be right, and taken for hot.
        assert not serve.session().verifier.wrong, "a package was found wrong"

    def compare(self, served, call, *, contexts=("no_grad",)):
        """`call` it and the module itself, under the same modes and from the same state; returns whether a package answered."""
        state = copy.deepcopy(dict(self.net.named_buffers()))
        random = torch.get_rng_state()

        def under(model):
            torch.set_rng_state(random)
            with torch.no_grad():
                for name, buffer in self.net.named_buffers():
                    if name in state and state[name].shape == buffer.shape:
                        buffer.copy_(state[name])
            with contextlib.ExitStack() as stack:
                for name in contexts:
                    stack.enter_context(CONTEXTS[name]())
                return call(model)

        expected = outcome(lambda: under(self.net))
        before = self.fallbacks
        found = outcome(lambda: under(served))
        hot = self.fallbacks == before and not isinstance(found, Exception)
        COUNTS["calls"] += 1
        HOT[self.name] += hot
        why = same(found, expected)
        assert why is None, why
        return hot

    def arguments(self, size):
        with torch.random.fork_rng():
            torch.manual_seed(size)
            return models.MODELS[self.name][1](size)

    @rule(size=st.integers(2, 6), contexts=NESTED)
    def call(self, size, contexts):
        note("call", size, contexts)
        self.compare(self.served, lambda model: model(*self.arguments(size)), contexts=contexts)

    @rule(size=st.integers(2, 6))
    def plain_call(self, size):
        self.hot(size)

    def hot(self, size):
        """As `plain_call`; whether a package answered."""
        note("plain call", size)
        return self.compare(self.served, lambda model: model(*self.arguments(size)))

    @rule(size=st.integers(1, 7), how=st.sampled_from(sorted(CALLS)), given=st.sampled_from(KEYWORDS))
    def another_call(self, size, how, given):
        note("call", size, how, given)
        try:
            args = CALLS[how](self.arguments(size))
        except (RuntimeError, IndexError, NotImplementedError):
            return
        self.compare(self.served, lambda model: model(*args, **given))

    @rule(size=st.integers(2, 6))
    def refused(self, size):
        """Eager raises for an index out of range; a package must not end the process by it, and answers the next call."""
        note("refused call", size)
        with contextlib.suppress(NotImplementedError):
            args = CALLS["out of range"](self.arguments(size))
            self.compare(self.served, lambda model: model(*args))
        self.hot(size)

    @rule(size=st.integers(2, 6))
    def call_by_keyword(self, size):
        note("call by keyword", size)
        args = self.arguments(size)
        names = type(self.net).forward.__code__.co_varnames[1 : 1 + len(args)]
        if len(names) == len(args):
            self.compare(self.served, lambda model: model(**dict(zip(names, args, strict=True))))

    @rule(kind=KIND, number=st.integers(0, 7))
    def change(self, kind, number):
        self.done(kind, number)

    def done(self, kind, number):
        """As `change`; whether it could be done to this module."""
        note("change", kind, number)
        # What cannot be done to this module is not done, or half of it.
        with torch.no_grad():
            raised = outcome(lambda: mutations.MUTATIONS[kind](mutations.Case(self.net, self.patch, number)))
        if kind == "everything_else_undone":
            self.patch.setattr(torch, "compile", self.compile)
        done = not isinstance(raised, Exception)
        DONE[kind] += done
        return done

    @rule(kind=KIND, number=st.integers(0, 7), size=st.integers(2, 6))
    def change_and_call(self, kind, number, size):
        self.change(kind, number)
        self.plain_call(size)

    @rule(pair=PAIR, number=st.integers(0, 7))
    def there_and_back(self, pair, number):
        """Where the package answers, it does so again once the module is as it was."""
        there, back = pair
        self.hot(4)
        # torch's functional_call leaves plain tensors in a submodule that has several places; what is undone is a buffer then.
        held = [each for part in self.net.modules() for each in part._parameters.values() if each is not None]
        before = self.hot(4) and all(isinstance(each, torch.nn.Parameter) for each in held)
        done = self.done(there, number)
        self.hot(4)
        done = self.done(back, number) and done
        assert self.hot(4) or not (before and done), f"after {there} and {back} the package does not answer"

    @rule(kinds=st.lists(st.tuples(KIND, st.integers(0, 7)), min_size=2, max_size=4), size=st.integers(2, 6))
    def changes_and_call(self, kinds, size):
        for kind, number in kinds:
            self.change(kind, number)
        self.plain_call(size)

    @rule(kind=KIND, number=st.integers(0, 7), size=st.integers(2, 6), contexts=NESTED)
    def change_and_call_otherwise(self, kind, number, size, contexts):
        self.change(kind, number)
        self.call(size, contexts)

    @rule(size=st.integers(2, 6), by=st.sampled_from(["deepcopy", "pickle"]))
    def copied(self, size, by):
        note("copied", by, size)
        other = outcome(
            lambda: copy.deepcopy(self.served) if by == "deepcopy" else pickle.loads(pickle.dumps(self.served))
        )
        if not isinstance(other, Exception) and isinstance(getattr(other, "_orig_mod", None), torch.nn.Module):
            net, self.net = self.net, other._orig_mod
            try:
                self.compare(other, lambda model: model(*self.arguments(size)))
            finally:
                self.net = net

    @rule(size=st.integers(2, 6))
    def from_threads(self, size):
        note("threads", size)
        args = self.arguments(size)
        with torch.no_grad():
            expected = outcome(lambda: self.net(*args))
        if any(part.training for part in self.net.modules()):
            return  # each call changes what the next one sees
        wrong = []

        def work():
            with torch.no_grad():
                wrong.extend(same(outcome(lambda: self.served(*args)), expected) for _ in range(3))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not any(wrong), wrong

    @rule(size=st.integers(2, 4))
    def vmapped(self, size):
        note("vmap", size)
        args = pytree.tree_map_only(torch.Tensor, lambda x: torch.stack([x, x]), self.arguments(size))
        self.compare(self.served, lambda model: torch.func.vmap(lambda *each: model(*each))(*args))

    @rule(size=st.integers(2, 6), number=st.integers(0, 7))
    def functional_call(self, size, number):
        note("functional_call", size, number)
        torch.manual_seed(number)
        state = {n: torch.randn_like(t) if t.is_floating_point() else t for n, t in self.net.named_parameters()}
        args = self.arguments(size)

        def call(model):
            prefix = "" if model is self.net else "_orig_mod."
            return torch.func.functional_call(model, {prefix + name: t for name, t in state.items()}, args)

        self.compare(self.served, call)

    @rule(size=st.integers(2, 6))
    def tangents(self, size):
        note("forward-mode gradients", size)
        args = self.arguments(size)
        if not all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args):
            return
        ad = torch.autograd.forward_ad

        def call(model):
            with ad.dual_level():
                answer = model(*(ad.make_dual(x, torch.ones_like(x)) for x in args))
                return ad.unpack_dual(answer).tangent

        self.compare(self.served, call)


def pod(folder, names):
    """A folder as fetch leaves it, with all the packages in one revision."""
    tools = packages.tools()
    made = tools.Pod(root=folder)
    built = packages.packages(folder.parent / "packages", names).items()
    made.write(*((place, made.entry(place, module=name, bucket="b")) for name, place in built))
    os.environ["PREHEAT_DIR"] = str(folder)
    os.environ["PREHEAT_LOG"] = "off"
    os.environ.pop("PREHEAT_WORK_DIR", None)


def goes_on(options, seconds):
    steps = COUNTS["steps"]
    if steps >= options.steps:
        return options.all and steps < 4 * options.steps and not all(DONE[kind] for kind in mutations.MUTATIONS)
    return seconds < options.seconds or steps < options.least


def main():
    global LOG, NAMES
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then it ends, but for --least steps")
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="go on, to four times the steps, until each kind was done")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=sorted(models.MODELS), default=sorted(models.MODELS))
    options = parser.parse_args()
    NAMES = options.models
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, options.log.open("w") as LOG:
        pod(Path(folder) / "preheat", options.models)
        begin, number = time.monotonic(), options.seed
        while goes_on(options, time.monotonic() - begin):
            hypothesis.seed(number)(Modules)
            run_state_machine_as_test(
                Modules,
                settings=settings(
                    max_examples=4, stateful_step_count=12, deadline=None, database=None, print_blob=True,
                    phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
                ),
            )  # fmt: skip
            number += 1
    told = {
        **COUNTS, "done": {kind: DONE[kind] for kind in mutations.MUTATIONS},
        "begun": {name: BEGUN[name] for name in NAMES}, "hot": {name: HOT[name] for name in NAMES},
    }  # fmt: skip
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
