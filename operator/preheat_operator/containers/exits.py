"""Exit codes of the containers of a compile pod, as docs/contracts.md gives them: `plan.verdicts` decides by them."""

from __future__ import annotations

from typing import Final

OK: Final = 0
RETRY: Final = 1
"""The store could not be reached."""
REQUEST: Final = 64
"""The request is unusable: the toolkit and the controller do not fit."""
INTERNAL: Final = 66
"""A fault of Preheat's, or an unusable result."""
REFUSED: Final = 70
"""The store does not let the container in."""
