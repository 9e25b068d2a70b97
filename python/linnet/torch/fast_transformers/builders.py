"""Builders of transformers: parameters are attributes, and `get` makes the module.

builder = TransformerEncoderBuilder.from_kwargs(n_layers=8, n_heads=8, query_dimensions=64, value_dimensions=64,
                                                feed_forward_dimensions=2048, attention_type="causal-linear")
encoder = builder.get()
"""

from __future__ import annotations

from torch.nn import LayerNorm

from .attention import AttentionLayer, _Attention
from .attention_registry import AttentionRegistry, RecurrentAttentionRegistry, RecurrentCrossAttentionRegistry, refuse_absent
from .recurrent.attention import RecurrentAttentionLayer, RecurrentCrossAttentionLayer
from .recurrent.transformers import (
    RecurrentTransformerDecoder,
    RecurrentTransformerDecoderLayer,
    RecurrentTransformerEncoder,
    RecurrentTransformerEncoderLayer,
)
from .transformers import TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "AttentionBuilder",
    "RecurrentAttentionBuilder",
    "RecurrentCrossAttentionBuilder",
    "RecurrentDecoderBuilder",
    "RecurrentEncoderBuilder",
    "TransformerDecoderBuilder",
    "TransformerEncoderBuilder",
]


class BaseBuilder:
    """Parameters from keyword arguments, dictionaries and namespaces."""

    @classmethod
    def from_kwargs(cls, **kwargs):
        """A builder with these parameters; with ``strict=False`` unknown names are ignored."""
        strict = kwargs.pop("strict", True)
        return cls.from_dictionary(kwargs, strict=strict)

    @classmethod
    def from_namespace(cls, args, strict=False):
        """A builder with the attributes of `args`, of argparse, say."""
        return cls.from_dictionary(vars(args), strict=strict)

    @classmethod
    def from_dictionary(cls, dictionary, strict=True):
        """A builder with the entries of `dictionary`. Throws ValueError for an unknown name where `strict`."""
        builder = cls()
        for name, value in dictionary.items():
            try:
                setattr(builder, name, value)
            except AttributeError:
                if strict:
                    raise ValueError(f"[builder] expected a parameter of {cls.__name__}, got {name!r}") from None
        return builder


class BaseAttentionBuilder(BaseBuilder):
    """Attentions of a registry. Their parameters are attributes."""

    registry = None

    def __init__(self):
        object.__setattr__(self, "_parameters", {})

    @property
    def available_attentions(self):
        """Names of the attentions."""
        return self.registry.keys

    def validate_attention_type(self, attention_type):
        """Whether `get` makes an attention of this type. Throws ValueError for one that fast-transformers alone has."""
        names = [name for part in attention_type.split(":") for name in part.split(",")]
        for name in names:
            if name not in self.registry:
                refuse_absent(name)
        return all(name in self.registry for name in names)

    def __setattr__(self, name, value):
        if not self.registry.contains_parameter(name):
            raise AttributeError(f"[attention builder] expected a parameter of an attention, got {name!r}")
        self._parameters[name] = self.registry.validate_parameter(name, value)

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._parameters:
            raise AttributeError(name)
        return self._parameters[name]

    def __repr__(self):
        inner = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{type(self).__name__}.from_kwargs({inner})"

    def get(self, attention_type):
        """The attention of that name. 'a:b' is an attention 'a' around an attention 'b', 'a:b,c' one around two."""
        if not self.validate_attention_type(attention_type):
            raise ValueError(f"[attention type] expected one of {', '.join(self.available_attentions)}, got {attention_type!r}")
        inner = []
        for part in reversed(attention_type.split(":")):
            inner = [self._make(name, inner) for name in part.split(",")]
        if len(inner) != 1:
            raise ValueError(f"[attention type] expected one outer attention, got {attention_type!r}")
        return inner[0]

    def _make(self, name, inner):
        made, parameters = self.registry[name]
        for parameter in parameters:
            if parameter not in self._parameters:
                try:
                    self.registry.validate_parameter(parameter, None)
                except TypeError:
                    raise ValueError(f"[attention '{name}'] expected the parameter {parameter}, got none") from None
        return made(
            *inner,
            **{
                parameter: self.registry.validate_parameter(parameter, self._parameters.get(parameter))
                for parameter in parameters
            },
        )


