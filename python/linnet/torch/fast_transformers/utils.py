"""Parameters shared by two modules."""


def make_mirror(src_module, dst_module):
    """Makes every parameter of `src_module` the parameter of the same name of `dst_module`: a recurrent model then runs on the
    weights of the one that is trained."""
    for name, parameter in src_module.named_parameters():
        owner, _, last = name.rpartition(".")
        setattr(dst_module.get_submodule(owner), last, parameter)
