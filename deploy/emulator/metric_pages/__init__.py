"""Metric pages of inference engines, fed by an emulated engine: names, types, labels and buckets of vLLM and SGLang.

Time histograms are in model seconds, so they do not depend on the time scale.  Counters grow with the model's time: at
time scale k, a rate per second of this machine is k times the model's.
"""

from typing import Literal

from deploy.emulator.metric_pages import sglang, vllm
from deploy.emulator.metric_pages.page import EngineState, Family, MetricPage, RequestRecord
from deploy.emulator.metric_pages.sglang import SglangPage
from deploy.emulator.metric_pages.vllm import VllmPage

EngineName = Literal["vllm", "sglang"]
VERSIONS: dict[EngineName, tuple[str, ...]] = {"vllm": vllm.VERSIONS, "sglang": sglang.VERSIONS}

__all__ = ["VERSIONS", "EngineName", "EngineState", "Family", "MetricPage", "RequestRecord", "SglangPage", "VllmPage"]
