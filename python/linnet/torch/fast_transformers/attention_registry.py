"""The registry of attentions by name, which builders read and other packages may extend."""

from __future__ import annotations

from .events import EventDispatcher


class Spec:
    """The type of a parameter: `predicate` gives the value of what it accepts, and raises ValueError for the rest."""

    def __init__(self, predicate, name="CustomSpec"):
        self._predicate = predicate
        self._name = name

    def get(self, x):
        return self._predicate(x)

    def check(self, x):
        """Whether x is accepted."""
        try:
            self.get(x)
        except ValueError:
            return False
        return True

    def __repr__(self):
        return self._name

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


class Choice(Spec):
    """One of several values."""

    def __init__(self, choices):
        super().__init__(None, f"Choice({choices!r})")
        self._choices = choices

    def get(self, x):
        if x not in self._choices:
            raise ValueError(f"[parameter] expected one of {self._choices!r}, got {x!r}")
        return x

    def __eq__(self, other):
        return isinstance(other, Choice) and self._choices == other._choices

    __hash__ = object.__hash__


class Optional(Spec):
    """A parameter that may be None, which stands for `default`."""

    def __init__(self, spec, default=None):
        super().__init__(None, f"Optional[{spec!r}, {default!r}]")
        self._spec = spec
        self._default = default

    def get(self, x):
        return self._default if x is None else self._spec.get(x)

    def __eq__(self, other):
        return isinstance(other, Optional) and (self._spec, self._default) == (other._spec, other._default)

    __hash__ = object.__hash__


def _callable(x):
    if not callable(x):
        raise ValueError(f"[parameter] expected something to call, got {x!r}")
    return x


def _dispatcher(x):
    if not isinstance(x, (str, EventDispatcher)):
        raise ValueError(f"[parameter] expected an EventDispatcher or its name, got {x!r}")
    return x


Int = Spec(int, "Int")
Float = Spec(float, "Float")
Bool = Spec(bool, "Bool")
Callable = Spec(_callable, "Callable")
EventDispatcherInstance = Spec(_dispatcher, "EventDispatcherInstance")

_ABSENT = {
    "clustered": "full",
    "improved-clustered": "full",
    "improved-causal": "causal-linear",
    "conditional-full": "full",
    "exact-topk": "full",
    "aft-full": "linear",
    "aft-simple": "linear",
}


def refuse_absent(name: str) -> None:
    """Throws ValueError for an attention of fast-transformers that Linnet does not have."""
    if name in _ABSENT:
        raise ValueError(f"[attention type] expected an attention that Linnet has ('{_ABSENT[name]}', say), got '{name}'")


class Registry:
    """Classes of attentions by name, with their parameters."""

    def __init__(self):
        self._classes = {}
        self._class_parameters = {}
        self._parameters = {}

    def register(self, key, class_object, parameter_tuples):
        """`parameter_tuples` are names of arguments of `class_object` with their `Spec`."""
        if key in self._classes:
            raise ValueError(f"[registry] expected a new name, got '{key}' again")
        for name, spec in parameter_tuples:
            if self._parameters.get(name, spec) != spec:
                raise ValueError(f"[registry] expected {name} as {self._parameters[name]!r}, got {spec!r}")
        self._classes[key] = class_object
        self._class_parameters[key] = [name for name, _ in parameter_tuples]
        self._parameters.update(parameter_tuples)

    def __contains__(self, key):
        return key in self._classes

    def __getitem__(self, key):
        return self._classes[key], self._class_parameters[key]

    @property
    def keys(self):
        return list(self._classes)

    def contains_parameter(self, key):
        return key in self._parameters

    def validate_parameter(self, key, value):
        return self._parameters[key].get(value)


AttentionRegistry = Registry()
RecurrentAttentionRegistry = Registry()
RecurrentCrossAttentionRegistry = Registry()
