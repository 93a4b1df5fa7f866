"""Counts parameters and gradients as fp32, as in training without mixed precision.

check: test_one_parameter
mistake: fp32-parameters
"""


def paper_parts(parameters):
    return {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters,
        "master": 4 * parameters,
        "moments": 8 * parameters,
    }
