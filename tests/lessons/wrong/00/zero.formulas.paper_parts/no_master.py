"""Forgets that the fp32 copy takes memory.

check: test_one_parameter
mistake: no-master
"""


def paper_parts(parameters):
    return {
        "parameters": 2 * parameters,
        "gradients": 2 * parameters,
        "master": 0,
        "moments": 8 * parameters,
    }
