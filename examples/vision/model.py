"""An image classifier: torchvision's MobileNetV3, weights from a checkpoint file."""

from __future__ import annotations

import os

import torch
import torchvision

CHECKPOINT = os.environ.get("VISION_CHECKPOINT", "/app/checkpoint.pt")


def load() -> torch.nn.Module:
    """Build the network without allocating weights, then map them from the checkpoint."""
    with torch.device("meta"):
        model = torchvision.models.mobilenet_v3_large()
    weights = torch.load(CHECKPOINT, mmap=True, weights_only=True)
    model.load_state_dict(weights, assign=True)
    return model.eval()


def make_checkpoint(path: str, seed: int) -> None:
    """Stand in for training: random weights, the same for the same seed, with statistics as a trained network has them.

    Fresh batch norms would let the signal fade to nothing, and every image would get the same answer.
    """
    torch.manual_seed(seed)
    model = torchvision.models.mobilenet_v3_large()
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = None  # the plain average over all batches
    model.train()
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(8, 3, 224, 224))
        last = model.classifier[-1]
        last.weight.mul_(1 / model.eval()(torch.randn(8, 3, 224, 224)).std())
    torch.save(model.state_dict(), path)


if __name__ == "__main__":
    make_checkpoint(CHECKPOINT, int(os.environ.get("VISION_SEED", "7")))
