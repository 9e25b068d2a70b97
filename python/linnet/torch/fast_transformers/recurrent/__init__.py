"""The recurrent forms: one token at a time, with a state. ``recurrent.attention`` and ``recurrent.transformers``."""
