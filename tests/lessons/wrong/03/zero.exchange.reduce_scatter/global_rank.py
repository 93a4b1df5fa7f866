"""Takes the rank in the world for the rank in the group.

check: test_scatter_in_a_group
mistake:
says: get_rank()
"""

import torch.distributed as dist


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[dist.get_rank()]
    handles = [
        mesh.send(piece, peer, ticket.tag)
        for peer in mesh.peers
        for piece in in_pieces(flat[slice(*bounds[peer])])
    ]

    def finish():
        mesh.settle(ticket)
        for own, target in zip(in_pieces(flat[start:end]), in_pieces(out)):
            rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
            mesh.wait([mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers], ticket)
            add_in_rank_order(rows, target, op)
        mesh.wait(handles, ticket)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
