"""Every row of the balance programs, by the names of docs/placement/exact.md, section 3."""

import itertools

import numpy as np

from placement.exact.balance_model import BalanceModel, Objective


def add_count(model: BalanceModel) -> None:
    """count[l,e]: an expert has one number of copies."""
    case = model.case
    for layer in range(case.layers):
        for expert in range(case.experts):
            counts = [(model.counts[layer, e, c], 1.0) for e, c in model.copies_in[layer] if e == expert]
            model.program.equal(f"count_{layer}_{expert}", counts, 1)


def add_copies(model: BalanceModel) -> None:
    """copies[l,e,c]: so many copies lie somewhere."""
    for (layer, expert, count), y in model.counts.items():
        key = layer, expert, count
        lying = [(model.places[*key, g], 1.0) for g in range(model.case.gpus) if (*key, g) in model.places]
        model.program.equal(f"copies_{layer}_{expert}_{count}", [*lying, (y, -float(count))], 0)


def add_held(model: BalanceModel) -> None:
    """held[l,e,c,g]: no two copies of an expert on one GPU, said so that fractions of a count gain little."""
    for (layer, expert, count, gpu), x in model.places.items():
        if count > 1:  # `copies` says it of a single one
            y = model.counts[layer, expert, count]
            model.program.at_most(f"held_{layer}_{expert}_{count}_{gpu}", [(x, 1.0), (y, -1.0)], 0)


def add_room(model: BalanceModel) -> None:
    """room[l,g]: every slot is filled; where slots are not counted per layer, some[l,g]: no GPU idles."""
    case = model.case
    for layer in range(case.layers):
        for gpu in range(case.gpus):
            if case.slots_of_gpu is None:
                model.program.at_most(f"some_{layer}_{gpu}", ((x, -1.0) for x, _ in model.on(layer, gpu)), -1)
            else:
                model.program.equal(f"room_{layer}_{gpu}", model.on(layer, gpu), int(case.slots_of_gpu[gpu]))


def add_memory(model: BalanceModel) -> None:
    """memory[g]: the copies of all layers together fit the GPU; redundancy[l]: a layer has so many of them."""
    case = model.case
    if case.copies_of_gpu is not None:
        for gpu in range(case.gpus):
            lying = (term for layer in range(case.layers) for term in model.on(layer, gpu))
            model.program.at_most(f"memory_{gpu}", lying, int(case.copies_of_gpu[gpu]))
    if case.copies is not None:
        for layer in range(case.layers):
            lying = (term for gpu in range(case.gpus) for term in model.on(layer, gpu))
            model.program.at_most(f"redundancy_{layer}", lying, case.copies)


def add_peak(model: BalanceModel) -> None:
    """peak[l,g]: no GPU is busier than the layer's busiest."""
    for layer in range(model.case.layers):
        model.peaks[layer] = model.program.number(f"peak_of_{layer}", most=model.case.ceiling)
        for gpu in range(model.case.gpus):
            model.program.at_most(f"peak_{layer}_{gpu}", [*model.load(layer, gpu), (model.peaks[layer], -1.0)], 0)


def add_deviation(model: BalanceModel) -> None:
    """above[l,g], below[l,g]: how far a GPU is from its even share, either way."""
    for layer in range(model.case.layers):
        for gpu in range(model.case.gpus):
            apart = model.apart[layer, gpu] = model.program.number(f"apart_{layer}_{gpu}")
            load = list(model.load(layer, gpu))
            model.program.at_most(f"above_{layer}_{gpu}", [*load, (apart, -1.0)], 1)
            model.program.at_most(f"below_{layer}_{gpu}", [*((x, -weight) for x, weight in load), (apart, -1.0)], -1)


def add_order(model: BalanceModel) -> None:
    """order[e,g]: of GPUs that are alike, those with the first layer's heaviest expert come first."""
    heaviest = int(np.argmax(model.case.parts[0]))
    for gpus in model.case.alike:
        for one, other in itertools.pairwise(gpus):
            more = ((x, -1.0) for x, _ in model.on(0, one, expert=heaviest))
            terms = [*model.on(0, other, expert=heaviest), *more]
            model.program.at_most(f"order_{heaviest}_{one}", terms, 0)


def minimise(model: BalanceModel, objective: Objective) -> None:
    """The mean over the layers: of the busiest GPU's load, or of all distances from the even share, by GPU."""
    layers = model.case.layers
    if objective is Objective.PEAK:
        add_peak(model)
        model.program.minimise((peak, 1.0 / layers) for peak in model.peaks.values())
        return
    add_deviation(model)
    model.program.minimise((apart, 1.0 / layers / model.case.gpus) for apart in model.apart.values())


def most_balanced(model: BalanceModel, objective: Objective) -> BalanceModel:
    """The whole program: docs/placement/exact.md, section 4."""
    add_count(model)
    add_copies(model)
    add_held(model)
    add_room(model)
    add_memory(model)
    add_order(model)
    minimise(model, objective)
    return model
