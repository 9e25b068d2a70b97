"""The modules of fast-transformers 0.4.0 with Linnet's attention inside: the same names, arguments and parameter names, so that
its checkpoints load with ``load_state_dict(strict=True)`` and a program changes its imports alone.

    from linnet.torch.fast_transformers.builders import TransformerEncoderBuilder

``docs/python-torch.md`` lists what is different.
"""

__version__ = "0.4.0"
