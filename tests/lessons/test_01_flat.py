"""Grades lesson 01; the checks stand in `flat_checks`, a file an exercise."""

from flat_checks.bounds import *  # noqa: F403
from flat_checks.flatten import *  # noqa: F403
from flat_checks.slices import *  # noqa: F403
from flat_checks.unflatten import *  # noqa: F403
