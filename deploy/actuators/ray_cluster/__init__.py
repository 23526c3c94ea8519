"""The actuator for KubeRay RayCluster worker groups."""
