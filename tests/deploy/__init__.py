"""The controller and its actuators."""
