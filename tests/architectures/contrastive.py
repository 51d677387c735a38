"""A model of images and texts, as open_clip's own command makes it; `make bench` starts that command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import open_clip

if TYPE_CHECKING:
    import torch


def clip() -> torch.nn.Module:
    """As `open_clip_train.main` makes it, but for the weights, which a package does not hold. CLIP_MODEL is its `--model`."""
    name = os.environ["CLIP_MODEL"]
    model, _, _ = open_clip.create_model_and_transforms(name, "", precision="fp32", device="cpu", output_dict=True)
    return model.eval()
