"""How many bytes of tensors live at once while a piece of code runs, on any device, also on `meta`."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):
    """Adds up the storages that operations make, and takes them off when they are freed.

    It sees what an allocator is asked for: activations kept for the backward pass, copies of autocast, results on the
    way. Not what a kernel takes for itself. A process's resident memory would show what the allocator keeps, too.

    peak: bytes at the highest.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        """Begin with `known` tensors, weights and batch, that are not counted."""
        super().__init__()
        self.peak = 0
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
        """Run an operation and count what it made."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf, leaf.untyped_storage().nbytes())
        return result
