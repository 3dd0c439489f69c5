"""A cache by the name that `generate(cache_implementation=...)` takes."""

from .containers import DynamicCache, StaticCache
from .quantized_cache import QuantizedCache

MAKERS = {
    "dynamic": (DynamicCache, {}),
    "offloaded": (DynamicCache, {"offloading": True}),
    "static": (StaticCache, {}),
    "offloaded_static": (StaticCache, {"offloading": True}),
    "quantized": (QuantizedCache, {"backend": "quanto"}),
}


def make_cache(cache_implementation, config, **cache_config):
    """An empty cache for a model of this config.

    `cache_implementation`: "dynamic", "static", "offloaded", "offloaded_static" or "quantized".
    `cache_config`: what the class takes besides. A static cache needs `max_cache_len`, a quantized one takes its
    `backend` (by default "quanto") and the options of that backend.
    ValueError for another name, or for an option that the class lacks.
    """
    if cache_implementation not in MAKERS:
        raise ValueError(f"no cache is called {cache_implementation!r}; there are {', '.join(MAKERS)}")
    kind, defaults = MAKERS[cache_implementation]
    if kind is StaticCache and "max_cache_len" not in cache_config:
        raise ValueError(f"{cache_implementation!r} needs max_cache_len=, the tokens of the longest text")
    try:
        return kind(config=config, **defaults | cache_config)
    except TypeError as error:
        raise ValueError(f"{cache_implementation!r} does not take these options: {error}") from None
