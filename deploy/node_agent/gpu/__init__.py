"""One node's GPUs: what they draw, what caps them, and caps that end.

    port        what is asked of any driver or BMC, and its errors        (nvml, amd, redfish, simulated)
    orders      who asked for which cap, and until when; pure
    holding     one GPU's cap, from wanted to read back; pure
    keeper      looks, writes, looks again; restores                      (memory: what a killed agent leaves behind)
    node        all of them as the guard's device                         (caps_app: the same by HTTP)

docs/agent.md
"""
