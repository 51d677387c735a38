"""What people do to a module after they have compiled it: each by name, as a function of a `Case`.

One that does not apply to a module (no buffer, no square weight, nothing to remove) raises, and is not counted.
"""

import mutations_of_modules
import mutations_of_tensors
from case import MUTATIONS, Case

__all__ = ["MUTATIONS", "THERE_AND_BACK", "Case", "mutations_of_modules", "mutations_of_tensors"]

#: What leaves a module as it was: one, and then the other.
THERE_AND_BACK = (
    ("lora", "lora_removed"),
    ("parametrized", "parametrization_removed"),
    ("spectral_norm", "parametrization_removed"),
    ("hook", "hooks_removed"),
    ("pre_hook", "hooks_removed"),
    ("part_answers_otherwise", "part_answers_as_itself"),
    ("train", "evaluate"),
    ("train_one_part", "evaluate"),
    ("double_all", "float_all"),
    ("no_grad_wanted", "grad_wanted"),
    ("helper_in_place", "everything_else_undone"),
    ("layer_replaced", "everything_else_undone"),
)
