"""The environment variables that a served container has from Preheat or for it, by name.

Why it exists: injection writes them into pods, the compile Job into the processes that play one, and the runtime reads
them there: three parts in two images, and a name that only two of them agree on would be silence. What each means:
docs/contracts.md and docs/runtime.md.
"""

from __future__ import annotations

from typing import Final

ENV_DIR: Final = "PREHEAT_DIR"
ENV_WORK_DIR: Final = "PREHEAT_WORK_DIR"
ENV_MODEL: Final = "PREHEAT_MODEL"
ENV_SERVING: Final = "PREHEAT_SERVING"
ENV_REPORTS_URL: Final = "PREHEAT_REPORTS_URL"
ENV_REPORTS_TOKEN: Final = "PREHEAT_REPORTS_TOKEN"  # noqa: S105 - the path of a file
ENV_REPORTS_CA: Final = "PREHEAT_REPORTS_CA"
ENV_LOG: Final = "PREHEAT_LOG"
ENV_DISABLE: Final = "PREHEAT_DISABLE"
