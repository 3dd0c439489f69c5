"""The cache that generate() would make, made by us: `model.generate(cache=...)` with whatever settings were given."""

import copy

from .containers import DynamicCache


def generate_with(model, args, kwargs, cache):
    """`model.generate` with this cache, in place of the settings by which it would make one."""
    kwargs = {name: value for name, value in kwargs.items() if name not in ("cache_implementation", "cache_config")}
    args = list(args)
    configs = [(args, 1)] if len(args) > 1 else [(kwargs, "generation_config")] if "generation_config" in kwargs else []
    for place, key in configs:
        if place[key] is not None:
            place[key] = copy.deepcopy(place[key])
            place[key].cache_implementation = place[key].cache_config = None
    if getattr(model.generation_config, "cache_implementation", None) is not None:
        kwargs["cache_implementation"] = None
    return model.generate(*args, cache=cache, **kwargs)


def setting(model, args, kwargs, name):
    """A setting as generate() would read it: from its arguments, then the generation config, then the model's."""
    config = args[1] if len(args) > 1 else kwargs.get("generation_config")
    found = [kwargs.get(name), getattr(config, name, None), getattr(model.generation_config, name, None)]
    return next((value for value in found if value is not None), None)


def own_cache(model, args, kwargs, kind, offloading):
    """An empty cache of this package for `model.generate(*args, **kwargs)`.

    `kind`: a `cache_implementation`; its options are taken from `cache_config`, the room of a static one from the
    length that the text can get.
    """
    if kind in ("dynamic", "offloaded"):
        cache = DynamicCache(config=model.config, offloading=offloading)
    else:
        from .by_name import make_cache

        options = dict(setting(model, args, kwargs, "cache_config") or {})
        if "static" in kind:
            options.setdefault("max_cache_len", _length(model, args, kwargs))
        elif offloading:
            options["offloading"] = True
        cache = make_cache(kind, options.pop("config", model.config), **options)
    if not model.config.is_encoder_decoder:
        return cache
    from .encoder_decoder import EncoderDecoderCache

    # The source is read by every step as it lies there, without an update that could fetch it: it stays on the device.
    return EncoderDecoderCache(cache, DynamicCache())


def _length(model, args, kwargs):
    """Tokens that the longest text of this call can have."""
    names = ("decoder_input_ids",) if model.config.is_encoder_decoder else ("input_ids", "inputs", "inputs_embeds")
    prompts = [kwargs[name] for name in names if kwargs.get(name) is not None]
    if not model.config.is_encoder_decoder and args and args[0] is not None:
        prompts.append(args[0])
    prompt = max((tensor.shape[1] for tensor in prompts), default=1)
    new = setting(model, args, kwargs, "max_new_tokens")
    longest = setting(model, args, kwargs, "max_length")
    total = prompt + new if new is not None else max(longest or 0, prompt + 20)  # 20: what generate() does unasked
    return max(total, setting(model, args, kwargs, "max_cache_len") or 0)
