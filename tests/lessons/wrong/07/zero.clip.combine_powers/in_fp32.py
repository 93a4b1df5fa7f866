"""Adds the powers in fp32.

check: test_combine
mistake: narrowed
"""


def combine_powers(powers, norm_type):
    powers = torch.tensor(powers)
    if norm_type == math.inf:
        return powers.max().item()
    return (powers.sum() ** (1 / norm_type)).item()
