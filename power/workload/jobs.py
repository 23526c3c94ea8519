"""Training jobs: several servers that compute together and then wait together.

At the peak a training server draws `PEAK` of its provisioned power, and falls to a trough at each iteration's end that
depends on the model: POLCA (arXiv 2308.12908) measured rows of training at 97 % of provisioned power, rises of
37.5 % of it within 2 s, and troughs at 75 % (RoBERTa), 50 % (GPT-NeoX) and 20 % (Flan-T5) of a GPU's rating.
Iteration lengths, compute shares and the mix of models are assumptions.
"""

from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from power.server_model import BLOOM_A100, ServerModel
from power.workload.workload import TrainingJob

PEAK = 0.97
GPU_RATING_W = 400.0  # A100 SXM
PROVISIONED_W = 5340.0  # per server: the built-in row's uncapped peak at 40 servers is 79 % of it
JOB_SERVERS = 4


@dataclass(frozen=True, slots=True)
class Trained:
    name: str
    trough_share: float  # of the GPUs' rating
    iteration_s: float
    compute_share: float
    jobs_in_ten: int


TRAINED = (
    Trained("roberta", trough_share=0.75, iteration_s=3.0, compute_share=0.85, jobs_in_ten=3),
    Trained("gpt-neox", trough_share=0.50, iteration_s=7.0, compute_share=0.80, jobs_in_ten=3),
    Trained("flan-t5", trough_share=0.20, iteration_s=5.0, compute_share=0.75, jobs_in_ten=4),
)


def training_jobs(
    *,
    servers: int,
    seed: int = 0,
    model: ServerModel = BLOOM_A100,
    provisioned_w: float = PROVISIONED_W,
    job_servers: int = JOB_SERVERS,
) -> tuple[TrainingJob, ...]:
    """Return jobs on so many servers; the last may be smaller.  Each starts at its own moment within its iteration."""
    if servers < 0 or job_servers < 1:
        raise RuleError([(("servers",), f"must be at least 0 in jobs of at least 1, got {servers} and {job_servers}")])
    rng = np.random.default_rng([seed, 2])
    jobs = []
    for at, first in enumerate(range(0, servers, job_servers)):
        trained = _by_turns(at)
        jobs.append(
            TrainingJob(
                name=f"{trained.name}-{at}",
                servers=min(job_servers, servers - first),
                # Lengths differ by some per cent from job to job, so that phases drift through all meetings.
                iteration_s=trained.iteration_s * float(rng.uniform(0.95, 1.05)),
                compute_share=trained.compute_share,
                compute_w=PEAK * provisioned_w,
                trough_w=min(PEAK * provisioned_w, trough_w(model, trained.trough_share)),
                start_s=float(rng.uniform(0, trained.iteration_s)),
            )
        )
    return tuple(jobs)


def trough_w(model: ServerModel, share: float) -> float:
    """Return the power of a server whose GPUs are at a share of their rating."""
    return model.base_w + model.beside * model.gpus * share * GPU_RATING_W


def split_servers(servers: int, training_share: float) -> tuple[int, int]:
    """Return the number of servers that serve and that train."""
    if not 0 <= training_share <= 1:
        raise RuleError([(("training_share",), f"must be from 0 to 1, got {training_share:g}")])
    training = round(servers * training_share)
    return servers - training, training


def _by_turns(at: int) -> Trained:
    """Return the model furthest below its share after `at` jobs."""
    given = [0] * len(TRAINED)
    chosen = 0
    for _ in range(at + 1):
        chosen = max(range(len(TRAINED)), key=lambda one: TRAINED[one].jobs_in_ten / (given[one] + 0.5))
        given[chosen] += 1
    return TRAINED[chosen]
