"""One file for each way of keeping keys and values, over one short base with the protocol."""

from .base import AttentionLayer, Layer
from .dynamic import DynamicLayer

__all__ = ["AttentionLayer", "DynamicLayer", "Layer"]
