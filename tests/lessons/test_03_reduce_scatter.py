"""Grades lesson 03; the checks stand in `reduce_scatter_checks`."""

from reduce_scatter_checks.direct import *  # noqa: F403
from reduce_scatter_checks.gather import *  # noqa: F403
from reduce_scatter_checks.ring import *  # noqa: F403
