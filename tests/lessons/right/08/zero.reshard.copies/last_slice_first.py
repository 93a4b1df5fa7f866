"""The copies come in another order: that of the last slice first."""


def copies(offset, length, saved):
    plan = []
    for source in reversed(range(len(saved))):
        begin, count = saved[source]
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            plan.append(Copy(source, first - begin, first - offset, last - first))
    return plan
