"""kvcourse: how a language model remembers while it generates.

`import kvcourse` itself needs nothing but the standard library, so that `python -m kvcourse doctor`
can run before anything is installed. Each public name below loads its module on first use.
"""

from importlib import import_module

__version__ = "0.1.0"

# public name -> module that defines it (a name equal to its module's last part is the module itself)
_PUBLIC = {
    "Cache": "cache",
    "DynamicCache": "cache",
    "attention": "attention",
    "check": "check",
    "compare": "measure",
    "diagnose": "measure",
    "generate": "generate",
    "greedy": "generate",
    "load": "models",
    "measure": "measure",
    "predict": "predict",
    "reveal": "predict",
    "show": "show",
    "show_source": "show",
    "stream": "generate",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvcourse' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = import_module(f".{_PUBLIC[name]}", __name__)
    value = module if module.__name__ == f"{__name__}.{name}" and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return __all__
