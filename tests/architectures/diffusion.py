"""Parts of an image generator, from diffusers, with weights from a fixed seed."""

from __future__ import annotations

import diffusers
import torch


def unet() -> torch.nn.Module:
    """The denoiser, small: a latent, a timestep and the text's embedding to a ModelOutput."""
    torch.manual_seed(0)
    return diffusers.UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=64,
        attention_head_dim=8, norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()  # fmt: skip


def _autoencoder() -> torch.nn.Module:
    torch.manual_seed(0)
    return diffusers.AutoencoderKL(
        block_out_channels=(32, 64), layers_per_block=1, latent_channels=4, norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    ).eval()  # fmt: skip


def autoencoder() -> torch.nn.Module:
    """The whole autoencoder; a CompiledModel names its `decoder` by path."""
    return _autoencoder()