class AttentionBuilder(BaseAttentionBuilder):
    """Attentions of the parallel form."""

    registry = AttentionRegistry


class RecurrentAttentionBuilder(BaseAttentionBuilder):
    """Self attentions of the recurrent form."""

    registry = RecurrentAttentionRegistry


class RecurrentCrossAttentionBuilder(BaseAttentionBuilder):
    """Attentions of the recurrent form to a memory."""

    registry = RecurrentCrossAttentionRegistry


class BaseTransformerBuilder(BaseBuilder):
    """The parameters of a transformer. A name that is none of them is a parameter of its attentions."""

    # Classes, which subclasses name: the transformer, its layer, and the layer of an attention of tokens to each other.
    _transformer = _layer = _layer_of_self = None

    def __init__(self):
        self.n_layers = 4
        self.n_heads = 4
        self.query_dimensions = 64
        self.value_dimensions = 64
        self.feed_forward_dimensions = 1024
        self.dropout = 0.1
        self.activation = "relu"
        self.final_normalization = True
        self.event_dispatcher = ""
        self._model_dimensions = None

    _own = (
        "n_layers n_heads query_dimensions value_dimensions feed_forward_dimensions dropout activation "
        "final_normalization event_dispatcher"
    ).split()

    def _attention_builders(self):
        raise NotImplementedError

    def __setattr__(self, name, value):
        if name == "activation" and value not in ("relu", "gelu"):
            raise ValueError(f"[builder] expected activation 'relu' or 'gelu', got {value!r}")
        own = name.startswith("_") or name in self._own or hasattr(type(self), name)
        if own:
            super().__setattr__(name, value)
        if name.startswith("_"):
            return
        for builder in self._attention_builders():
            if builder.registry.contains_parameter(name):
                setattr(builder, name, value)
                own = True
        if not own:
            raise AttributeError(f"[builder] expected a parameter of the transformer or of its attention, got {name!r}")

    @property
    def model_dimensions(self):
        """Width of the residual stream: value_dimensions x n_heads unless set."""
        return self._model_dimensions or self.value_dimensions * self.n_heads

    @model_dimensions.setter
    def model_dimensions(self, value):
        self._model_dimensions = value

    def _final_norm(self):
        return LayerNorm(self.model_dimensions) if self.final_normalization else None

    def _checked(self, operation, builder, attention_type):
        """The name of an attention, where the builder knows it."""
        if not builder.validate_attention_type(attention_type):
            raise ValueError(f"[{operation}] expected one of {', '.join(builder.available_attentions)}, got {attention_type!r}")
        return attention_type

    def _layer_of(self, builder, attention_type):
        """The layer of an attention of tokens to each other."""
        return self._layer_of_self(
            builder.get(attention_type),
            self.model_dimensions,
            self.n_heads,
            d_keys=self.query_dimensions,
            d_values=self.value_dimensions,
            event_dispatcher=self.event_dispatcher,
        )

    def _attention_layers(self):
        """The attentions of a new layer, in the order in which the layer takes them."""
        raise NotImplementedError

    def _make_layer(self):
        return self._layer(
            *self._attention_layers(),
            self.model_dimensions,
            self.feed_forward_dimensions,
            self.dropout,
            self.activation,
            event_dispatcher=self.event_dispatcher,
        )

    def get(self):
        """The transformer."""
        layers = [self._make_layer() for _ in range(self.n_layers)]
        for i, layer in enumerate(layers):
            for module in layer.modules():
                if isinstance(module, _Attention):
                    module.layer = i
        return self._transformer(layers, self._final_norm(), event_dispatcher=self.event_dispatcher)


