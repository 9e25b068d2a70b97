"""The events of fast-transformers. Its classes exist and are accepted; Linnet's modules dispatch nothing, since their attention
never has the weights of all pairs in memory."""

from __future__ import annotations


class Event:
    """What a module has to tell: `source` is the module."""

    def __init__(self, source):
        self.source = source


class AttentionEvent(Event):
    """The attention matrix of a module."""

    def __init__(self, source, attention_matrix):
        super().__init__(source)
        self.attention_matrix = attention_matrix


class QKVEvent(Event):
    """The queries, keys and values of a module."""

    def __init__(self, source, queries, keys, values):
        super().__init__(source)
        self.queries = queries
        self.keys = keys
        self.values = values


class IntermediateOutput(Event):
    """The features between two layers."""

    def __init__(self, source, x):
        super().__init__(source)
        self.x = x


class EventDispatcher:
    """Listeners of events. Modules of this package keep one and never call it."""

    _named: dict[str, EventDispatcher] = {}

    def __init__(self):
        self._listeners = {}

    def listen(self, event_filter, event_handler):
        """`event_handler` is called with every event for which `event_filter`, a class of events or a function, holds."""
        self._listeners[event_handler] = event_filter

    def remove(self, event_handler):
        self._listeners.pop(event_handler, None)

    def clear(self):
        self._listeners.clear()

    def dispatch(self, event):
        for handler, chosen in list(self._listeners.items()):
            if isinstance(event, chosen) if isinstance(chosen, type) else chosen(event):
                handler(event)

    @classmethod
    def get(cls, key=""):
        """The dispatcher of that name, or `key` itself where it is one."""
        if isinstance(key, cls):
            return key
        return cls._named.setdefault(key, cls())
