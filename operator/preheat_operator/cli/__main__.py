"""`python -m preheat_operator.cli`: the same as `preheat`."""

from __future__ import annotations

import sys

from preheat_operator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