class BaseTransformerEncoderBuilder(BaseTransformerBuilder):
    """Encoders; `attention_type` is a name of the registry."""

    _builder = None

    def __init__(self):
        self._attention = self._builder()
        self._attention_type = "full"
        super().__init__()

    def _attention_builders(self):
        return (self._attention,)

    @property
    def attention(self):
        """The builder of the attention."""
        return self._attention

    @property
    def attention_type(self):
        return self._attention_type

    @attention_type.setter
    def attention_type(self, value):
        self._attention_type = self._checked("attention type", self._attention, value)

    def _attention_layers(self):
        return (self._layer_of(self._attention, self.attention_type),)


class TransformerEncoderBuilder(BaseTransformerEncoderBuilder):
    """Encoders of the parallel form."""

    _builder, _layer_of_self = AttentionBuilder, AttentionLayer
    _transformer, _layer = TransformerEncoder, TransformerEncoderLayer


class RecurrentEncoderBuilder(BaseTransformerEncoderBuilder):
    """Encoders of the recurrent form, with the parameters of the parallel one."""

    _builder, _layer_of_self = RecurrentAttentionBuilder, RecurrentAttentionLayer
    _transformer, _layer = RecurrentTransformerEncoder, RecurrentTransformerEncoderLayer


def _cross(name, default):
    """A parameter of the attention to the memory; unset, the parameter `default` of the transformer."""
    stored = f"_cross_{name}"

    def read(self):
        return getattr(self, stored) or default(self)

    return property(read, lambda self, value: setattr(self, stored, value))


class BaseTransformerDecoderBuilder(BaseTransformerBuilder):
    """Decoders; `self_attention_type` and `cross_attention_type` are names of the registries."""

    _self_builder = _cross_builder = _layer_of_cross = None

    def __init__(self):
        self._self_attention = self._self_builder()
        self._cross_attention = self._cross_builder()
        self._types = {"self": "full", "cross": "full"}
        self._cross_heads = self._cross_query = self._cross_value = self._cross_model = None
        super().__init__()

    def _attention_builders(self):
        return self._self_attention, self._cross_attention

    cross_n_heads = _cross("heads", lambda self: self.n_heads)
    cross_query_dimensions = _cross("query", lambda self: self.query_dimensions)
    cross_value_dimensions = _cross("value", lambda self: self.value_dimensions)
    cross_model_dimensions = _cross("model", lambda self: self.cross_n_heads * self.cross_value_dimensions)

    @property
    def self_attention(self):
        """The builder of the self attention."""
        return self._self_attention

    @property
    def cross_attention(self):
        """The builder of the attention to the memory."""
        return self._cross_attention

    def _set_type(self, which, builder, value):
        self._types[which] = self._checked(f"{which} attention type", builder, value)

    @property
    def self_attention_type(self):
        return self._types["self"]

    @self_attention_type.setter
    def self_attention_type(self, value):
        self._set_type("self", self._self_attention, value)

    @property
    def cross_attention_type(self):
        return self._types["cross"]

    @cross_attention_type.setter
    def cross_attention_type(self, value):
        self._set_type("cross", self._cross_attention, value)

    def _attention_layers(self):
        cross = self._layer_of_cross(
            self._cross_attention.get(self.cross_attention_type),
            self.model_dimensions,
            self.cross_n_heads,
            d_keys=self.cross_query_dimensions,
            d_values=self.cross_value_dimensions,
            d_model_keys=self.cross_model_dimensions,
            event_dispatcher=self.event_dispatcher,
        )
        return self._layer_of(self._self_attention, self.self_attention_type), cross


class TransformerDecoderBuilder(BaseTransformerDecoderBuilder):
    """Decoders of the parallel form."""

    _self_builder = _cross_builder = AttentionBuilder
    _layer_of_self = _layer_of_cross = AttentionLayer
    _transformer, _layer = TransformerDecoder, TransformerDecoderLayer


class RecurrentDecoderBuilder(BaseTransformerDecoderBuilder):
    """Decoders of the recurrent form, with the parameters of the parallel one."""

    _self_builder, _cross_builder = RecurrentAttentionBuilder, RecurrentCrossAttentionBuilder
    _layer_of_self, _layer_of_cross = RecurrentAttentionLayer, RecurrentCrossAttentionLayer
    _transformer, _layer = RecurrentTransformerDecoder, RecurrentTransformerDecoderLayer
