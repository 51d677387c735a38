"""What torch says of a range that the code does not allow, in words that a user can act on. The texts are torch's own."""

from __future__ import annotations

import pytest

from preheat_compiler.package_ranges import fixed_range

BEGIN = 'Constraints violated ({})! For more information, run with TORCH_LOGS="+dynamic".\n'
END = (
    "\n\nThe error above occurred when calling torch.export.export. If you would like to view some more information "
    "about this error, replace your `export()` call with `draft_export()`."
)
ONE_SIZE = (
    "  - You marked {} as dynamic but your code specialized it to be a constant (4). If you're using mark_dynamic, "
    "either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO."
)
GUARD = (
    "  - Not all values of batch = L['x'].size()[0] in the specified range batch <= 9 satisfy the generated guard {}"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            BEGIN.format("batch") + ONE_SIZE.format("batch") + "\nSuggested fixes:\n  batch = 4" + END,
            "the code fixes batch to 4: give that size a bucket of its own",
        ),
        (
            BEGIN.format("4*batch_steps") + ONE_SIZE.format("4*batch_steps") + END,
            "the code fixes batch to 4: give that size a bucket of its own",
        ),
        (
            BEGIN.format("batch")
            + GUARD.format("2 <= L['x'].size()[0] and L['x'].size()[0] <= 6")
            + "\nSuggested fixes:\n  batch = Dim('batch', max=6)"
            + END,
            "of batch the code allows only max 6: say so with min, max and multipleOf",
        ),
        (
            BEGIN.format("batch")
            + GUARD.format("(L['x'].size()[0] % 4) == 0.\n")
            + GUARD.format("32*(L['x'].size()[0] // 4) >= 2.")
            + "\nSuggested fixes:\n  _batch = Dim('_batch', min=1, max=2)\n  batch = 4*_batch"
            + END,
            "of batch the code allows only multiples of 4: say so with min, max and multipleOf",
        ),
        (
            BEGIN.format("batch") + GUARD.format("(L['x'].size()[0] % 4) != 0.") + END,
            "of batch the code allows only where (L['x'].size()[0] % 4) != 0: say so with min, max and multipleOf",
        ),
        (
            BEGIN.format("b")
            + "  - The values of b = L['y'].size()[0] and a = L['x'].size()[0] must always be equal.\nSuggested fixes:\n  b = a"
            + END,
            "b must equal a: use one dim for both",
        ),
    ],
)
def test_it_says_which_size_and_what_the_code_allows(text: str, words: str) -> None:
    assert fixed_range(text) == words


def test_two_sizes_are_both_told() -> None:
    text = BEGIN.format("a, b") + ONE_SIZE.format("a") + "\n" + ONE_SIZE.format("b") + END
    assert fixed_range(text) == "; ".join(
        f"the code fixes {name} to 4: give that size a bucket of its own" for name in "ab"
    )


@pytest.mark.parametrize("text", ["", "Could not guard on data-dependent expression Eq(u0, 1)", BEGIN.format("batch")])
def test_another_refusal_is_torchs_own_to_tell(text: str) -> None:
    assert fixed_range(text) is None
