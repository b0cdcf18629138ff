"""Batch of bags of instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sklearn_xlc.batches.prefetching import Movable


@dataclass
class Bags(Movable):
    """Batch of bags; the instances are sorted by bag.

    The tensor form of :class:`~sklearn_xlc.groups.Groups`: pointers assign the instances to bags.

    Parameters
    ----------
    instances : tensor of shape (n_instances, n_columns), SparseRows, or other inputs
        Inputs of the encoder, one per instance.
    indptr : tensor of shape (n_bags + 1,), int64
        Bag i owns the instances ``indptr[i], ..., indptr[i + 1] - 1``, at least one.
    features : tensor of shape (n_instances, n_features), default=None
        Features of the instances, once the encoder has computed them.
    """

    instances: Any
    indptr: Tensor
    features: Any = None

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    def to(self, target: torch.device | torch.dtype) -> Bags:
        """Copy to a device, or convert the features to a dtype."""
        if not isinstance(target, torch.dtype):
            return super().to(target)
        return replace(self, features=None if self.features is None else self.features.to(target))

    @property
    def owner(self) -> Tensor:
        """Bag of each instance, of shape (n_instances,)."""
        n_instances = len(self.instances if self.features is None else self.features)
        return torch.repeat_interleave(self.indptr.diff(), output_size=n_instances)


def features_of(features: Tensor | Bags) -> Tensor:
    """Return the features of a batch; of bags, the features of their instances."""
    return features.features if isinstance(features, Bags) else features


def instances_of(inputs: Any) -> Any:
    """Return the inputs of an encoder: of bags, their instances."""
    return inputs.instances if isinstance(inputs, Bags) else inputs
