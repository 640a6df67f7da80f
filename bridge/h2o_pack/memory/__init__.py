"""How much memory a model takes on a device, from its shapes and how MLX works.

`plan_memory` adds up terms; `formulas` has the bytes of everything kept, `graph`, `kit`,
`evicting` and `chunk` what is held while a chunk is computed, `peak` the worst moment.
"""

from __future__ import annotations

from h2o_pack.memory.estimate import plan_memory
from h2o_pack.memory.terms import MemoryPlan, Term

__all__ = ["MemoryPlan", "Term", "plan_memory"]
