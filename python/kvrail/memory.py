"""Where the bytes of an object are: addresses, tensors, buffers. Imports no tensor library; objects say it
themselves."""
from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional, Sequence, Union

from ._kvrail import ffi, lib
from .errors import KvrailError

MemoryLike = Any
"""An address (int), or what has data_ptr() (PyTorch), __cuda_array_interface__, __array_interface__ (NumPy, Memory) or
the buffer protocol."""

LAYOUTS = {name[4:]: getattr(lib, name) for name in dir(lib) if name[:7] in ("KVR_NB_", "KVR_NL_", "KVR_TWO")}
"""Engine layouts by their names in kvrail.h, without KVR_: "NL_X_TWO_NB_BS_NH_HS", ..."""


class Extent(NamedTuple):
    """Memory of an array. stride counts elements."""

    address: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    element_bytes: int

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """From one row (first dimension) to the next."""
        return self.stride[0] * self.element_bytes

    @property
    def row_is_contiguous(self) -> bool:
        return self.stride[1:] == contiguous(self.shape)[1:]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    stride = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        stride[i] = stride[i + 1] * shape[i + 1]
    return tuple(stride)


def extent(thing: MemoryLike) -> Extent:
    """TypeError when `thing` does not say where its memory is."""
    if isinstance(thing, Extent):
        return thing
    if hasattr(thing, "data_ptr"):
        return Extent(int(thing.data_ptr()), tuple(thing.shape), tuple(thing.stride()), int(thing.element_size()))
    for name in ("__cuda_array_interface__", "__array_interface__"):
        facts = getattr(thing, name, None)
        if facts is not None:
            shape, size = tuple(facts["shape"]), int(facts["typestr"][2:])
            strides = facts.get("strides")
            stride = tuple(step // size for step in strides) if strides else contiguous(shape)
            return Extent(int(facts["data"][0]), shape, stride, size)
    try:
        view = memoryview(thing)
    except TypeError:
        raise TypeError(
            f"{type(thing).__name__} has neither data_ptr(), __cuda_array_interface__, __array_interface__ nor a buffer"
        ) from None
    if not view.c_contiguous or view.ndim == 0:
        raise TypeError("a buffer must be contiguous and have a dimension")
    shape = tuple(view.shape or ())
    return Extent(int(ffi.cast("uintptr_t", ffi.from_buffer(view.cast("B")))), shape, contiguous(shape), view.itemsize)


def address_of(thing: Union[int, MemoryLike]) -> int:
    return thing if isinstance(thing, int) else extent(thing).address


class Plane(NamedTuple):
    """Block b is block_bytes bytes at address + b * block_stride."""

    address: int
    block_stride: int
    block_bytes: int


class Layout:
    """Where the paged KV memory of this process is, and how it is cut into blocks: one group of planes, in layer
    order."""

    def __init__(
        self,
        planes: Sequence[Plane],
        tokens_per_block: int,
        block_count: int,
        *,
        window_tokens: Optional[int] = None,
        keep: Any = None,
    ) -> None:
        if not planes:
            raise ValueError("a layout has planes")
        self.planes = [Plane(*plane) for plane in planes]
        self.tokens_per_block = tokens_per_block
        self.block_count = block_count
        self._keep = keep  # the memory lives as long as the layout
        self._planes = ffi.new("struct kvr_plane[]", len(self.planes))
        for at, plane in zip(self._planes, self.planes):
            at.address = ffi.cast("void *", plane.address)
            at.block_stride = plane.block_stride
            at.block_bytes = plane.block_bytes
        self._group = ffi.new("struct kvr_group *")
        self._group.tokens_per_block = tokens_per_block
        self._group.window_tokens = lib.KVR_WINDOW_FULL if window_tokens is None else window_tokens
        self._group.block_count = block_count
        self._group.plane_count = len(self.planes)
        self._group.planes = self._planes
        self.handle = ffi.new("struct kvr_layout *")
        self.handle.struct_bytes = ffi.sizeof("struct kvr_layout")
        self.handle.group_count = 1
        self.handle.groups = self._group

    @classmethod
    def from_tensors(cls, name: str, tensors: Sequence[MemoryLike], tokens_per_block: int) -> "Layout":
        """The tensors of an engine layout (a name of LAYOUTS)."""
        if name not in LAYOUTS:
            raise ValueError(f"no layout '{name}'; there are: {', '.join(sorted(LAYOUTS))}")
        extents = [extent(tensor) for tensor in tensors]
        described = ffi.new("struct kvr_tensor[]", len(extents))
        for at, tensor in zip(described, extents):
            if not 1 <= len(tensor.shape) <= 6:
                raise ValueError(f"a tensor of {len(tensor.shape)} dimensions: 1 to 6 are possible")
            at.address = ffi.cast("void *", tensor.address)
            at.dimensions = len(tensor.shape)
            at.element_bytes = tensor.element_bytes
            at.shape[0 : len(tensor.shape)] = tensor.shape
            at.stride[0 : len(tensor.shape)] = tensor.stride
        capacity = 2 * len(extents) + 2
        planes = ffi.new("struct kvr_plane[]", capacity)
        group = ffi.new("struct kvr_group *")
        code = lib.kvr_layout_make(LAYOUTS[name], described, len(extents), tokens_per_block, planes, capacity, group)
        if code:
            raise KvrailError(-code, words())
        made = [
            Plane(int(ffi.cast("uintptr_t", planes[i].address)), planes[i].block_stride, planes[i].block_bytes)
            for i in range(group.plane_count)
        ]
        return cls(made, group.tokens_per_block, group.block_count, keep=list(tensors))

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all planes."""
        return sum(plane.block_bytes for plane in self.planes)

    def fingerprint(self) -> bytes:
        """32 bytes that are equal for all workers of a model that store alike: no addresses, no numbers of blocks."""
        out = ffi.new("uint8_t[32]")
        code = lib.kvr_layout_fingerprint(self.handle, out)
        if code:
            raise KvrailError(-code, words())
        return bytes(ffi.buffer(out))


def words() -> str:
    """What the library said about this thread's last call."""
    return str(ffi.string(lib.kvr_error_text()).decode("utf-8", "replace"))
