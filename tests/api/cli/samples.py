"""Small valid files, one of each kind that the command line reads."""

GPU = """\
gpus:
  - name: X1
    vendor: acme
    architecture: one
    form_factor: pcie
    memory_gb: 80
    bandwidth_gb_per_s: 2000
    dense_tflops: {bf16: 300}
    tdp_w: 400
    link: nvlink4
    link_gb_per_s: 450
    link_domain_gpus: 8
    pcie_gb_per_s: 64
    source: X1 datasheet
    date: 2026-11-01
"""
OFFER = """\
offers:
  - id: acme/h100
    provider: acme
    region: eu
    market: on-demand
    gpu: H100
    price_usd_per_h: 4
    as_of: 2026-11-01
    source: price list
"""
TOPOLOGY = """\
sites:
  - name: north
    power:
      - {name: row-a, kind: row, limit_w: 20000}
      - {name: rack-1, kind: rack, parent: row-a}
    nodes:
      - {name: n-1, power_domain: rack-1, gpu: H100, gpus: 8, nominal_w: 10200}
"""
REQUEST = """\
workloads:
  - name: chat
    model: Llama-3.1-8B
    rate_rps: 10
    buckets: {input_tokens: [1000], output_tokens: [200], share: [[1.0]]}
    slo: {tpot_ms: {mean: 100}}
"""
MODEL = """\
models:
  - name: M
    config:
      model_type: llama
      hidden_size: 4096
      num_hidden_layers: 32
      num_attention_heads: 32
      intermediate_size: 14336
      vocab_size: 128256
"""
TARGET = """\
workload: chat
application:
  dashboard_url: http://ray:8265
  application: app
  deployments: {H100: large}
"""
CONFIG = """{
  "model_type": "llama",
  "hidden_size": 4096,
  "num_hidden_layers": 32,
  "num_attention_heads": 32,
  "intermediate_size": 14336,
  "vocab_size": 128256
}
"""

VALID = {
    "gpus": GPU,
    "models": MODEL,
    "offers": OFFER,
    "topology": TOPOLOGY,
    "request": REQUEST,
    "target": TARGET,
    "config": CONFIG,
}
