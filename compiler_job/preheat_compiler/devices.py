"""What is done with the CUDA devices that a model is on.

Why it exists: other processes of the Job use the same devices, whose memory torch keeps for itself until it is told otherwise.
"""

from __future__ import annotations

import gc


def give_back() -> None:
    """Free what nothing holds any more, also what torch keeps of a device's memory for its own next use."""
    import torch

    # Modules are in cycles.
    gc.collect()
    # Asked first, so that this is not what begins with CUDA.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
