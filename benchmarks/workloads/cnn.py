"""A residual convolutional network, ResNet-18's shape, written by hand: convolution, batch norm, ReLU, residual add."""

from __future__ import annotations

import torch
from torch import nn

TRAINING = False


class Block(nn.Module):
    """[batch, width_in, h, w] -> [batch, width, h / stride, w / stride]."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(width_in, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        same = stride == 1 and width_in == width
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


class ResidualNet(nn.Module):
    """Images [batch, 3, size, size] -> logits [batch, classes]."""

    def __init__(self, widths: tuple[int, ...], blocks: int, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        layers = []
        width_in = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(Block(width_in, width, 2 if stage > 0 and block == 0 else 1))
                width_in = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width_in, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(images)).mean((2, 3)))


def build(
    *, batch: int = 1, size: int = 224, widths: tuple[int, ...] = (64, 128, 256, 512), blocks: int = 2
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return ResidualNet(widths, blocks).eval(), (torch.randn(batch, 3, size, size),)


def small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Two narrow stages, one block each."""
    return build(size=64, widths=(16, 32), blocks=1)
