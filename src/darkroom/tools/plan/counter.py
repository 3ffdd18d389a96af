"""Floating-point operations, and bytes of tensors that live at once, while a piece of code runs."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class Counter(TorchDispatchMode):
    """Counts operations, and adds up the storages that they make, taking them off when they are freed.

    It sees what an allocator is requested: activations kept for the backward pass, copies of autocast, results on the
    way. Not what a kernel takes for itself. A process's resident memory would show what the allocator keeps, too.

    flops: operations of matrix products, convolutions and attention, a multiplication and an addition counted as two.
    peak: bytes at the highest.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        """Start with `known` tensors, weights and batch, whose bytes are not counted."""
        super().__init__()
        self.flops = self.peak = 0
        self._now = 0
        self._seen: dict[int, Any] = {}
        for tensor in known:
            self._add(tensor, 0)

    def _add(self, tensor: Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # the address of the storage itself: views share it
        if key in self._seen:
            return

        def freed(_: Any) -> None:
            del self._seen[key]
            self._now -= size

        self._seen[key] = weakref.ref(storage, freed)
        self._now += size
        self.peak = max(self.peak, self._now)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it and what it made."""
        named = kwargs or {}
        count = flop_registry.get(func._overloadpacket)
        if count is None and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode a composite operation arrives whole: count what it consists of
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        result = func(*args, **named)
        if count is not None:
            self.flops += count(*args, **named, out_val=result)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf, leaf.untyped_storage().nbytes())
        return result
