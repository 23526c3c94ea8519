"""How parts of a twin's application are called, for those who need not load Ray Serve to know."""

ACCELERATOR_LABEL = "ray.io/accelerator-type"
METER_NAME = "Meter"  # the deployment
METER_PATH = "/v1/twin"  # which tells what each replica draws
IMPORT_PATH = "deploy.emulator.serve_app:build"
