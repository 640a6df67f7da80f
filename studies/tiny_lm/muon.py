"""Muon: momentum whose update is made nearly orthogonal (K. Jordan, 2024)."""

from __future__ import annotations

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # quintic of the Newton-Schulz iteration
ITERATIONS = 5


class Muon:
    """For matrices inside the model; embeddings and norms are AdamW's.

    Matrices of one shape are updated together, which is faster on a CPU.
    """

    def __init__(
        self, matrices: list[torch.nn.Parameter], weight_decay: float, momentum: float = 0.95
    ) -> None:
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.groups: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            self.groups.setdefault(matrix.shape, []).append(matrix)
        self.averages = {
            shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every matrix by its gradient's running average, made orthogonal."""
        for shape, group in self.groups.items():
            gradients = torch.stack([matrix.grad for matrix in group])
            average = self.averages[shape].lerp_(gradients, 1 - self.momentum)
            updates = orthogonal(gradients.lerp(average, self.momentum))
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            for matrix, update in zip(group, updates, strict=True):
                matrix.mul_(1 - rate * self.weight_decay)
                matrix.add_(update, alpha=-rate * scale)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Bring all singular values of [n, rows, columns] near 1; returns float32."""
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT.contiguous()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.mT if tall else x).float()
