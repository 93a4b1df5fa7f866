"""Gives a tuple.

check: test_keys
mistake: wrong-type
"""


def paper_parts(parameters):
    return 2 * parameters, 2 * parameters, 4 * parameters, 8 * parameters
