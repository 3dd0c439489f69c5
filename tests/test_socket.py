"""What the installed transformers has, against what this package covers: anything new fails here, by name."""

import inspect

import pytest
import transformers
from transformers import cache_utils

import kvcourse as kv
from kvcourse import layers
from kvcourse.hf import KEEPS_NOTHING, KINDS, namesake

CONTAINERS = [kv.Cache, kv.DynamicCache, kv.StaticCache, kv.QuantizedCache, kv.EncoderDecoderCache]
OUR_LAYERS = {  # class of transformers -> ours
    "CacheLayerMixin": "AttentionLayer",
    "DynamicLayer": "DynamicLayer",
    "DynamicSlidingWindowLayer": "DynamicSlidingLayer",
    "DynamicIndexedLayer": "DynamicIndexedLayer",
    "StaticLayer": "StaticLayer",
    "StaticSlidingWindowLayer": "StaticSlidingLayer",
    "StaticIndexedLayer": "StaticIndexedLayer",
    "BaseQuantizedLayer": "QuantizedLayer",
    "QuantizedLayer": "QuantizedLayer",
    "QuantoQuantizedLayer": "QuantizedLayer",
    "HQQQuantizedLayer": "QuantizedLayer",
    "Fp8QuantizedLayer": "QuantizedLayer",
    "LinearAttentionCacheLayerMixin": "LinearLayer",
    "LinearAttentionLayer": "LinearLayer",
    "LinearAttentionAndFullAttentionLayer": "HybridLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer": "HybridLayer",
    "LinearAttentionAndStaticFullAttentionLayer": "HybridLayer",
    "LinearAttentionAndStaticSlidingWindowAttentionLayer": "HybridLayer",
    "DummyLayer": "DummyLayer",
}
NOT_COVERED = {  # class of transformers -> why not
    "MtpCache": "serves the drafting heads of multi-token prediction, made and used inside generate() alone",
    "DFlashCache": "serves one drafting method, made and used inside generate() alone",
    "KVSharingDict": "hands keys from layer to layer within one forward; nothing is kept between forwards",
}
OTHER_WORDS = {  # method or attribute of a layer in transformers -> what serves here
    "prefetch": "Offloader.prefetch: a layer need not know where its tensors are",
    "offload": "Offloader.evict, likewise",
    "lazy_initialization_indexer": "update_indexer makes its buffer itself; nobody else calls it",
}


def test_every_class_is_covered_or_left_out_with_a_reason():
    theirs = {
        name
        for name, thing in vars(cache_utils).items()
        if inspect.isclass(thing) and thing.__module__ == cache_utils.__name__ and thing.__name__ == name
    }
    containers = {each.__name__ for each in CONTAINERS}
    assert theirs == containers | set(OUR_LAYERS) | set(NOT_COVERED)
    assert all(hasattr(layers, ours) for ours in OUR_LAYERS.values())


def test_every_layer_type_is_known():
    for mapping in (cache_utils.DYNAMIC_LAYER_TYPE_MAPPING, cache_utils.STATIC_LAYER_TYPE_MAPPING):
        own = {kind for kind, layer in mapping.items() if layer.__module__ == cache_utils.__name__}
        assert own == set(KINDS), "a kind of layer that kvcourse.hf does not list, or lists for nothing"
    assert set(KEEPS_NOTHING).isdisjoint(KINDS)


def made(layer_class):
    """One of our layers, whatever its constructor takes."""
    arguments = {
        "StaticLayer": (8,),
        "StaticIndexedLayer": (8,),
        "StaticSlidingLayer": (8, 4),
        "DynamicSlidingLayer": (4,),
        "QuantizedLayer": ("hqq",),
        "HybridLayer": (layers.LinearLayer(), layers.DynamicLayer()),
    }
    return getattr(layers, layer_class)(*arguments.get(layer_class, ()))


@pytest.mark.parametrize("name", [name for name in OUR_LAYERS if "Mixin" not in name and "Base" not in name])
def test_every_public_method_of_a_layer_exists_and_is_ours(name):
    ours = made(OUR_LAYERS[name])
    for method in dir(getattr(cache_utils, name)):
        if name == "LinearAttentionLayer" and method == "lazy_initialization":
            continue  # takes states there; update_conv_state and update_recurrent_state make their tensors themselves
        if not method.startswith("_") and method not in OTHER_WORDS and method not in ("fp8_dtype", "fp8_max"):
            assert hasattr(ours, method), f"{OUR_LAYERS[name]} lacks {method}, which {name} has"
    assert all(cls.__module__.startswith("kvcourse") for cls in type(ours).__mro__[:-1])


@pytest.mark.parametrize("ours", CONTAINERS, ids=lambda cls: cls.__name__)
def test_every_public_name_of_a_container_has_our_own_body(ours):
    """Ours inherit the type of transformers' containers, and no behaviour."""
    theirs, special = namesake(ours), ("__init__", "__len__", "__iter__", "__repr__")
    for name in dir(theirs):
        if name.startswith("_") and (name not in special or getattr(theirs, name) is getattr(object, name, None)):
            continue
        owner = next(cls for cls in ours.__mro__ if name in vars(cls))
        assert owner.__module__.startswith("kvcourse"), f"{ours.__name__}.{name} is {owner.__module__}'s"
    assert issubclass(ours, theirs) and issubclass(ours, transformers.Cache)


@pytest.mark.parametrize("ours", CONTAINERS, ids=lambda cls: cls.__name__)
def test_constructors_and_methods_take_what_theirs_take(ours):
    """Every argument of the namesake, in the same place and with the same default; ours may take more behind them."""
    for name, theirs in inspect.getmembers(namesake(ours), inspect.isfunction):
        if name == "__init__" or not name.startswith("_"):
            if ours is kv.EncoderDecoderCache and name == "__init__":
                continue  # theirs takes *caches: the test below
            mine = [p for p in inspect.signature(getattr(ours, name)).parameters.values()]
            for place, (wanted, got) in enumerate(
                zip(inspect.signature(theirs).parameters.values(), mine, strict=False)
            ):
                both_stars = wanted.kind == got.kind != inspect.Parameter.POSITIONAL_OR_KEYWORD
                assert both_stars or wanted.name == got.name, f"{ours.__name__}.{name}, argument {place}"
                assert wanted.default in (got.default, inspect.Parameter.empty), f"{ours.__name__}.{name}({got.name})"


def test_an_encoder_decoder_cache_takes_two_caches_or_data():
    two = kv.EncoderDecoderCache(kv.DynamicCache(), kv.DynamicCache())
    assert type(two.is_updated) is dict and len(kv.EncoderDecoderCache([])) == 0
