"""Exit codes of `preheat`, as docs/cli.md gives them; where a container ends for the same cause, its code."""

from __future__ import annotations

from typing import Final

from preheat_operator.containers import exits

OK: Final = exits.OK
DIFFERENT: Final = 1
"""`compile`: a target Failed. `diff`: the keys differ."""
USAGE: Final = 2
"""The command line or the YAML is wrong."""
TORCH: Final = 65
"""The Python named or found has no usable torch, or too little memory or disk to import it."""
INTERNAL: Final = exits.INTERNAL
MISSING: Final = 69
"""What was asked for is not in the store, or is not what its digest says."""
REFUSED: Final = exits.REFUSED
"""The store, or the disk, does not let us in."""
UNREACHABLE: Final = 75
"""The store cannot be reached now."""
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
"""`run`: as a shell's, when the command cannot be started."""
SIGNALLED: Final = 128
"""Plus the number of the signal that ended it."""
