"""What a pod template lacks for a stop without lost requests.  Reported only: no template is written.  Pure."""

from collections.abc import Iterator

from api.schemas.applications import PodDrain
from deploy.common.kubernetes_objects import Pod

DEFAULT_GRACE_S = 30.0


def pod_warnings(name: str, pod: Pod, *, drain: PodDrain | None) -> Iterator[str]:
    hooks, grace_s = pod.pre_stop_hooks, pod.spec.termination_grace_period_seconds
    if not hooks:
        yield f"pods of {name} have no preStop hook: a pod that stops gets requests until its endpoint is removed"
    sleep_s = max((hook.sleep.seconds for hook in hooks if hook.sleep is not None), default=0.0)
    if sleep_s >= grace_s:
        yield (
            f"terminationGracePeriodSeconds of {name} is {grace_s:g}, and its preStop hook sleeps {sleep_s:g} s: "
            "requests that run are cut off"
        )
    elif drain is None and grace_s <= DEFAULT_GRACE_S:
        yield f"requests longer than {grace_s:g} s are cut off: {name} has no drain and no longer grace period"
