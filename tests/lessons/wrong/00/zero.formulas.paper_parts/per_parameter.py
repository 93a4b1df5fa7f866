"""Gives the bytes of one parameter, however many there are.

check: test_many
mistake: one-parameter-only
"""


def paper_parts(parameters):
    return {
        "parameters": 2,
        "gradients": 2,
        "master": 4,
        "moments": 8,
    }
