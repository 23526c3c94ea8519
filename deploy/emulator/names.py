"""Names in the emulator's application, for code that does not load Ray Serve."""

ACCELERATOR_LABEL = "ray.io/accelerator-type"
METER_NAME = "Meter"  # the deployment
METER_PATH = "/v1/twin"  # returns the power of each replica
IMPORT_PATH = "deploy.emulator.serve_app:build"
