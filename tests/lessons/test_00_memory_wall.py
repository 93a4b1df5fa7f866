"""Grades lesson 00; the checks stand in `memory_wall_checks`, a file an exercise."""

from memory_wall_checks.ddp import *  # noqa: F403
from memory_wall_checks.parts import *  # noqa: F403
from memory_wall_checks.rank_order import *  # noqa: F403
