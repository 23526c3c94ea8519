"""Work from files: requests, rates, both or neither."""

import numpy as np
import pytest

from fleet.documents import RuleError
from fleet.errors import DocumentError
from power.server_model import BLOOM_A100
from power.workload import Sources, read_sources

REQUESTS = "time_s,input_tokens,output_tokens\n" + "".join(f"{at},{500 + at},{20 + at}\n" for at in range(100))
RATES = "window_start_s,rate_rps\n" + "".join(f"{3600 * at},{1 + at % 24}\n" for at in range(48))


def test_without_files_the_generator_makes_the_work() -> None:
    work = Sources().work(servers=40, days=1, seed=1)
    assert [pool.name for pool in work.pools] == ["summarize", "search", "chat-low", "chat-high"]
    assert Sources().model() == BLOOM_A100


def test_each_request_file_gets_its_own_pools_on_batching_servers() -> None:
    sources = read_sources([("code.csv", REQUESTS), ("conv.csv.gz", REQUESTS)])
    work = sources.work(servers=40, days=0.5, seed=1)
    assert [pool.name for pool in work.pools] == ["code-low", "code-high", "conv-low", "conv-high"]
    assert sources.model().most_together == 32


def test_rates_shape_the_day() -> None:
    work = read_sources([("rates.csv", RATES)]).work(servers=40, days=2, seed=1)
    counted = np.bincount((work.arrival_s / 3600).astype(np.int64), minlength=48)
    assert counted[1:4].mean() < 0.7 * counted[20:23].mean()
    assert counted[:24] == pytest.approx(counted[24:], rel=0.35)


def test_rates_and_requests_can_be_combined() -> None:
    work = read_sources([("rates.csv", RATES), ("code.csv", REQUESTS)]).work(servers=40, days=2, seed=1)
    counted = np.bincount((work.arrival_s / 3600).astype(np.int64), minlength=48)
    assert counted[1:4].mean() < 0.7 * counted[20:23].mean()


def test_a_share_of_the_servers_trains() -> None:
    work = Sources().work(servers=48, days=1, training_share=0.25)
    assert work.servers == 48
    assert sum(job.servers for job in work.jobs) == 12


def test_the_requests_are_proportional_to_the_load() -> None:
    sources = Sources()
    little, much = (len(sources.work(servers=40, days=1, load=load).arrival_s) for load in (0.4, 0.8))
    assert much / little == pytest.approx(2, rel=0.05)


def test_two_files_of_rates_are_refused() -> None:
    with pytest.raises(RuleError, match=r"at most one file of rates.*a\.csv, b\.csv"):
        read_sources([("a.csv", RATES), ("b.csv", RATES)])


def test_a_file_of_neither_form_is_refused() -> None:
    with pytest.raises(DocumentError, match="unknown header"):
        read_sources([("x.csv", "a,b\n1,2\n")])
