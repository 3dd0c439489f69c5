"""kvcourse: how a language model remembers while it generates.

`import kvcourse` itself needs nothing but the standard library, so that `python -m kvcourse doctor`
can run before anything is installed. Each public name below loads its module on first use.
"""

from importlib import import_module

__version__ = "0.1.0"

# public name -> the module that defines it, or that it is
_PUBLIC = {
    "Cache": "cache",
    "Chat": "chat",
    "DynamicCache": "containers",
    "EncoderDecoderCache": "encoder_decoder",
    "ModelError": "models",
    "QuantizedCache": "quantized_cache",
    "StaticCache": "containers",
    "attention": "attention",
    "check": "check",
    "common_prefix": "prefix",
    "compare": "same",
    "continue_from": "prefix",
    "diagnose": "same",
    "emulated_device": "offload",
    "generate": "generate",
    "greedy": "generate",
    "layers": "layers",
    "load": "models",
    "make_cache": "by_name",
    "measure": "measure",
    "plan": "planning",
    "predict": "guesses",
    "progress": "logbook",
    "public": "public",
    "quantize": "quantize",
    "resilient_generate": "resilient",
    "reveal": "guesses",
    "show": "show",
    "show_source": "show",
    "stream": "generate",
    "texts": "texts",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvcourse' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = import_module(f".{_PUBLIC[name]}", __name__)
    value = getattr(module, name, module)  # a name that is a module stands for itself
    globals()[name] = value
    return value


def __dir__():
    return __all__
