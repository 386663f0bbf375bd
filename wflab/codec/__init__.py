"""Values as JSON text with type tags: what comes back is equal and of the same type, and reading runs nothing."""

from wflab.codec import builtins, exceptions, models, numpy, pandas
from wflab.codec.classes import register
from wflab.codec.core import Unresolved, decode, encode, register_reference, same

__all__ = ["Unresolved", "decode", "encode", "register", "register_reference", "same"]

for _family in (builtins, models, exceptions, numpy, pandas):
    _family.install()
