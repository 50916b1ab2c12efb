"""ViT-B/16 classifying images: a patch convolution, then pre-norm LayerNorm blocks with exact GELU."""

from __future__ import annotations

import torch
from transformers import ViTConfig, ViTForImageClassification

TRAINING = False


class Classifier(torch.nn.Module):
    """Images [batch, 3, size, size] -> logits [batch, classes]."""

    def __init__(self, settings: ViTConfig) -> None:
        super().__init__()
        self.model = ViTForImageClassification(settings)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixel_values).logits


def build(*, batch: int = 1, size: int = 224, layers: int = 12) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    model = Classifier(ViTConfig(image_size=size, num_hidden_layers=layers, num_labels=1000))
    return model.eval(), (torch.randn(batch, 3, size, size),)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers at full width, 16 patches."""
    return build(size=64, layers=2)
