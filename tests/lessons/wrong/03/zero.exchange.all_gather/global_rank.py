"""Takes the rank in the world for the rank in the group.

check: test_gather_in_a_group
mistake:
says: get_rank()
"""

import torch.distributed as dist


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[dist.get_rank()])]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.receive(part, p, ticket.tag) for p, part in parts.items() if part.numel()]
    if own.numel():
        handles += [mesh.send(own, p, ticket.tag) for p in mesh.peers]

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)

    return Work(flat, [], finish), own.nbytes * len(mesh.peers)
