"""The core's functions on arrays, of which `h2o::LayerCache` is made, for tests of each.

With those of `h2o_py.fast`: a module of the same functions is a backend of tests.
"""

from __future__ import annotations

from h2o_py.fast import *  # noqa: F403  a backend has these too
from h2o_py.fast import _native  # noqa: F401  the tests' other backends need it
