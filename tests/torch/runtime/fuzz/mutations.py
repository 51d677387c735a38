"""What people do to a module after they have compiled it: each by name, as a function of a `Case`.

One that does not apply to a module (no buffer, no square weight) does nothing, or raises; both are fine.
"""

import mutations_of_modules
import mutations_of_tensors
from case import MUTATIONS, Case

__all__ = ["MUTATIONS", "Case", "mutations_of_modules", "mutations_of_tensors"]
