"""Every row of the assignment programs, by the names of docs/placement/exact.md, section 7."""

from itertools import product

from placement.exact.assignment_model import AssignmentModel, OrderModel, ProductModel


def add_one_to_one(model: ProductModel) -> None:
    """one_gpu[l,c], one_cluster[l,g]: each cluster on one GPU, each GPU with one cluster, in every layer."""
    every = range(model.exchange.clusters)
    for layer, at in product(range(model.exchange.layers), every):
        on_gpus = ((model.placed[layer, at, gpu], 1.0) for gpu in every)
        clusters = ((model.placed[layer, cluster, at], 1.0) for cluster in every)
        model.program.equal(f"one_gpu_{layer}_{at}", on_gpus, 1)
        model.program.equal(f"one_cluster_{layer}_{at}", clusters, 1)


def add_pairs(model: ProductModel) -> None:
    """here[l,c,d,g], there[l,c,d,h]: a pair of places is taken exactly where both of its clusters are.

    These sums (Adams and Johnson, 1994) are as right as one row per product, and their relaxation is much tighter.
    """
    every = range(model.exchange.clusters)
    for step, c, d, at in product(range(model.exchange.layers - 1), every, every, every):
        here = [(model.pairs[step, c, d, at, h], 1.0) for h in every]
        there = [(model.pairs[step, c, d, g, at], 1.0) for g in every]
        model.program.equal(f"here_{step}_{c}_{d}_{at}", [*here, (model.placed[step, c, at], -1.0)], 0)
        model.program.equal(f"there_{step}_{c}_{d}_{at}", [*there, (model.placed[step + 1, d, at], -1.0)], 0)


def add_tail(model: ProductModel) -> None:
    """tail[l,g,h]: no pair of GPUs takes longer than the slowest."""
    every = range(model.exchange.clusters)
    for step, gpu, other in product(range(model.exchange.layers - 1), every, every):
        if gpu != other:
            sent = list(model.sent(step, gpu, other))
            model.program.at_most(f"tail_{step}_{gpu}_{other}", [*sent, (model.tails[step], -1.0)], 0)


def add_one_order(model: OrderModel) -> None:
    """one_order[l]: the clusters of a layer lie in one order."""
    for layer in range(model.exchange.layers):
        orders = ((model.chosen[layer, order], 1.0) for order in range(len(model.orders)))
        model.program.equal(f"one_order_{layer}", orders, 1)


def add_path(model: OrderModel) -> None:
    """leave[l,i], arrive[l,j]: a move leads from a layer's order to the next layer's."""
    every = range(len(model.orders))
    for step, at in product(range(model.exchange.layers - 1), every):
        leaving = [(model.moves[step, at, there], 1.0) for there in every]
        arriving = [(model.moves[step, here, at], 1.0) for here in every]
        model.program.equal(f"leave_{step}_{at}", [*leaving, (model.chosen[step, at], -1.0)], 0)
        model.program.equal(f"arrive_{step}_{at}", [*arriving, (model.chosen[step + 1, at], -1.0)], 0)


def add_equal_memory(model: AssignmentModel) -> None:
    """equal_memory[g]: over all layers a GPU holds no more copies than it may."""
    exchange = model.exchange
    for gpu in range(exchange.clusters):
        lying = (term for layer in range(exchange.layers) for term in model.on(layer, gpu))
        model.program.at_most(f"equal_memory_{gpu}", lying, exchange.copies_of_gpu)


def add_first(model: AssignmentModel) -> None:
    """first[c]: where GPUs are all alike, the first layer's clusters may lie as they are numbered."""
    if model.exchange.alike:
        for cluster, choice in enumerate(model.first()):
            model.program.equal(f"first_{cluster}", [(choice, 1.0)], 1)


def add_ceiling(model: AssignmentModel) -> None:
    """ceiling: only what is better than the start is looked for."""
    if model.ceiling_s is not None:
        model.program.at_most("ceiling", model.goal(), model.ceiling_s / model.exchange.unit_s)


def least_tail_by_products(model: ProductModel) -> ProductModel:
    """MoETuner's program: docs/placement/exact.md, section 7."""
    add_one_to_one(model)
    add_pairs(model)
    add_tail(model)
    _finish(model)
    return model


def least_tail_by_orders(model: OrderModel) -> OrderModel:
    """The same question over whole orders: docs/placement/exact.md, section 7."""
    add_one_order(model)
    add_path(model)
    _finish(model)
    return model


def _finish(model: AssignmentModel) -> None:
    add_equal_memory(model)
    add_first(model)
    add_ceiling(model)
    model.program.minimise(model.goal())
