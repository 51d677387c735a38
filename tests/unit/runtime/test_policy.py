"""`spec.serving` as a short text: nothing for defaults, the same words on both sides, and what is odd is said."""

import itertools

import pytest

from preheat_operator.api import enums, names
from preheat_operator.api.spec import Serving as Spec
from preheat_runtime.policy import WORDS, NotServed, Serving, not_served, read
from preheat_runtime.variables import ENV_SERVING


def test_the_words_are_those_of_the_api():
    assert ENV_SERVING == names.ENV_SERVING
    assert list(WORDS) == list(Spec().to_api())
    kinds = (enums.OnMiss, enums.OnReject, enums.Verify)
    assert [set(words) for words in WORDS.values()] == [set(kind) for kind in kinds]
    assert {name: words[0] for name, words in WORDS.items()} == Spec().to_api()


def test_every_policy_is_read_as_it_was_written():
    texts = set()
    for on_miss, on_reject, verify in itertools.product(*WORDS.values()):
        policy = Serving(on_miss=on_miss, on_reject=on_reject, verify=verify)
        text = policy.text()
        texts.add(text)
        assert read({ENV_SERVING: text} if text else {}) == (policy, None)
        assert text is None or " " not in text, "it is one field of a line"
    assert len(texts) == 18
    assert Serving().text() is None


@pytest.mark.parametrize("entry", ["onMiss=fail", "onMiss", "onmiss=Fail", "verify=Never ", "=", "x" * 500])
def test_what_cannot_be_understood_is_said_and_the_rest_holds(entry):
    policy, wrong = read({ENV_SERVING: f"onReject=Compile,{entry}"})
    assert policy == Serving(on_reject="Compile")
    assert repr(entry[:60]) in wrong
    assert "onMiss=Compile|Eager|Fail" in wrong
    assert len(wrong) < 700


def test_a_call_that_is_not_served_says_why_and_what_to_do():
    error = not_served("vision", "no bucket answers this call")
    assert isinstance(error, NotServed)
    assert isinstance(error, RuntimeError)
    for words in ("no bucket answers this call", "CompiledModel vision", "buckets", "spec.serving.onMiss"):
        assert words in str(error)
