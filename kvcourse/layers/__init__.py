"""One file for each way of keeping keys and values, over one short base with the protocol."""

from .base import AttentionLayer, Layer
from .dummy import DummyLayer
from .dynamic import DynamicLayer
from .hybrid import HybridLayer
from .indexed import DynamicIndexedLayer, StaticIndexedLayer
from .linear import LinearLayer
from .quantized import QuantizedLayer
from .sliding import DynamicSlidingLayer
from .static import StaticLayer
from .static_sliding import StaticSlidingLayer

__all__ = [
    "AttentionLayer",
    "DummyLayer",
    "DynamicIndexedLayer",
    "DynamicLayer",
    "DynamicSlidingLayer",
    "HybridLayer",
    "Layer",
    "LinearLayer",
    "QuantizedLayer",
    "StaticIndexedLayer",
    "StaticLayer",
    "StaticSlidingLayer",
]
