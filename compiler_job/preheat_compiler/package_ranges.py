"""Says in a bucket's words to what torch fixes a range of sizes.

Why it exists: a range that the code does not allow is what users are wrong about most often, and torch answers with its
own symbols and a page of advice about its own API. What a user can act on is in there: which size, and which sizes the
code does allow. Pure: text in, text out.
"""

from __future__ import annotations

import re

_ONE_SIZE = re.compile(r"You marked (.+?) as dynamic but your code specialized it to be a constant \((\d+)\)")
_CONDITION = re.compile(r"Not all values of (\w+) = .+? in the specified range .+? satisfy the generated guard (.+)")
_EQUAL = re.compile(r"The values of (\w+) = .+? and (\w+) = .+? must always be equal")
_ADVICE = re.compile(r"^\s+(\w+) = (?:Dim\('\w+', )?(.+?)\)?$", re.MULTILINE)
#: Of a multiple, what torch calls the number of steps: see `package_call`.
_STEPS = re.compile(r"\d+\*(\w+?)_steps")


def fixed_range(text: str) -> str | None:
    """What the code allows of the ranges that torch refused with `text`; None where it refused for something else."""
    if "Constraints violated" not in text:
        return None
    found = [
        f"the code fixes {_name(name)} to {size}: give that size a bucket of its own"
        for name, size in _ONE_SIZE.findall(text)
    ]
    found += [f"{one} must equal {other}: use one dim for both" for one, other in _EQUAL.findall(text)]
    advice = dict(_ADVICE.findall(text.partition("Suggested fixes:")[2].partition("\n\n")[0]))
    told = set()
    for name, condition in _CONDITION.findall(text):
        if name in told:
            continue  # what else it wants of the same size follows from the first, or from the advice
        told.add(name)
        allowed = f"only {_sizes(advice[name])}" if name in advice else f"only where {condition.strip().rstrip('.')}"
        found.append(f"of {_name(name)} the code allows {allowed}: say so with min, max and multipleOf")
    return "; ".join(found) or None


def _name(symbol: str) -> str:
    steps = _STEPS.fullmatch(symbol)
    return steps[1] if steps else symbol.removesuffix("_steps")


def _sizes(advice: str) -> str:
    multiple = re.fullmatch(r"(\d+)\*_\w+", advice)
    return f"multiples of {multiple[1]}" if multiple else advice.replace("=", " ").replace(",", " and")
