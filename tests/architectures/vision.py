"""Image classifiers of torchvision at their real size, with weights from a fixed seed."""

from __future__ import annotations

import torch
import torchvision.models as models


def _seeded(make) -> torch.nn.Module:
    torch.manual_seed(0)
    return make(weights=None).eval()


def resnet18() -> torch.nn.Module:
    return _seeded(models.resnet18)


def mobilenet_v3_large() -> torch.nn.Module:
    return _seeded(models.mobilenet_v3_large)


def convnext_tiny() -> torch.nn.Module:
    return _seeded(models.convnext_tiny)


def vit_b_16() -> torch.nn.Module:
    return _seeded(models.vit_b_16)


def swin_t() -> torch.nn.Module:
    return _seeded(models.swin_t)
